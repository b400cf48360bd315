"""`launch status NAME`: what a job is doing, or how it ended."""

from __future__ import annotations

from launcher.commands.card import Command
from launcher.commands.options import JOB_NAME, AccountOptions
from launcher.console import Console
from launcher.jobs.logs.job_logs import last_lines
from launcher.jobs.logs.loop_waits import waits_in
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import Outcome, Statuses


class Status(AccountOptions, Command):
    """Show what a job is doing, or how it ended.

    Show the statuses of the training job NAME, how long each took, and what its training loops wait for; after its end also its
    cost, outputs and failure.
    """

    example = "status digits-1"

    name: str = JOB_NAME

    def run(self) -> int:
        """Show the job; the exit code does not depend on how it ended."""
        account = self.account()
        description = describe(account, self.name)
        lines = tuple(map(account.mask.apply, last_lines(account, self.name)))
        explaining = lines if description["TrainingJobStatus"] == "Failed" else ()
        outcome = Outcome(description, last_lines=explaining, waits=waits_in(lines))
        if self.as_json:
            self.print_json(outcome.as_data())
        else:
            console = Console()
            Statuses(console.say).show(description)
            outcome.show(console)
        return 0
