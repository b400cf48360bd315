"""`launch SPEC`: plan a spec, and print the request, ask AWS about it, or submit it and follow the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import launcher
from launcher import bundled
from launcher.commands import options, sweep
from launcher.commands.agreement import require_agreement, show_excess
from launcher.commands.ending import after_end, on_end_option
from launcher.console import Console, counted, print_line, say, show_problems
from launcher.errors import INTERRUPTED, AccountError, LaunchError, RefusedError, dotted
from launcher.parsing.layers import Assignment
from launcher.parsing.team_files import values_below
from launcher.request.serialization import as_json as request_as_json
from launcher.request.serialization import as_yaml
from launcher.spec.model import value_at
from launcher.spec.team import OUTPUT

if TYPE_CHECKING:
    from launcher.aws.session import Account
    from launcher.jobs.follow import View
    from launcher.sweeps import Member

_FOLLOWED = ("stop_on_exit", "on_end")


class Submission(NamedTuple):
    """What is done with a plan: it is printed, checked, or submitted and followed."""

    dry_run: bool
    show_secrets: bool
    check: bool
    full: bool
    no_check: bool
    follow: bool | None
    wait: bool
    stop_on_exit: bool
    on_end: str | None
    yes: bool
    as_json: bool

    @property
    def shows_log(self) -> bool:
        """Whether the job's log is followed, which is the default on a terminal."""
        by_default = sys.stdout.isatty() and not self.as_json and not self.wait
        return by_default if self.follow is None else self.follow


def _submission(**values: Any) -> Submission:
    options.refuse_together("axes", "follow", *_FOLLOWED)
    options.refuse_together("dry_run", "check", "full", "no_check", "follow", "wait", *_FOLLOWED)
    options.refuse_together("check", "no_check", "follow", "wait", *_FOLLOWED)
    options.refuse_together("full", "no_check")
    doing = Submission(**values)
    if (found := options.given(*_FOLLOWED)) and not (doing.shows_log or doing.wait):
        raise click.UsageError(f"{found[0]} works only if the job is followed; add --wait or --follow")
    return doing


submit_options = options.group(
    "doing",
    options.flag("--dry-run", help="Print the CreateTrainingJob request and do nothing else."),
    options.secrets_option,
    options.flag("--check", help="Ask AWS whether the job can run, and change nothing."),
    options.flag("--full", help="List every prefix to its end when checking, however long that takes."),
    options.flag("--no-check", help="Submit without checking first."),
    click.option(
        "--follow/--no-follow", default=None, help="Show the job's log until its end; the default on a terminal."
    ),
    options.flag("--wait", help="Wait for the job's end without showing its log."),
    options.flag(
        "--stop-on-exit",
        help="Stop the followed job if `launch` ends before it, by Ctrl-C, SIGTERM or a closed terminal.",
    ),
    on_end_option,
    options.flag("--yes", help="Answer yes to every question; a max_cost that is set still counts."),
    options.json_option,
    kind=_submission,
)


@options.command("submit", "job.yaml --dry-run", exit_codes=(0, 2, 3, 4, 5))
@options.spec_argument
@options.name_option
@options.flag("--local", expose_value=False, help="Run the job on this machine, with the options of `launch local`.")
@options.queue_option
@sweep.matrix_options
@options.spec_options
@submit_options
def submit(
    spec: str,
    name: str | None,
    queue: str | None,
    matrix: SimpleNamespace,
    reading: options.SpecOptions,
    doing: Submission,
) -> int:
    """Submit a job, or print its request, or check it.

    SPEC is a YAML file, or - for standard input. The word `submit` can be omitted: `launch job.yaml`. With --local, `launch
    local` runs the job on this machine. With --matrix, a job is submitted for each combination of values, named by them, and
    followed to its end.
    """
    reading = reading.in_queue(queue)
    if matrix.axes:
        return _sweep(sweep.members(spec, name, reading, matrix.axes), reading, matrix, doing)
    if matrix.max_parallel:
        raise click.UsageError("--max-parallel works only with --matrix; add --matrix or leave it out")
    return carry_out(reading.plan(spec, name), reading, doing)


def carry_out(
    plan: launcher.Plan, reading: options.SpecOptions, doing: Submission, account: Callable[[], Account] | None = None
) -> int:
    """Print, check or submit the plan, by default in the account of its spec, and return the exit code."""
    if doing.dry_run:
        show_excess([plan])  # before the request, since its errors may be JSON, too
        return _print_request(plan, doing)
    console, report = Console(as_json=doing.as_json), None
    opened = account() if account else options.open_account(plan.spec.region, plan.spec.profile)
    if not doing.no_check:
        with console.progress("asking AWS whether the job can run", counted=False):
            report = launcher.check(plan, account=opened, console=console, full=doing.full, ignore=reading.ignore)
    if report and doing.check and doing.as_json:
        options.print_json(report.as_data())
        return AccountError.exit_code if _stops(report, reading) else 0
    if report:
        _show(report, reading)
    return 0 if doing.check else _submit(plan, opened, console, report, doing)


def own_output(command: str, uri: str) -> list[Assignment]:
    """Return the output path of a command's bundled job, in place of the example's, unless the team's files give one."""
    below, _ = values_below(str(bundled.spec_path(command)), os.environ)
    return [Assignment(dotted(OUTPUT), uri, f"launch {command}")] if value_at(below, OUTPUT) is None else []


def show_code(plan: launcher.Plan) -> None:
    if plan.code is not None and (described := plan.code.described()) is not None:
        say(f"code      {described}")


def _sweep(jobs: Sequence[Member], reading: options.SpecOptions, matrix: SimpleNamespace, doing: Submission) -> int:
    """Print, check or submit the jobs of a sweep, and return the exit code of the worst."""
    if doing.dry_run:
        show_excess([member.plan for member in jobs])
        for number, member in enumerate(jobs):
            print_line(("," if number else "[") if doing.as_json else "---")
            _print_request(member.plan, doing)
        if doing.as_json:
            print_line("]")
        return 0
    account = options.open_account(jobs[0].plan.spec.region, jobs[0].plan.spec.profile)
    reports = [] if doing.no_check else sweep.check_new(jobs, account, reading, full=doing.full)
    if doing.check and doing.as_json:
        options.print_json([each.as_data() for each in reports])
        return AccountError.exit_code if any(_stops(each, reading) for each in reports) else 0
    for report in reports:
        _show(report, reading)
    if doing.check:
        return 0
    from launcher.sweeps import run_there

    console = Console(as_json=doing.as_json)
    ended = run_there(jobs, account, console, matrix.max_parallel, agree="--yes", agreed=doing.yes)
    return sweep.show(jobs, ended, as_json=doing.as_json)


def _print_request(plan: launcher.Plan, doing: Submission) -> int:
    shown = plan.request if doing.show_secrets else plan.masked_request()
    if plan.spec.queue is not None:
        from launcher.jobs.batch_queue import submission_request

        shown = submission_request(shown, plan.spec.queue)
        say("its serviceRequestPayload is the CreateTrainingJob request, which --set queue=null shows alone")
    print_line((request_as_json(shown) if doing.as_json else as_yaml(shown)).removesuffix("\n"))
    if plan.masked and not doing.show_secrets:
        names = ", ".join(map(dotted, plan.masked))
        say(f"warning: {names}: masked, so this is not the request to send; --show-secrets prints that", "yellow")
    show_code(plan)
    return 0


def _stops(report: launcher.Report, reading: options.SpecOptions) -> bool:
    """Return whether the job cannot run, or with `--strict` has warnings or questions without an answer."""
    return bool(report.errors) or (reading.strict and bool(report.problems or report.not_asked))


def _show(report: launcher.Report, reading: options.SpecOptions) -> None:
    """Print what AWS answered. Raises AccountError or RefusedError if that stops the job."""
    for line in report.lines():
        say(line)
    if _stops(report, reading) and report.problems:
        raise AccountError(report.problems)
    if _stops(report, reading):
        raise RefusedError(
            f"{counted(len(report.not_asked), 'question')} could not be asked, which --strict does not allow; get the"
            " permissions that the lines above name, or leave out --strict"
        )
    show_problems(report.problems)


def _submit(
    plan: launcher.Plan, account: Account, console: Console, report: launcher.Report | None, doing: Submission
) -> int:
    from launcher.jobs.submission import submit

    show_code(plan)
    require_agreement(plan, account.region, console, report, yes=doing.yes)
    if doing.stop_on_exit:
        return _submit_and_stop(plan, account, console, doing)
    job = submit(plan, account, console)
    try:
        return _after_creation(job, account, console, doing)
    except BaseException as error:  # the job exists, whatever happens here
        state = f"{job.name} exists and continues; `launch logs {job.name}{account.options} --follow` follows it"
        with suppress(OSError):
            if not isinstance(error, LaunchError):
                console.say(state, "yellow")
        raise


def _submit_and_stop(plan: launcher.Plan, account: Account, console: Console, doing: Submission) -> int:
    """Submit and follow the job, and stop it if a signal ends that."""
    from launcher.jobs.follow import View
    from launcher.jobs.lookup import stop
    from launcher.jobs.submission import submit
    from launcher.local.watch import stop_signals

    with stop_signals() as stops:

        def hold() -> None:
            stops.held = True

        def stop_job() -> None:
            hold()
            try:
                console.say(stop(account, job.name)[1], "yellow")
            except RefusedError as error:
                raise RefusedError(f"{job.name} continues, since it cannot be stopped: {error}") from None

        # A signal while the job is created would leave one that is not known here.
        job = submit(plan, account, console, on_uploaded=hold)
        try:
            # Python 3.10 can lose what a signal's handler raises in a `try` statement, so the signals are looked for, too.
            view = View(logs=doing.shows_log, stop=stop_job, on_round=stops.release)
            return _after_creation(job, account, console, doing, view)
        except KeyboardInterrupt:
            stop_job()
            return INTERRUPTED


def _after_creation(
    job: launcher.Submitted, account: Account, console: Console, doing: Submission, view: View | None = None
) -> int:
    """Report that the job exists, and follow it if that is wanted."""
    place = f"{queue}, {job.region}" if (queue := job.queue) else job.region
    done = f"{'queued ' if queue else 'created'}   {job.name} in {place}"
    if job.was_found:
        done = f"found     {job.name} in {place}: another submission of the same request created it"
    console.say(done, "green")
    if doing.shows_log or doing.wait:
        from launcher.jobs.follow import View

        view = view or View(logs=doing.shows_log)
        outcome = launcher.follow(job, account=account, console=console, view=view)
        if doing.as_json:
            options.print_json(outcome.as_data())
        after_end(outcome, console, doing.on_end)
        return outcome.exit_code
    console.say(f"follow    launch logs {job.name}{account.options} --follow")
    if doing.as_json:
        arn = "ServiceJobArn" if queue else "TrainingJobArn"
        created = {"TrainingJobName": job.name, arn: job.arn, "Region": job.region}
        options.print_json({**created, "Created": not job.was_found})
    else:
        print_line(job.name)
    return 0
