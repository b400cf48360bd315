"""`--check`: ask AWS whether the job can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import launcher
from launcher.commands.card import Effect, GetAccount
from launcher.commands.options import flag
from launcher.console import Console, counted, say, show_problems
from launcher.errors import AccountError, RefusedError

if TYPE_CHECKING:
    from launcher.aws.account import Account


class AskingEffect(Effect):
    """An effect that asks AWS whether the job can run."""

    full: bool = flag(help="List every prefix to its end when checking, however long that takes.")

    def ask(self, plan: launcher.Plan, account: Account, console: Console) -> launcher.Report:
        with console.progress("asking AWS whether the job can run", counted=False):
            return launcher.check(plan, account=account, console=console, full=self.full, ignore=self.ignore)

    def stops(self, report: launcher.Report) -> bool:
        """Return whether the job cannot run, or with `--strict` has warnings or questions without an answer."""
        return bool(report.errors) or (self.strict and bool(report.problems or report.not_asked))

    def show(self, report: launcher.Report) -> None:
        """Print what AWS answered. Raises AccountError or RefusedError if that stops the job."""
        for line in report.lines():
            say(line)
        if self.stops(report) and report.problems:
            raise AccountError(report.problems)
        if self.stops(report):
            questions = counted(len(report.not_asked), "question")
            raise RefusedError(
                f"{questions} could not be asked, which --strict does not allow; get the permissions that the lines above"
                " name, or leave out --strict"
            )
        show_problems(report.problems)


class Check(AskingEffect):
    """Ask AWS whether the job can run, and print its answers."""

    chosen_by = "check"
    example = "job.yaml --check"
    summary = "ask AWS whether the job can run, and change nothing"

    check: bool = flag(help="Ask AWS whether the job can run, and change nothing.")

    def carry_out(self, plan: launcher.Plan, account: GetAccount) -> int:
        report = self.ask(plan, account(), Console(as_json=self.as_json))
        if not self.as_json:
            self.show(report)
            return 0
        self.print_json(report.as_data())
        return AccountError.exit_code if self.stops(report) else 0
