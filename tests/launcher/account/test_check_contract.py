"""The contract of the account checks: everything that a new check in the table needs.

Each check is a function, a row of the table in launcher/account/__init__.py, and its codes. These tests name what was forgotten.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from types import FunctionType
from typing import Any

import pytest

import account_data
import aws_stand_in
import launcher.account
from account_data import Altered, found, judge, with_data
from account_worlds import ACCOUNT, DATA, GOOD, put_good_data, shared_codes
from launcher.account import CHECKS
from launcher.account.check import Check
from launcher.reference.problem_codes import explanation, ignorable
from launcher.tables import read_table

PATH = launcher.account.__path__
CODES = [(check, code) for check in CHECKS for code in check.codes]


def named(value: Any) -> str:
    return value.name if isinstance(value, Check) else str(value)


def test_every_check_is_in_the_table() -> None:
    modules = [importlib.import_module(f"launcher.account.{each.name}") for each in pkgutil.iter_modules(PATH)]
    functions = [each for module in modules for each in vars(module).values() if isinstance(each, FunctionType)]
    questions = {each.__name__: each for each in functions if (each.__doc__ or "").partition("\n")[0].endswith("?")}
    missing = [name for name, each in questions.items() if each not in [check.find for check in CHECKS]]
    assert missing == [], "add it to CHECKS in launcher/account/__init__.py"


def test_every_row_of_codes_has_a_check() -> None:
    rows = read_table(launcher.account.__file__, "checks").keys() - {check.name for check in CHECKS}
    assert rows == set(), "give it the name of a check in CHECKS of launcher/account/__init__.py"


@pytest.mark.parametrize("check", CHECKS, ids=named)
def test_card_is_complete(check: Check) -> None:
    assert [each.name for each in CHECKS].count(check.name) == 1
    assert check.question.endswith("?"), f"end the question of {check.name!r} with a question mark"
    assert check.codes or check.name == "account", f"add the codes of {check.name!r} to launcher/account/checks.yaml"
    for code, (severity, why) in check.codes.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code)
        assert severity in ("error", "warning")
        assert why.endswith("."), f"end the reason of {code} with a full stop"


@pytest.mark.parametrize(("check", "code"), CODES, ids=named)
def test_code_is_explained_and_can_be_ignored(check: Check, code: str) -> None:
    severity, why = check.codes[code]
    text = explanation(code) or ""
    assert f"{code} ({severity}" in text
    assert why in text
    assert code in ignorable()


@pytest.mark.parametrize(("check", "code"), CODES, ids=named)
def test_code_has_a_world_that_breaks_it_alone(check: Check, code: str) -> None:
    broken = [each for each in (*DATA.values(), *ACCOUNT.values()) if {name for name, _ in each.found} == {code}]
    assert broken, f"no world breaks {code} alone: add one to BROKEN of a file in tests/account_worlds/"


def test_checks_that_share_a_code_agree_on_it() -> None:
    cards = {(code, check.codes[code]) for check, code in CODES}
    assert [code for code, count in Counter(code for code, _ in cards).items() if count > 1] == []


@pytest.mark.parametrize("case", DATA)
def test_broken_data_is_reported_with_its_place_and_remedy(aws: aws_stand_in.StandIn, case: str) -> None:
    broken = DATA[case]
    broken.make(with_data(aws))
    aws.clear_calls()
    judge(aws, account_data.checked(broken.overlay, Altered(broken.answers)), broken.found, broken.words)


@pytest.mark.parametrize("check", account_data.CHECKS, ids=lambda check: check.name)
def test_check_asks_and_is_silent_on_good_data(aws: aws_stand_in.StandIn, check: Check) -> None:
    put_good_data(with_data(aws))
    report = account_data.checked(GOOD, checks=(check,))
    assert found(report) == []
    assert report.results[0].status == "passed", (
        f"add a channel that {check.name!r} asks about to GOOD in tests/account_worlds/"
    )


@pytest.mark.parametrize(("check", "code"), shared_codes(account_data.CHECKS), ids=named)
def test_shared_code_is_reported_by_each_of_its_data_checks(aws: aws_stand_in.StandIn, check: Check, code: str) -> None:
    """Two checks may report one code; each needs a world of its own."""
    for broken in [each for each in DATA.values() if code in dict(each.found)]:
        aws.reset()
        broken.make(with_data(aws))
        if found(account_data.checked(broken.overlay, checks=(check,))):
            return
    pytest.fail(f"no world in tests/account_worlds/ makes {check.name!r} report {code}")
