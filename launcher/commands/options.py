"""Options that several commands share, so that each means the same everywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import click

from launcher.commands.completion import ignorable_codes, one_of

if TYPE_CHECKING:
    from launcher.aws.account import Account

_Function = TypeVar("_Function", bound=Callable[..., Any])

_JSON = click.option("--json", "as_json", is_flag=True, help="Print for machines, as JSON.")
_SPEC = (
    click.option(
        "--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set a key of the spec. Can be given again."
    ),
    click.option(
        "--ignore",
        multiple=True,
        metavar="CODE",
        shell_complete=one_of(ignorable_codes),
        help="Say nothing of warnings with this code. Can be given again.",
    ),
    click.option("--strict", is_flag=True, help="Stop at warnings, too."),
)
_ACCOUNT = (
    click.option("--region", metavar="REGION", help="The AWS region, in place of the configured one."),
    click.option("--profile", metavar="NAME", help="The profile of the AWS configuration."),
)


def json_option(function: _Function) -> _Function:
    """`--json`, given as `as_json`."""
    return _JSON(function)


def spec_options(function: _Function) -> _Function:
    """`--set`, `--ignore`, `--strict`: how a spec is read; given as `sets`, `ignore`, `strict`."""
    return _all(function, _SPEC)


def account_options(function: _Function) -> _Function:
    """`--region`, `--profile`: which account is asked of a job that exists."""
    return _all(function, _ACCOUNT)


def open_account(region: str | None, profile: str | None) -> Account:
    """The account; on a terminal, a person is asked for new credentials when the old have expired."""
    from launcher.aws.account import Account

    return Account(region=region, profile=profile, on_expired=_ask_for_credentials if sys.stdin.isatty() else None)


def _ask_for_credentials(reason: str) -> bool:
    click.secho(reason, fg="yellow", err=True)
    return click.confirm("The AWS credentials have expired. Renew them elsewhere (`aws sso login`); go on?", err=True)


def _all(function: _Function, options: tuple[Callable[[Any], Any], ...]) -> _Function:
    for option in reversed(options):
        function = option(function)
    return function


def moment_of(age: str) -> datetime:
    """The moment so long ago: `10m`, `12h`, `7d`. Raises click.BadParameter for anything else."""
    found = re.fullmatch(r"(?P<count>\d+)(?P<unit>[smhdw])", age.strip())
    if found is None:
        raise click.BadParameter(f"{age!r} is no time; write such as 90s, 10m, 12h, 7d or 2w")
    unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[found["unit"]]
    try:
        return datetime.now(timezone.utc) - timedelta(**{unit: int(found["count"])})
    except OverflowError:
        raise click.BadParameter(f"{age!r} is longer ago than there are dates") from None
