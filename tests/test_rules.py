"""Every rule by its own examples: the wrong one is found at a place that exists, the right one is not."""

from __future__ import annotations

import re

import pytest

from launcher import parse_spec
from launcher.checks import RULES, check_spec
from launcher.checks.examples import BASE, laid_over_base
from launcher.checks.rule import Rule


def found_by(overlay: str) -> dict[str, list[str]]:
    """The codes that an example brings up, each with the places it names."""
    codes: dict[str, list[str]] = {}
    for problem in check_spec(parse_spec(laid_over_base(overlay))):
        assert problem.location is not None
        codes.setdefault(problem.code, []).append(str(problem.location))
    return codes


def test_the_base_is_right() -> None:
    assert check_spec(parse_spec(BASE)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_wrong_example_is_found(rule: Rule) -> None:
    assert rule.code in found_by(rule.wrong)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_right_example_keeps_the_rule(rule: Rule) -> None:
    assert rule.code not in found_by(rule.right)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_right_example_has_no_errors(rule: Rule) -> None:
    problems = check_spec(parse_spec(laid_over_base(rule.right)))
    assert [str(problem) for problem in problems if problem.severity == "error"] == []


def test_codes_are_stable_names() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code) for code in codes)
    assert all(rule.find.__doc__ for rule in RULES)


def test_a_21st_channel_is_one_line() -> None:
    overlay = "channels:\n" + "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(21))
    problems = check_spec(parse_spec(laid_over_base(overlay)))
    assert [problem.code for problem in problems] == ["channels-at-most-20"]
    assert problems[0].path == ("channels", "c20")


def test_connector_channels_do_not_count() -> None:
    overlay = "channels:\n" + "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(20))
    overlay += "  images: {source: S3Connector, s3_uri: s3://bucket/images/}\n"
    assert check_spec(parse_spec(laid_over_base(overlay))) == []
