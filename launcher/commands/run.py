"""`launch SPEC`: plan a spec, and carry out one effect with it."""

from __future__ import annotations

import click

import launcher
from launcher.commands.card import Command
from launcher.commands.effects import EFFECTS
from launcher.commands.effects.effect import CarryOut
from launcher.commands.options import SpecOptions, argument, open_account, option
from launcher.console import show_problem


class RunOptions(SpecOptions):
    """The options of `launch SPEC`, besides those of its effect."""

    spec: str = argument(type=click.Path(dir_okay=False, allow_dash=True))
    name: str | None = option(help="The job's full name, instead of the spec's.")


def run(options: RunOptions, effect: CarryOut) -> int:
    """Plan the spec, then show it, check it, run it locally or submit it.

    Args:
        options: The spec's path, and what changes or overrides it.
        effect: What to do with the plan.

    Returns:
        The exit code.
    """
    loaded = launcher.load(options.spec, sets=options.sets)
    plan = launcher.plan(loaded, name=options.name, ignore=options.ignore, strict=options.strict)
    for warning in plan.warnings:
        show_problem(warning)
    return effect(plan, lambda: open_account(plan.spec.region, plan.spec.profile))


COMMAND = Command(
    options=RunOptions,
    run=run,
    summary="Plan a spec, and show it, run it here or submit it (you can omit `run`).",
    help="Plan SPEC, a YAML file or - for standard input, and submit it, or only show, check or locally run it.",
    exit_codes=(0, 2, 3, 4, 5),
    effects=EFFECTS,
    example="job.yaml --dry-run",
)
