"""`launch status NAME`: what a job is doing, or how it ended."""

from __future__ import annotations

import sys

from launcher.commands.card import Command
from launcher.commands.options import JOB_NAME, JobOptions
from launcher.console import Console
from launcher.jobs.logs.job_logs import last_lines
from launcher.jobs.logs.loop_waits import waits_in
from launcher.jobs.logs.streams import creation_of
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import Outcome, Statuses


class Status(JobOptions, Command):
    """Show what a job is doing, or how it ended.

    Show the statuses of the training job NAME, how long each took, and what its training loops wait for; after its end also its
    cost, outputs and failure. With --local, NAME is a local run, or latest.
    """

    example = "status digits-1"

    name: str = JOB_NAME

    def run(self) -> int:
        """Show the job; the exit code does not depend on how it ended."""
        if self.is_local(self.name):
            return self._show_local()
        account = self.account()
        description = describe(account, self.name)
        lines = last_lines(account, self.name, creation_of(description))
        explaining = lines if description["TrainingJobStatus"] == "Failed" else ()
        outcome = Outcome(description, last_lines=explaining, waits=waits_in(line.message for line in lines))
        if self.as_json:
            self.print_json(outcome.as_data())
        else:
            console = Console(says_on=sys.stdout)
            Statuses(console.say).show(description)
            outcome.show(console)
        return 0

    def _show_local(self) -> int:
        from launcher.local.report import show
        from launcher.local.runs import local_run

        run, console = local_run(self.name), Console(says_on=sys.stdout)
        name = run["TrainingJobName"]
        result = run.get("Result")
        if self.as_json:
            shown = ("TrainingJobName", "TrainingJobStatus", "SecondaryStatus", "CreationTime", "Folder")
            self.print_json(result or {member: run[member] for member in shown})
        elif result:
            show(result, console)
        else:
            began = f"{run['CreationTime'].astimezone():%Y-%m-%d %H:%M}"
            more = f"`launch logs {name} --local --follow` shows its lines"
            if run["TrainingJobStatus"] != "InProgress":
                more = "its `launch` was killed, so it has no result"
            console.say(f"{name}: {run['TrainingJobStatus']}, began {began}; {more}")
            console.say(f"  folder   {run['Folder']}")
        return 0
