"""The command line: from the arguments to a command of `launcher.commands`, and from its result or error to an exit code.

`launch SPEC` is the command `run`. Options that print something and end (`--schema`, `--explain`, ...) are defined here.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from launcher import __version__
from launcher.commands import COMMANDS, GROUPS
from launcher.commands.options import one_of
from launcher.console import print_line, say, show_problems
from launcher.errors import LaunchError, ProblemsError, did_you_mean, did_you_mean_path
from launcher.parsing.spec_text import is_spec

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from launcher.commands.card import Command

_A_SPEC = "a spec (*.yaml, *.yml, *.json, or - for stdin)"
_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_INTERRUPTED = 130
_NAMES = list(dict.fromkeys(name.split()[0] for name in COMMANDS))
_BROKEN_PIPE = 128 + 13  # as a shell reports a process ended by SIGPIPE


class _SpecOrCommand(click.Group):
    """The group of all commands, in which `launch job.yaml` means `launch run job.yaml`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [arg for arg in args if not arg.startswith("-") or arg == "-"]
        at_once = any(arg.startswith(("--import", "--example", "--explain")) for arg in args)
        # Not words[0], which may be an option's value.
        is_word = bool(args) and not args[0].startswith("-") and not is_spec(args[0])
        if words and words[0] not in _NAMES and not (at_once or is_word) and any(is_spec(arg) for arg in args):
            args = ["run", *args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            run = self.get_command(ctx, "run")
            if run is None or all(error.option_name not in option.opts for option in run.params):
                raise
            name, start = error.option_name, "`launch --example s3-file` prints a spec to start from"
            raise click.UsageError(f"{name} needs {_A_SPEC}: write launch job.yaml {name}; {start}", ctx) from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from launcher.commands.effects import EFFECTS

        super().format_help_text(ctx, formatter)
        rows = [(f"launch {effect.example}", effect.summary) for effect in EFFECTS]
        with formatter.section("Examples"):
            formatter.write_dl([*rows, ("launch --example s3-file", "print a commented spec to start from")])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _NAMES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in GROUPS:
            parts = [name.split()[1] for name in COMMANDS if name.split()[0] == cmd_name]
            inner = {part: self.get_command(ctx, f"{cmd_name} {part}") for part in parts}
            return click.Group(cmd_name, {part: each for part, each in inner.items() if each}, help=GROUPS[cmd_name])
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        card: type[Command] = getattr(importlib.import_module(module), name)
        return card.as_click(cmd_name.split()[-1])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands and the specs of this folder; if nothing matches, let the shell complete files."""
        from click.shell_completion import CompletionItem

        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            names = sorted(file.name for file in Path().iterdir() if is_spec(file.name))
            shown = (name for name in names if name.startswith(incomplete) and (incomplete or name[0] != "."))
            found += map(CompletionItem, shown)
        return found or [CompletionItem(incomplete, type="file")]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in _NAMES:
            from launcher.commands.first_words import remedy  # only mistakes need it

            near = remedy(args[0], args[1:]) or did_you_mean_path(args[0], is_spec) or did_you_mean(args[0], _NAMES)
            raise click.UsageError(f"{args[0]!r} is neither a command nor {_A_SPEC}{near}", ctx)
        return super().resolve_command(ctx, args)


def _prints(text_of: Callable[[Any], str]) -> dict[str, Any]:
    """Return click's settings of an option that prints a text and ends the command."""

    def callback(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value not in (None, False) and not context.resilient_parsing:
            print_line(text_of(value).removesuffix("\n"))
            context.exit()

    return {"callback": callback, "is_eager": True, "expose_value": False}


def _explain(code: str) -> str:
    from launcher.reference.problem_codes import all_codes, explanation

    text = explanation(code)
    if text is None:
        raise click.UsageError(f"{code!r} is not a problem code{did_you_mean(code, all_codes())}")
    return text


def _schema(_: bool) -> str:
    from launcher.reference.schema import schema

    return json.dumps(schema(), indent=2) + "\n"


def _example(name: str) -> str:
    import channel_specs

    names = channel_specs.names()
    if name not in names:
        near = did_you_mean(name, names)
        raise click.UsageError(f"there is no example {name!r}{near}; expected one of {', '.join(names)}")
    return channel_specs.path(name).read_text(encoding="utf-8")


def _import(file: str) -> str:
    from launcher.importing.from_request import import_file

    return import_file(file)


@click.group(cls=_SpecOrCommand, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="launch")
@click.option(
    "--import",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Print the spec for a request, from a file or - for stdin.",
    **_prints(_import),
)
@click.option(
    "--explain",
    metavar="CODE",
    shell_complete=one_of("launcher.reference.problem_codes:all_codes"),
    help="Explain a problem code, with a wrong and a right example.",
    **_prints(_explain),
)
@click.option("--schema", is_flag=True, help="Print the spec's JSON Schema, for editors.", **_prints(_schema))
@click.option(
    "--example",
    metavar="NAME",
    shell_complete=one_of("channel_specs:names"),
    help="Print a commented spec to start from.",
    **_prints(_example),
)
def cli() -> None:
    """Train on SageMaker from one page of YAML: launch SPEC [OPTIONS]."""


def _leave_plugins_out() -> None:
    """Keep pydantic from searching every installed package for plugins, which takes 25 ms; a spec needs none."""
    loader = ModuleType("pydantic.plugin._loader")
    vars(loader)["get_plugins"] = tuple
    sys.modules.setdefault(loader.__name__, loader)


def main(argv: Sequence[str] | None = None) -> None:
    """Run `launch` with these arguments, by default those of the process, and exit with a code of `EXIT_CODES`."""
    args = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `launch ... >&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 must not stop a training
    _leave_plugins_out()
    try:
        code = _run(args)
        sys.stdout.flush()
    except OSError as error:
        code = _end_without_output(error)
    sys.exit(code)


def _run(args: list[str]) -> int:
    """Run the command, print its error if it fails, and return the exit code; with --json, errors are JSON on stdout, too."""
    try:
        if instruction := os.environ.get("_LAUNCH_COMPLETE"):
            from click.shell_completion import shell_complete

            return shell_complete(cli, {}, "launch", "_LAUNCH_COMPLETE", instruction)
        # Not cli.main(), which would end the command with exit code 1 if its output is closed.
        with cli.make_context("launch", [*args]) as context:
            return int(cli.invoke(context))
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
            return 2
        _report(args, error.format_message(), 2)
        if isinstance(error, click.UsageError) and error.ctx:
            say(f"`{error.ctx.command_path} --help` lists the arguments and options")
        return 2
    except ProblemsError as error:
        if "--json" in args:
            _print_json(args, {"problems": [problem.as_data() for problem in error.problems]})
        else:
            show_problems(error.problems)
        return error.exit_code
    except LaunchError as error:
        return _report(args, str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort) as error:
        return _report(args, str(error) or "interrupted", _INTERRUPTED)
    except Exception as error:
        # Errors of other files than stdout and stderr have a file name.
        if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_ERRORS:
            raise
        import traceback  # 2 ms of every other command

        say(traceback.format_exc().rstrip())
        say("this is a bug in launch; please report it with the lines above", "red")
        return 1


def _report(args: list[str], message: str, exit_code: int) -> int:
    """Print why the command ends, and return its exit code."""
    if "--json" in args:
        _print_json(args, {"error": message, "exit_code": exit_code})
    if exit_code == _INTERRUPTED:
        say(f"\n{message}")  # below the terminal's ^C
    else:
        say(f"error: {message}", "red")
    return exit_code


def _print_json(args: list[str], data: Any) -> None:
    """Print JSON, on one line for `logs`, which prints an object per line."""
    print_line(json.dumps(data, indent=None if "logs" in args[:1] else 2))


def _end_without_output(error: OSError) -> int:
    """Return the exit code after a failed write to stdout or stderr, and discard what is left in their buffers.

    A closed pipe, as in `launch list | head -1`, ends the command silently, as it does other programs; other reasons, such
    as a full disk, are reported. Without discarding, Python would report the buffers again at its exit.
    """
    if not isinstance(error, BrokenPipeError):
        with suppress(OSError):
            say(f"standard output or error: cannot be written: {error.strerror}", "red")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    return _BROKEN_PIPE if isinstance(error, BrokenPipeError) else LaunchError.exit_code


if __name__ == "__main__":
    main()
