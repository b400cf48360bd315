"""Submit the job and follow it to its end: what a command does with a plan if no flag asks for something else."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import launcher
from launcher.commands.card import GetAccount, print_code_summary
from launcher.commands.effects.check import AskingEffect
from launcher.commands.options import flag, option
from launcher.console import Console, print_line
from launcher.errors import LaunchError, RefusedError

if TYPE_CHECKING:
    from launcher.aws.account import Account


class Submit(AskingEffect):
    """Submit the job, and follow it."""

    example = "job.yaml"
    summary = "submit the job, and follow it on a terminal"
    contradictions = (("full", "no_check"),)

    no_check: bool = flag(help="Submit without checking first.")
    follow: bool | None = option(
        "--follow/--no-follow", help="Show the job's log until its end; the default on a terminal."
    )
    wait: bool = flag(help="Wait for the job's end without showing its log.")

    def carry_out(self, plan: launcher.Plan, account: GetAccount) -> int:
        # With the prices, it takes 10 ms that a dry run need not wait.
        from launcher.commands.effects.agreement import require_agreement
        from launcher.jobs.submission import submit

        console, opened, report = Console(as_json=self.as_json), account(), None
        if not self.no_check:
            report = self.ask(plan, opened, console)
            self.show(report)
        print_code_summary(plan)
        require_agreement(plan, opened.region, console, report, yes=self.yes)
        job = submit(plan, opened, console)
        try:
            return self._after_creation(job, opened, console)
        except BaseException as error:  # the job exists, whatever happens here
            state = f"{job.name} exists and continues; `launch logs {job.name}{opened.options} --follow` follows it"
            with suppress(OSError):
                if not isinstance(error, LaunchError):
                    console.say(state, "yellow")
            raise

    def _after_creation(self, job: launcher.Submitted, account: Account, console: Console) -> int:
        follow_it = f"launch logs {job.name}{account.options} --follow"
        by_default = sys.stdout.isatty() and not self.as_json and not self.wait
        follow = by_default if self.follow is None else self.follow
        done = f"created   {job.name} in {job.region}"
        if job.was_found:
            done = f"found     {job.name} in {job.region}: another submission of the same request created it"
        console.say(done, "green")
        if follow or self.wait:
            from launcher.aws.account import AwsError
            from launcher.jobs.follow import View

            try:
                outcome = launcher.follow(job, account=account, console=console, view=View(logs=bool(follow)))
            except AwsError as error:  # the caller may create the job, but not describe it
                other = f"a user with the permission can run `{follow_it}`"
                if self.wait or self.follow:
                    message = f"{job.name} has been created and continues, but cannot be followed: {error}; {other}"
                    raise RefusedError(message) from None
                console.warn(f"the job cannot be followed: {error}; {other}")
            else:
                if self.as_json:
                    self.print_json(outcome.as_data())
                return outcome.exit_code
        else:
            console.say(f"follow    {follow_it}")
        if self.as_json:
            created = {"TrainingJobName": job.name, "TrainingJobArn": job.arn, "Region": job.region}
            self.print_json({**created, "Created": not job.was_found})
        else:
            print_line(job.name)
        return 0
