"""Options of commands as frozen objects: each field declares its click parameter, and commands inherit shared ones.

Completing a value prints nothing and never fails: if AWS does not answer, nothing is offered.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import launcher
from launcher.console import print_line, say, show_problems
from launcher.errors import LaunchError, did_you_mean
from launcher.quantities import A_DURATION, seconds_of

if TYPE_CHECKING:
    from launcher.aws.account import Account

MAX_COMPLETION_SECONDS = 3.0  # that a user waits for the names of jobs
_Completion = Callable[[click.Context, click.Parameter, str], list[str]]


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


def optional_choice(choices: Sequence[str], *, without: str, **settings: Any) -> Any:
    """Declare a field as an option with one of the choices as its value, or `without` if it is given alone."""
    return _Declared(OptionalChoice, (), {"choices": choices, "without": without, "default": None, **settings})


def flag(**settings: Any) -> Any:
    """Declare a field as an option without a value."""
    return option(default=False, is_flag=True, **settings)


class OptionalChoice(click.Option):
    """An option with an optional value: the next word is its value only if it is one of the choices.

    click would take any next word, such as the spec's path. `joined` makes the arguments clear to it.
    """

    def __init__(self, names: Sequence[str], *, choices: Sequence[str], without: str, **settings: Any) -> None:
        settings["type"] = click.Choice([without, *choices])
        super().__init__(names, metavar=f"[{'|'.join(choices)}]", **settings)
        self.choices, self.without = choices, without

    def joined(self, words: Sequence[str]) -> list[str]:
        """Return the arguments with this option and its value in one word."""
        found: list[str] = []
        for word in words:
            if found and found[-1] in self.opts:
                is_clear = word in self.choices or "." in word  # a spec has a suffix
                if suggested := "" if is_clear else did_you_mean(word, self.choices):
                    message = f"{found[-1]} {word}: expected {', '.join(self.choices)} or no value{suggested}"
                    raise click.UsageError(message, click.get_current_context())
                found[-1] += f"={word if word in self.choices else self.without}"
                if word in self.choices:
                    continue
            found.append(word)
        if found and found[-1] in self.opts:
            found[-1] += f"={self.without}"
        return found


def repeatable(*names: str, **settings: Any) -> Any:
    """Declare a field as an option that can be given several times."""
    return option(*names, default=(), multiple=True, **settings)


def one_of(names: str) -> _Completion:
    """Return a completion that offers the names that begin with the typed text.

    `names` is the function that lists them, `module:function`. It is imported when it is called.
    """

    def offer(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        from pkgutil import resolve_name

        return [name for name in dict.fromkeys(resolve_name(names)()) if name.startswith(typed)]

    return offer


def job_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Offer the latest training jobs of the account, after `stop` only running ones, if AWS answers in time."""
    from concurrent.futures import TimeoutError as TooLate

    from launcher.aws.account import Account
    from launcher.aws.threads import start
    from launcher.jobs.lookup import jobs
    from launcher.local.runs import run_names

    if context.params.get("local"):
        return [name for name in run_names() if name.startswith(typed)]
    status = "InProgress" if context.command.name == "stop" else None

    def ask() -> list[str]:
        account = Account(region=context.params.get("region"), profile=context.params.get("profile"))
        found = jobs(account, 100, StatusEquals=status, NameContains=typed or None)
        return [name for each in found if (name := each["TrainingJobName"]).startswith(typed)]

    try:
        return start(ask).result(timeout=MAX_COMPLETION_SECONDS)
    except (TooLate, LaunchError):
        return []


class _PlotFile(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from launcher.plot import check_plot

        file = Path(os.fsdecode(super().convert(value, param, ctx)))
        check_plot(file)
        return file


def plot_file(what: str) -> Any:
    """Declare a field as the file to draw `what` into; it is refused if nothing can be drawn there."""
    return option(type=_PlotFile(dir_okay=False), metavar="FILE", help=f"{what} into a .png or .svg file.")


class _SpecPath(click.Path):
    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "Write a spec's path, such as job.yaml; `launch --example s3-file` prints a spec to start from."


class SpecOrUri(click.types.StringParamType):
    """A spec's path, s3://bucket/prefix, or a folder of this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty folder."""
        if is_folder(value) and next((each for each in Path(value).rglob("*") if each.is_file()), None) is None:
            self.fail(f"{value!r} holds no files; name the folder that holds the data", param, ctx)
        return super().convert(value, param, ctx)


def is_folder(value: str) -> bool:
    """Return whether an argument names a folder of this machine."""
    return os.path.isdir(value)  # noqa: PTH112 (Path's raises an error if the name is too long)


class LocalPath(click.Path):
    """A path that the command writes to."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what click would take for a folder named `s3:` or a file named `-`."""
        if str(value).startswith("s3://") or str(value) == "-":
            remedy = "write to one, and copy or print it from there"
            self.fail(f"{value!r} is not a path on this machine; {remedy}", param, ctx)
        return super().convert(value, param, ctx)


class _JobName(click.types.StringParamType):
    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "Write a training job's name; `launch list` shows the names."


SPEC = argument(type=_SpecPath(dir_okay=False, allow_dash=True))
JOB_NAME = argument(type=_JobName(), shell_complete=job_names)
SHOW_SECRETS = flag(help="Show the values of ${NAME} and other masked settings.")


class Options:
    """The values of the fields that a class and its bases declare, frozen.

    Not a dataclass, because making a dozen of those takes 4 ms of every command.
    """

    as_json: bool = option("--json", default=False, is_flag=True, help="Print JSON for programs.")

    @staticmethod
    def print_json(data: Any) -> None:
        """Print a result for programs."""
        print_line(json.dumps(data, indent=2, default=str))

    def __init__(self, values: Mapping[str, Any]) -> None:
        vars(self).update({name: values[name] for name in self.declared()})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen")

    @classmethod
    def declared(cls) -> dict[str, _Declared]:
        """Return all fields, those of the class before those of its bases."""
        members = [member for each in cls.__mro__ for member in vars(each).items()]
        return {name: value for name, value in members if isinstance(value, _Declared)}


class SpecOptions(Options):
    """How a spec is read."""

    sets: tuple[str, ...] = repeatable("--set", metavar="PATH=VALUE", help="Set a key of the spec. Repeatable.")
    ignore: tuple[str, ...] = repeatable(
        metavar="CODE",
        shell_complete=one_of("launcher.reference.problem_codes:ignorable"),
        help="Suppress this warning code. Repeatable.",
    )
    strict: bool = flag(help="Treat warnings, and questions that AWS does not answer, as errors.")

    def plan(self, spec: launcher.JobSpec | str, name: str | None = None) -> launcher.Plan:
        """Plan a spec, or the spec of a file, and print its warnings."""
        spec = launcher.load(spec, sets=self.sets) if isinstance(spec, str) else spec
        plan = launcher.plan(spec, name=name, ignore=self.ignore, strict=self.strict)
        show_problems(plan.warnings)
        return plan


class AccountOptions(Options):
    """The AWS account and region in which a job is looked up."""

    region: str | None = option(metavar="REGION", help="The AWS region, instead of the configured one.")
    profile: str | None = option(metavar="NAME", help="The profile of your AWS configuration.")

    def account(self) -> Account:
        return open_account(self.region, self.profile)


class JobOptions(AccountOptions):
    """Where a job is looked up: in an account, or among the local runs of this folder."""

    local: bool = flag(help="Show local runs of this folder, which are below ./.launch.")

    def is_local(self, name: str) -> bool:
        """Return whether a name is that of a local run: with `--local`, or if one has it and AWS, as is said, shows no such job."""
        from launcher.jobs.lookup import describe
        from launcher.local.runs import RUNS_FOLDER

        if self.local or self.region or self.profile or not Path(RUNS_FOLDER, name).is_dir():
            return self.local
        try:
            describe(self.account(), name)
        except LaunchError as error:
            reason, _, _ = str(error).partition(";")
            say(f"this is the local run ./{RUNS_FOLDER}/{name}: {reason}")
            return True
        say(f"./{RUNS_FOLDER}/{name} is a local run of this name; --local shows it")
        return False


def open_account(region: str | None, profile: str | None) -> Account:
    """Open the account; on a terminal, ask the user to renew credentials that AWS does not accept."""
    from launcher.aws.account import Account

    return Account(region=region, profile=profile, on_expired=_ask_for_credentials if sys.stdin.isatty() else None)


def _ask_for_credentials(reason: str) -> bool:
    say(reason, "yellow")
    return click.confirm("Correct this in another terminal. Continue?", err=True)


def duration(text: str) -> float:
    """Return the seconds of a duration. Raises click.BadParameter for any other text."""
    if (seconds := seconds_of(text)) is None:
        raise click.BadParameter(f"expected {A_DURATION}, got {text!r}")
    return seconds


def moment_of(age: str) -> datetime:
    """Return the moment that was `10m`, `12h` or `7d` ago. Raises click.BadParameter for anything else."""
    try:
        return datetime.now(timezone.utc) - timedelta(seconds=duration(age))
    except OverflowError:
        raise click.BadParameter(f"{age!r} is before the year 1; write a shorter age") from None
