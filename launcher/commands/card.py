"""The card of a command, from which click's command, the README's table and the tests are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from launcher.commands.effects.effect import Effect, choose
from launcher.commands.options import Options

# Any command can also end with 1, a bug of ours, with 130 on Ctrl-C, and with 141 if its output is closed.
EXIT_CODES = {
    0: "done",
    1: "a bug in `launch`",
    2: "the spec or the arguments are wrong",
    3: "AWS refused, or a check in the account failed",
    4: "the training failed",
    5: "the job was stopped, or not submitted because you answered no; nothing was created then",
    130: "Ctrl-C",
    141: "the output was closed while it was written, as by `launch list | head -1`",
}


class Command(NamedTuple):
    """One command of `launch`."""

    options: type[Options]
    run: Callable[..., int]
    """Gets the options, and the effect that a user chose if there are `effects`; returns the exit code."""
    summary: str
    """One line of `launch --help`."""
    help: str
    exit_codes: tuple[int, ...]
    """Those that it ends with, besides 1, 130 and 141."""
    example: str
    """Arguments that follow `launch`. A test runs them in an account that has the job digits-1, beside a job.yaml."""
    effects: Sequence[Effect] = ()
    """Those of which a user can choose one; they add their options to the command's."""
    without_json: str = ""
    """Why it has no --json."""

    def as_click(self, name: str) -> click.Command:
        """Return the command as click knows it."""
        declared = self.options.declared()
        for effect in self.effects:
            declared = {**declared, **effect.options.declared()}

        def callback(**values: Any) -> int:
            chosen = (choose(self.effects, values),) if self.effects else ()
            return self.run(self.options(values), *chosen)

        codes = "; ".join(f"{code} {EXIT_CODES[code]}" for code in self.exit_codes)
        return click.Command(
            name,
            params=[each.as_click(field) for field, each in declared.items()],
            callback=callback,
            help=self.help,
            short_help=self.summary,
            epilog=f"Example: launch {self.example}\n\nExit codes: {codes}.",
        )
