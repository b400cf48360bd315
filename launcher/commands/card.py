"""Commands as classes whose fields are options, as the commands on lists still are; `options` has the decorators of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from launcher.commands.options import EXIT_CODES, open_account, print_json

if TYPE_CHECKING:
    from launcher.aws.account import Account


class _Declared(NamedTuple):
    """A field of options: what click needs to know of it."""

    kind: type[click.Parameter]
    names: tuple[str, ...]
    settings: dict[str, Any]

    def as_click(self, name: str) -> click.Parameter:
        is_option = issubclass(self.kind, click.Option)
        names = (self.names or (f"--{name.replace('_', '-')}",)) if is_option else ()
        return self.kind([*names, name], **self.settings)


def argument(**settings: Any) -> Any:
    """Declare a field as an argument; `settings` are click's."""
    return _Declared(click.Argument, (), settings)


def option(*names: str, default: Any = None, **settings: Any) -> Any:
    """Declare a field as an option, by default named as the field; `settings` are click's."""
    # click takes any default, also None, as the value of a required option that is missing.
    return _Declared(click.Option, names, settings if settings.get("required") else {**settings, "default": default})


def flag(**settings: Any) -> Any:
    """Declare a field as an option without a value."""
    return option(default=False, is_flag=True, **settings)


def repeatable(*names: str, **settings: Any) -> Any:
    """Declare a field as an option that can be given several times."""
    return option(*names, default=(), multiple=True, **settings)


class AccountOptions:
    """The values of the fields that a class and its bases declare, with the account of the lists in S3."""

    region: str | None = option(metavar="REGION", help="The AWS region, instead of the configured one.")
    profile: str | None = option(metavar="NAME", help="The profile of your AWS configuration.")
    as_json: bool = option("--json", default=False, is_flag=True, help="Print JSON for programs.")
    print_json = staticmethod(print_json)

    def __init__(self, values: Mapping[str, Any]) -> None:
        vars(self).update({name: values[name] for name in self.declared()})

    @classmethod
    def declared(cls) -> dict[str, _Declared]:
        """Return all fields, those of the class before those of its bases."""
        members = [member for each in cls.__mro__ for member in vars(each).items()]
        return {name: value for name, value in members if isinstance(value, _Declared)}

    def account(self) -> Account:
        return open_account(self.region, self.profile)


class Command:
    """One command of `launch`: its docstring is the help, its fields are the options, and an instance is one call."""

    exit_codes: tuple[int, ...] = (0, 2, 3)
    example: str

    def run(self) -> int:
        """Carry the command out, and return its exit code."""
        raise NotImplementedError

    @classmethod
    def as_click(cls, name: str) -> click.Command:
        """Return the command as click knows it."""
        codes = "; ".join(f"{code} {EXIT_CODES[code]}" for code in cls.exit_codes)
        kind: Any = cls
        return click.Command(
            name,
            params=[each.as_click(field) for field, each in kind.declared().items()],
            callback=lambda **values: kind(values).run(),
            help=cls.__doc__,
            epilog=f"Example: launch {cls.example}\n\nExit codes: {codes}.",
        )
