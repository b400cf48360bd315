"""What commands share: their decorator, options that stack, and argument types.

A group of options, such as `spec_options`, reaches the command as one object. Completing a value prints nothing and never fails.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

import launcher
from launcher.console import json_timestamp, print_line, say, show_problems, shown_path
from launcher.errors import EXIT_CODES, LaunchError, RefusedError, first_names
from launcher.parsing.layers import Assignment
from launcher.parsing.spec_text import are_of_a_spec, first_keys, is_spec
from launcher.quantities import A_DURATION, seconds_of
from launcher.s3.walk import holds_files

if TYPE_CHECKING:
    from launcher.aws.session import Account

MAX_COMPLETION_SECONDS = 3.0  # that a user waits for the names of jobs
_Function = Callable[..., Any]
_Shown = TypeVar("_Shown")
_Decorator = Callable[[_Function], _Function]
_Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def command(name: str, example: str, *, exit_codes: Sequence[int] = (0, 2, 3)) -> Callable[[_Function], click.Command]:
    """Return the decorator of a command; the first sentence of its docstring is shown by `launch --help`.

    Args:
        name: The word after `launch`, or after that of its group.
        example: Arguments after `launch`. A test runs them in an account that has the job digits-1, beside a job.yaml.
        exit_codes: Those that it ends with, besides 1, 130 and 141.
    """
    codes = "; ".join(f"{code} {EXIT_CODES[code]}" for code in exit_codes)
    epilog = f"Example: launch {example}\n\nExit codes: {codes}."
    return click.command(name, epilog=epilog, context_settings={"show_default": True})


flag = partial(click.option, is_flag=True)
many = partial(click.option, multiple=True)


def group(name: str, *decorators: _Decorator, kind: _Function = SimpleNamespace) -> _Decorator:
    """Return a decorator that adds options to a command, whose parameter `name` gets them as `kind(**values)`."""

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(**values: Any) -> Any:
            own = {each: values.pop(each) for each in names}
            return function(**{name: kind(**own)}, **values)

        before = len(getattr(call, "__click_params__", ()))
        for decorator in reversed(decorators):
            decorator(call)
        names = [each.name for each in call.__click_params__[before:]]  # type: ignore[attr-defined]
        return call

    return decorate


def given(*names: str) -> list[str]:
    """Return those of the options with these parameters' names that the command line has, as a user writes them."""
    context = click.get_current_context()
    return [
        each.secondary_opts[0] if each.secondary_opts and context.params[each.name] is False else each.opts[0]
        for each in context.command.params
        if each.name in names and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    ]


def refuse_together(name: str, *others: str) -> None:
    """Raise click.UsageError if the command line has an option and one of the others."""
    if (first := given(name)) and (found := given(*others)):
        raise click.UsageError(f"{first[0]} and {found[0]} exclude each other; pass one of them")


def one_of(names: str) -> _Completion:
    """Return a completion that offers the names that begin with the typed text.

    `names` is the function that lists them, `module:function`. It is imported when it is called.
    """

    def offer(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        from pkgutil import resolve_name

        return [name for name in dict.fromkeys(resolve_name(names)()) if name.startswith(typed)]

    return offer


def _job_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Offer the latest training jobs of the account, after `stop` and `exec` only running ones, if AWS answers in time."""
    from concurrent.futures import TimeoutError as TooLate

    from launcher.aws.session import Account
    from launcher.aws.threads import start
    from launcher.jobs.lookup import jobs
    from launcher.local.runs import run_names

    if context.params.get("local"):
        return [name for name in run_names() if name.startswith(typed)]
    status = "InProgress" if context.command.name in ("stop", "exec") else None

    def ask() -> list[str]:
        account = Account(region=context.params.get("region"), profile=context.params.get("profile"))
        found = jobs(account, 100, StatusEquals=status, NameContains=typed or None)
        return [name for each in found if (name := each["TrainingJobName"]).startswith(typed)]

    try:
        return start(ask).result(timeout=MAX_COMPLETION_SECONDS)
    except (TooLate, LaunchError):
        return []


class _SpecPath(click.Path):
    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "Write a spec's path, such as job.yaml; `launch --example s3-file` prints a spec to start from."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_folder(value):
            self.fail(f"{value!r} is a folder, not a spec{in_place_of_folder(value)}", param, ctx)
        return super().convert(value, param, ctx)


class _JobName(click.types.StringParamType):
    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "Write a training job's name; `launch list` shows the names."


class SpecOrUri(click.types.StringParamType):
    """A spec's path, s3://bucket/prefix, or a folder of this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a file of data, which would be read as a spec, and an empty folder."""
        if (path := Path(value)).suffix and os.path.isfile(path) and not is_spec(value):  # noqa: PTH113 - as in is_folder
            remedy = f"name its folder, {shown_path(path.parent)}, or give a spec the ending .yaml, .yml or .json"
            self.fail(f"{value!r} is a file, but not a spec; {remedy}", param, ctx)
        if is_folder(value) and not holds_files(path):
            self.fail(f"{value!r} holds no files; name the folder that holds the data", param, ctx)
        return super().convert(value, param, ctx)


class LocalPath(click.Path):
    """A path that the command writes to."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what click would take for a folder named `s3:` or a file named `-`."""
        if str(value).startswith("s3://") or str(value) == "-":
            remedy = "write to one, and copy or print it from there"
            self.fail(f"{value!r} is not a path on this machine; {remedy}", param, ctx)
        return super().convert(value, param, ctx)


def is_folder(value: str) -> bool:
    return os.path.isdir(value)  # noqa: PTH112 (Path's raises an error if the name is too long)


def in_place_of_folder(folder: str) -> str:
    """Return what to write in place of a folder if a spec is expected: the specs in it, or how to get one."""
    files = [str(file) for file in sorted(Path(folder).glob("*.y*ml")) if os.access(file, os.R_OK) and file.is_file()]
    if specs := [file for file in files if are_of_a_spec(first_keys(Path(file).read_bytes()))]:
        return f"; write one of its specs: {first_names(specs)}"
    return f"; `launch init {shlex.quote(folder)}` writes one for the script and the data in it"


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


def plot_option(what: str) -> _Decorator:
    """Return the option of the file to draw `what` into; a file is refused if nothing can be drawn there."""

    def checked(context: click.Context, option: click.Parameter, file: Path | None) -> Path | None:
        from launcher.plot import check_plot

        if file is not None and not context.resilient_parsing:
            check_plot(file)
        return file

    kind, text = click.Path(dir_okay=False, path_type=Path), f"{what} into a .png or .svg file."
    return click.option("--plot", type=kind, callback=checked, metavar="FILE", help=text)


def open_account(region: str | None, profile: str | None) -> Account:
    """Open the account; on a terminal, ask the user to renew credentials that AWS does not accept."""
    from launcher.aws.session import Account

    return Account(region=region, profile=profile, on_expired=_ask_for_credentials if sys.stdin.isatty() else None)


def _ask_for_credentials(reason: str) -> bool:
    say(reason, "yellow")
    return click.confirm("Correct this in another terminal. Continue?", err=True)


def for_each(names: Sequence[str], do: Callable[[str], _Shown], *, as_json: bool) -> None:
    """Call `do` for each name, also after others were refused; then raise the refusals as one.

    With `as_json`, what `do` returned is printed: as it is for one name, as a list for several, if none was refused.
    """
    done, refused = list[_Shown](), list[LaunchError]()
    for name in dict.fromkeys(names):
        try:
            done.append(do(name))
        except LaunchError as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise RefusedError("\n".join(dict.fromkeys(f"{each}{each.remedy}" for each in refused)))
    if as_json:
        print_json(done[0] if len(names) == 1 else done)


def print_json(data: Any) -> None:
    print_line(json.dumps(data, indent=2, default=_json_value))


def _json_value(value: Any) -> str | float:
    if isinstance(value, Decimal):
        return float(value)
    return json_timestamp(value) if isinstance(value, datetime) else str(value)


class SpecOptions(NamedTuple):
    sets: tuple[str | Assignment, ...]
    ignore: tuple[str, ...]
    strict: bool

    def in_queue(self, name: str | None) -> SpecOptions:
        """Return these options with the queue of `--queue`, which the spec may describe further."""
        return self if name is None else self._replace(sets=(*self.sets, Assignment("queue.name", name, "--queue")))

    def plan(self, spec: launcher.JobSpec | str, name: str | None = None) -> launcher.Plan:
        """Plan a spec, or the spec of a file, and print its warnings."""
        spec = launcher.load(spec, sets=self.sets) if isinstance(spec, str) else spec
        if spec.team.files:
            say(f"layers    {', '.join(spec.team.files)}")
        plan = launcher.plan(spec, name=name, ignore=self.ignore, strict=self.strict)
        show_problems(plan.warnings)
        return plan


class AccountOptions(NamedTuple):
    region: str | None
    profile: str | None

    def open(self, plan: launcher.Plan | None = None) -> Account:
        """Open it; what the options leave open is that of the plan."""
        spec = plan.spec if plan else self
        return open_account(self.region or spec.region, self.profile or spec.profile)


spec_argument = click.argument("spec", type=_SpecPath(dir_okay=False, allow_dash=True))
job_argument = click.argument("name", type=_JobName(), shell_complete=_job_names)
jobs_argument = click.argument(
    "names", type=_JobName(), nargs=-1, required=True, metavar="NAME...", shell_complete=_job_names
)
name_option = click.option("--name", metavar="NAME", help="The job's full name, instead of the spec's.")
queue_option = click.option("--queue", metavar="QUEUE", help="Submit the job to this AWS Batch queue.")
json_option = flag("--json", "as_json", help="Print JSON for programs.")
local_option = flag("--local", help="Show local runs of this folder, which are below ./.launch.")
secrets_option = flag("--show-secrets", help="Show the values of ${NAME} and other masked settings.")
_ignorable = one_of("launcher.reference.problem_codes:ignorable")
spec_options = group(
    "reading",
    many("--set", "sets", metavar="PATH=VALUE", help="Set a key of the spec. Repeatable."),
    many("--ignore", metavar="CODE", shell_complete=_ignorable, help="Suppress this warning code. Repeatable."),
    flag("--strict", help="Treat warnings, and questions that AWS does not answer, as errors."),
    kind=SpecOptions,
)
region_option = click.option("--region", metavar="REGION", help="The AWS region, instead of the configured one.")
profile_option = click.option("--profile", metavar="NAME", help="The profile of your AWS configuration.")
account_options = group("where", region_option, profile_option, kind=AccountOptions)
