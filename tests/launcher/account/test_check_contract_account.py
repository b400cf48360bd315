"""The contract of the account checks in worlds that differ from the good account; test_check_contract has the rest."""

from __future__ import annotations

import pytest

import account_world
from account_data import Altered, found, judge
from account_world import CHANNELS, World
from account_worlds import ACCOUNT, RIGHT, shared_codes
from launcher.account.check import Check


@pytest.mark.parametrize("case", ACCOUNT)
def test_broken_account_is_reported_with_its_place_and_remedy(world: World, case: str) -> None:
    broken = ACCOUNT[case]
    ids = world.ids | broken.make(world)
    world.aws.clear_calls()
    account = Altered(broken.answers) if broken.answers else None
    report = world.checked(broken.overlay, account=account, **ids)
    judge(world.aws, report, broken.found, [words.format(**ids) for words in broken.words])


@pytest.mark.parametrize(
    "check", [each for each in account_world.CHECKS if each.name in RIGHT], ids=lambda check: check.name
)
def test_check_asks_and_is_silent_in_a_right_account(world: World, check: Check) -> None:
    make, overlay = RIGHT[check.name]
    report = world.checked(overlay, checks=(check,), **(world.ids | make(world)))
    assert found(report) == []
    assert report.results[0].status == "passed"


@pytest.mark.parametrize(("check", "code"), shared_codes(account_world.CHECKS))
def test_shared_code_is_reported_by_each_of_its_account_checks(world: World, check: Check, code: str) -> None:
    """Several checks may report one code; each needs a world of its own."""
    for broken in [each for each in ACCOUNT.values() if code in dict(each.found)]:
        if found(world.checked(broken.overlay, checks=(check,), **(world.ids | broken.make(world)))):
            return
    pytest.fail(f"no world in tests/account_worlds/ makes {check.name!r} report {code}")


def test_good_account_has_no_problem_and_nothing_is_written(world: World) -> None:
    world.aws.clear_calls()
    report = world.checked(CHANNELS)
    assert [str(problem) for problem in report.problems] == []
    assert report.not_asked == []
    assert {result.status for result in report.results} == {"passed", "not-needed"}
    silent = {result.check for result in report.results if result.status == "not-needed"}
    assert silent <= RIGHT.keys(), "add a world in which this check asks to RIGHT in tests/account_worlds/"
    assert world.aws.calls("iam:SimulatePrincipalPolicy")
    assert world.aws.writing_calls() == []
    assert ((), "account 123456789012, region us-east-1") in report.notes
