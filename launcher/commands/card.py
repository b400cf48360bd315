"""The card of a command, from which click's command, the README's table and the tests are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


class Command(Options):
    """One command of `launch`: its docstring is the help, its fields are the options, and an instance is one call.

    The docstring's first line is shown by `launch --help`, the rest by the command's own `--help`.
    """

    exit_codes: tuple[int, ...] = (0, 2, 3)
    """Those that it ends with, besides 1, 130 and 141."""
    example: str
    """Arguments that follow `launch`. A test runs them in an account that has the job digits-1, beside a job.yaml."""
    effects: Sequence[type[Effect]] = ()
    """Those of which a user can choose one; they add their options to the command's."""
    effect: Effect
    """The chosen one, if there are `effects`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        if self.effects:
            vars(self)["effect"] = choose(self.effects, values)

    def run(self) -> int:
        """Carry the command out, and return its exit code."""
        raise NotImplementedError

    @classmethod
    def texts(cls) -> list[str]:
        """Return the paragraphs of the docstring: the summary, then the help."""
        return [" ".join(paragraph.split()) for paragraph in str(cls.__doc__).split("\n\n")]

    @classmethod
    def as_click(cls, name: str) -> click.Command:
        """Return the command as click knows it."""
        declared = cls.declared()
        for effect in cls.effects:
            declared |= effect.declared()
        summary, *help_texts = cls.texts()
        codes = "; ".join(f"{code} {EXIT_CODES[code]}" for code in cls.exit_codes)
        return click.Command(
            name,
            params=[each.as_click(field) for field, each in declared.items()],
            callback=lambda **values: cls(values).run(),
            help="\n\n".join(help_texts),
            short_help=summary,
            epilog=f"Example: launch {cls.example}\n\nExit codes: {codes}.",
        )
