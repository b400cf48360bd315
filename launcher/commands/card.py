"""The cards of a command and of an effect, from which click's commands, the README's tables and the tests are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import launcher
from launcher.commands.options import SHOW_SECRETS, OptionalChoice, Options, SpecOptions, flag
from launcher.console import say

if TYPE_CHECKING:
    from launcher.aws.account import Account

# Any command can also end with 1, a bug of ours, with 130 on Ctrl-C, and with 141 if its output is closed.
EXIT_CODES = {
    0: "done",
    1: "a bug in `launch`",
    2: "the spec or the arguments are wrong",
    3: "AWS refused, or a check failed",
    4: "the training failed",
    5: "the job was stopped, or not submitted because you answered no; nothing was created then",
    130: "Ctrl-C, `kill` or a closed terminal",
    141: "the output was closed while it was written, as by `launch list | head -1`",
}
GetAccount = Callable[[], "Account"]  # called only if AWS is asked


class Effect(SpecOptions):
    """One thing to do with a plan: its fields are the options, and an instance does it.

    An option that only other effects have contradicts this one.
    """

    show_secrets: bool = SHOW_SECRETS
    yes: bool = flag(help="Answer yes to every question; a max_cost that is set still counts.")

    chosen_by: str | None = None
    """The field that chooses this effect; None for the one that needs no flag."""
    example: str
    summary: str
    """One line of `launch --help`, after the example."""
    contradictions: tuple[tuple[str, str], ...] = ()
    """Pairs of fields of which only one may be given."""

    def carry_out(self, plan: launcher.Plan, account: GetAccount) -> int:
        """Do it, and return the exit code."""
        raise NotImplementedError

    @classmethod
    def title(cls) -> str:
        """Return the effect as a message names it."""
        return cls.dashed(cls.chosen_by) if cls.chosen_by else "a submission"

    @classmethod
    def dashed(cls, field: str) -> str:
        """Return the option of a field as a user writes it."""
        return cls.declared()[field].as_click(field).opts[0]


def choose(effects: Sequence[type[Effect]], values: Mapping[str, Any]) -> Effect:
    """Return the effect that the values of all options ask for. Raises click.UsageError if they contradict each other."""
    asked = [each for each in effects if each.chosen_by and values[each.chosen_by]]
    if len(asked) > 1:
        raise _exclusive(asked[0].title(), asked[1].title())
    chosen = asked[0] if asked else effects[-1]
    accepted = chosen.declared()
    for name, declared in {name: each for effect in effects for name, each in effect.declared().items()}.items():
        if name not in accepted and values[name] != declared.settings["default"]:
            owners = [each for each in effects if name in each.declared()]
            option, others = owners[0].dashed(name), " or ".join(each.title() for each in owners)
            if not chosen.chosen_by:
                remedy = f"add {owners[0].title()} or leave it out"
            elif all(each.chosen_by for each in owners):
                remedy = f"replace {chosen.title()} by {others}, or leave out {option}"
            else:
                remedy = f"leave out {chosen.title()} or {option}"
            raise click.UsageError(f"{option} works only with {others}; {remedy}")
    for first, second in chosen.contradictions:
        if values[first] and values[second]:
            raise _exclusive(chosen.dashed(first), chosen.dashed(second))
    return chosen(values)


def _exclusive(first: str, second: str) -> click.UsageError:
    return click.UsageError(f"{first} and {second} exclude each other; pass one of them")


def print_code_summary(plan: launcher.Plan) -> None:
    """Report what code the job gets, if it has any."""
    if plan.code is not None and (described := plan.code.described()) is not None:
        say(f"code      {described}")


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
        return _Click(
            name,
            params=[each.as_click(field) for field, each in declared.items()],
            callback=lambda **values: cls(values).run(),
            help="\n\n".join(help_texts),
            short_help=summary,
            epilog=f"Example: launch {cls.example}\n\nExit codes: {codes}.",
        )


class _Click(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for each in self.params:
            if isinstance(each, OptionalChoice):
                args = each.joined(args)
        return super().parse_args(ctx, args)
