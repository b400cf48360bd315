"""The card of an effect, and the choice of one by the options that a user passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import launcher
from launcher.commands.options import SHOW_SECRETS, SpecOptions, flag
from launcher.console import say

if TYPE_CHECKING:
    from launcher.aws.account import Account

GetAccount = Callable[[], "Account"]  # called only if AWS is asked


class Effect(SpecOptions):
    """One thing to do with a plan: its fields are the options, and an instance does it.

    An option that only other effects have contradicts this one.
    """

    show_secrets: bool = SHOW_SECRETS
    yes: bool = flag(help="Answer yes to every question, whatever the job may cost.")

    chosen_by: str | None = None
    """The field that chooses this effect; None for the one that needs no flag."""
    example: str
    summary: str
    """One line of `launch --help`, behind the example."""
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
    for name, declared in {name: each for effect in effects for name, each in effect.declared().items()}.items():
        if name not in chosen.declared() and values[name] != declared.settings["default"]:
            owners = [each for each in effects if name in each.declared()]
            option, others = owners[0].dashed(name), " or ".join(each.title() for each in owners)
            remedy = (
                f"leave out {chosen.title()} or {option}"
                if chosen.chosen_by
                else f"add {owners[0].title()} or leave it out"
            )
            if chosen.chosen_by and all(each.chosen_by for each in owners):
                remedy = f"replace {chosen.title()} by {others}, or leave out {option}"
            raise click.UsageError(f"{option} works only with {others}; {remedy}")
    for first, second in chosen.contradictions:
        if values[first] and values[second]:
            raise _exclusive(chosen.dashed(first), chosen.dashed(second))
    return chosen(values)


def _exclusive(first: str, second: str) -> click.UsageError:
    return click.UsageError(f"{first} and {second} exclude each other; pass one of them")


def say_code(plan: launcher.Plan) -> None:
    """Report what code the job gets, if it has any."""
    if plan.code is not None and (described := plan.code.described()) is not None:
        say(f"code      {described}")
