"""`--check`: ask AWS whether the job can run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

import launcher
from launcher.commands.effects.effect import Effect, EffectOptions, GetAccount
from launcher.commands.options import flag
from launcher.console import Console, say, show_problem
from launcher.errors import AccountError

if TYPE_CHECKING:
    from launcher.aws.account import Account


class AskingOptions(EffectOptions):
    """How AWS is asked."""

    full: bool = flag(help="List every prefix to its end when checking, however long that takes.")


class CheckOptions(AskingOptions):
    """The options of `--check`."""

    check: bool = flag(help="Ask AWS whether the job can run, and change nothing.")


def ask(plan: launcher.Plan, account: Account, console: Console, options: AskingOptions) -> launcher.Report:
    """Ask AWS whether the job can run."""
    with console.progress("asking AWS whether the job can run", counted=False):
        return launcher.check(plan, account=account, console=console, full=options.full, ignore=options.ignore)


def show(report: launcher.Report, *, strict: bool) -> None:
    """Print what AWS answered. Raises AccountError if the job cannot run, or with `strict` if there are warnings."""
    for line in report.lines():
        say(line)
    if stops(report, strict=strict):
        raise AccountError(report.problems)
    for problem in report.problems:
        show_problem(problem)


def stops(report: launcher.Report, *, strict: bool) -> bool:
    """Whether the job cannot run, or with `strict` has warnings."""
    return any(each.severity == "error" or strict for each in report.problems)


def _check(plan: launcher.Plan, account: GetAccount, options: CheckOptions) -> int:
    report = ask(plan, account(), Console(as_json=options.as_json), options)
    if not options.as_json:
        show(report, strict=options.strict)
        return 0
    click.echo(json.dumps(report.as_data(), indent=2))
    return AccountError.exit_code if stops(report, strict=options.strict) else 0


EFFECT = Effect(
    options=CheckOptions,
    carry_out=_check,
    flag="check",
    example="job.yaml --check",
    summary="ask AWS whether the job can run, and change nothing",
)
