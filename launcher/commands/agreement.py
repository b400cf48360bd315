"""The question before a submission: what the job would do and cost, if that needs the user's agreement."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence

import click

import launcher
from launcher.code.git import commit_of
from launcher.console import Console, duration, say
from launcher.cost.estimate import estimate, why_not
from launcher.cost.limit import attempts_of, limit_of, objection, refuse_above_limit, refuse_above_locked
from launcher.cost.show import cost_in_one_line, limit, machines
from launcher.errors import StoppedError
from launcher.request.image_uris import image_region
from sagemaker_channels import contract

_MOST_CHANNELS = 4  # that the question lists by name


def require_agreement(
    plan: launcher.Plan, region: str, console: Console, report: launcher.Report | None, *, yes: bool = False
) -> None:
    """Show what the job can cost. On a terminal and without `yes`, ask if that exceeds `max_cost`, or if there are warnings.

    Raises RefusedError if no question is asked and the job may cost more than `max_cost`, with `yes` than one that the user has
    set; StoppedError if the answer is no; and KeyboardInterrupt if there is none.
    """
    refuse_above_locked(plan, region)
    lines, asks = list(_lines(plan, region, report)), sys.stdin.isatty() and not yes
    reason = objection(plan.request, region, limit_of(plan.spec), attempts_of(plan.spec)) if asks else None
    is_doubtful = bool(plan.warnings or (report and report.problems))
    if not asks or not (reason or is_doubtful):
        console.say(lines[-1])
        if not asks:
            refuse_above_limit(plan, region, agree="--yes", agreed=yes)
        return
    for line in lines:
        console.say(line)
    if reason:
        console.say(f"this needs your agreement: {reason}", "yellow")
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # ignore keys pressed during the checks
    try:
        answer = click.confirm("Submit it?" if reason else "Submit anyway?", err=True)
    except click.Abort:
        raise KeyboardInterrupt("interrupted; nothing was created") from None
    if not answer:
        raise StoppedError("not submitted; nothing was created")


def show_excess(plans: Sequence[launcher.Plan]) -> None:
    """Print that so many jobs may cost more than a limit that the user has set. Raises SpecError if the team has locked it."""
    reasons = dict[str, None]()
    for plan in plans:
        region, most, runs = known_region(plan), limit_of(plan.spec), len(plans) * attempts_of(plan.spec)
        refuse_above_locked(plan, region, runs)
        if most.source and (reason := objection(plan.request, region, most, runs)):
            reasons[reason] = None
    for reason in reasons:
        say(f"warning: {reason}, so it is not submitted unless you agree", "yellow")


def known_region(plan: launcher.Plan) -> str | None:
    """Return the region if it is known without boto3; an ECR image is stored in the region of its job."""
    image = plan.request.get("AlgorithmSpecification", {}).get("TrainingImage", "")
    configured = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return plan.spec.region or configured or image_region(image)


def _lines(plan: launcher.Plan, region: str, report: launcher.Report | None) -> Iterator[str]:
    """Yield what runs, where, on which data, for how long at most, and at what price."""
    spec, request = plan.spec, plan.request
    algorithm = request.get("AlgorithmSpecification", {})
    image = algorithm.get("TrainingImage") or algorithm.get("AlgorithmName") or "a container that SageMaker chooses"
    words = [*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ())]
    program = spec.code.program if spec.code else textwrap.shorten(" ".join(words), 80, placeholder=" ...")
    commit = f" ({commit})" if (commit := commit_of(request.get("Tags"))) else ""
    yield f"runs      {f'{program}{commit} in ' if program else ''}{image}"
    found, notes = estimate(request, region), report.notes if report else ()
    where = next((text for path, text in notes if not path), f"region {region}")
    yield f"on        {f'{machines(found)}; ' if found else ''}{where}"
    sizes = {path[1]: f" ({text})" for path, text in notes if path[:1] == ("channels",)}
    data = [
        f"{name}: {channel.described(spec.training_input_mode)}{sizes.get(name, '')}"
        for name, channel in spec.all_channels.items()
        if name != contract.CODE_CHANNEL
    ]
    rest = [f"{len(data) - _MOST_CHANNELS} more"] if len(data) > _MOST_CHANNELS else []
    yield f"data      {'; '.join([*data[:_MOST_CHANNELS], *rest]) or 'none'}"
    warm = f", then kept warm for {duration(found.keep_alive_seconds)}" if found and found.keep_alive_seconds else ""
    yield f"time      {f'at most {limit(found)}{warm}' if found else 'as the spec says'}"
    yield f"cost      {cost_in_one_line(found) if found else f'unknown: {why_not(request)}'}"
