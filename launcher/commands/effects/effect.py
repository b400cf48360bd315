"""The card of an effect, and the choice of one by the options that a user passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import launcher
from launcher.commands.options import SpecOptions, flag, show_secrets
from launcher.console import say

if TYPE_CHECKING:
    from launcher.aws.account import Account

GetAccount = Callable[[], "Account"]  # called only if AWS is asked
CarryOut = Callable[["launcher.Plan", GetAccount], int]  # returns the exit code


class EffectOptions(SpecOptions):
    """The options that every effect accepts."""

    show_secrets: bool = show_secrets()
    yes: bool = flag(help="Answer yes to every question, whatever the job may cost.")


class Effect(NamedTuple):
    """One thing to do with a plan.

    An option that only other effects have contradicts this one.
    """

    options: type[EffectOptions]
    carry_out: Callable[..., int]
    """Gets the plan, a function that opens the account, and `options`; returns the exit code."""
    flag: str | None
    """The field of `options` that chooses this effect; None for the one that needs no flag."""
    example: str
    summary: str
    """One line of `launch --help`, behind the example."""
    contradictions: tuple[tuple[str, str], ...] = ()
    """Pairs of fields of which only one may be given."""

    def __str__(self) -> str:
        return self.dashed(self.flag) if self.flag else "a submission"

    def dashed(self, field: str) -> str:
        """Return the option of a field as a user writes it."""
        return self.options.declared()[field].as_click(field).opts[0]


def choose(effects: Sequence[Effect], values: Mapping[str, Any]) -> CarryOut:
    """Return the effect that the values of all options ask for. Raises click.UsageError if they contradict each other."""
    asked = [each for each in effects if each.flag and values[each.flag]]
    if len(asked) > 1:
        raise click.UsageError(f"{asked[0]} and {asked[1]} exclude each other; pass one of them")
    chosen = asked[0] if asked else effects[-1]
    accepted = chosen.options.declared()
    for effect in effects:
        for name, declared in effect.options.declared().items():
            if name not in accepted and values[name] != declared.settings["default"]:
                owners = [each for each in effects if name in each.options.declared()]
                option, others = effect.dashed(name), " or ".join(map(str, owners))
                remedy = f"leave out {chosen} or {option}" if chosen.flag else f"add {effect} or leave it out"
                if chosen.flag and all(each.flag for each in owners):
                    remedy = f"replace {chosen} by {others}, or leave out {option}"
                raise click.UsageError(f"{option} works only with {others}; {remedy}")
    for first, second in chosen.contradictions:
        if values[first] and values[second]:
            raise click.UsageError(
                f"{chosen.dashed(first)} and {chosen.dashed(second)} exclude each other; pass one of them"
            )
    return partial(chosen.carry_out, options=chosen.options(values))


def say_code(plan: launcher.Plan) -> None:
    """Report what code the job gets, if it has any."""
    if plan.code is not None and (described := plan.code.described()) is not None:
        say(f"code      {described}")
