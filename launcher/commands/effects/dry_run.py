"""`--dry-run`: print the request."""

from __future__ import annotations

import sys

import launcher
from launcher.commands.effects.effect import Effect, EffectOptions, GetAccount, say_code
from launcher.commands.options import flag
from launcher.console import say
from launcher.errors import dotted
from launcher.request.text import as_json, as_yaml


class DryRunOptions(EffectOptions):
    """The options of `--dry-run`."""

    dry_run: bool = flag(help="Print the CreateTrainingJob request and do nothing else.")


def _print(plan: launcher.Plan, account: GetAccount, options: DryRunOptions) -> int:
    shown = plan.request if options.show_secrets else plan.masked_request()
    sys.stdout.write(as_json(shown) if options.as_json else as_yaml(shown))
    if plan.masked and not options.show_secrets:
        names = ", ".join(map(dotted, plan.masked))
        say(f"warning: {names}: masked, so this is not the request to send; --show-secrets prints that", "yellow")
    say_code(plan)
    return 0


EFFECT = Effect(
    options=DryRunOptions,
    carry_out=_print,
    flag="dry_run",
    example="job.yaml --dry-run",
    summary="print the request",
)
