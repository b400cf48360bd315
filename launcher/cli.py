"""The command line: from the arguments to a command of `launcher.commands`, and from its result or error to an exit code.

`launch SPEC` is `launch submit SPEC`. Options that print something and end (`--schema`, `--explain`, ...) are defined here.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from launcher import __version__, bundled
from launcher.commands import COMMANDS
from launcher.commands.options import one_of
from launcher.console import print_line, say, show_error, show_problems
from launcher.errors import INTERRUPTED, LaunchError, ProblemsError, did_you_mean
from launcher.parsing.spec_text import is_spec
from launcher.unknown_words import A_SPEC, no_such_option, options_of, remedy

_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_BROKEN_PIPE = 128 + 13  # as a shell reports a process ended by SIGPIPE
_HELP = """Train on SageMaker from one page of YAML: launch SPEC [OPTIONS].

\b
launch job.yaml --dry-run           print the request
launch job.yaml --check             ask AWS whether the job can run, and change nothing
launch job.yaml --local --data DIR  run the job on this machine
launch job.yaml                     submit the job, and follow it on a terminal
launch --example s3-file            print a commented spec to start from
"""


class _SpecOrCommand(click.Group):
    """The group of all commands, in which `launch job.yaml` means `launch submit job.yaml`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found: click.Command | None = resolve_name(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command of the first word; a spec, also after options, is submitted, or with --local run here."""
        is_option = args[0].startswith("-")
        if is_spec(args[0]) or (is_option and any(map(is_spec, args))):
            args = ["submit", *args]
        elif is_option:
            raise click.NoSuchOption(args[0].partition("=")[0], possibilities=[*options_of(self)], ctx=ctx)
        if args[0] == "submit" and any(each.partition("=")[0] == "--local" for each in args):
            # Before the spec, --local has done its work here, and has no value.
            args = ["local", *args[2 if args[1] == "--local" and any(map(is_spec, args[2:3])) else 1 :]]
        if args[0] not in COMMANDS:
            raise click.UsageError(f"{args[0]!r} is neither a command nor {A_SPEC}{remedy(args)}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Offer commands and the specs of this folder; if nothing matches, let the shell complete files."""
        from click.shell_completion import CompletionItem

        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            names = sorted(file.name for file in Path().iterdir() if is_spec(file.name))
            shown = (name for name in names if name.startswith(incomplete) and (incomplete or name[0] != "."))
            found += map(CompletionItem, shown)
        return found or [CompletionItem(incomplete, type="file")]


def _prints(text_of: Callable[[Any], str]) -> dict[str, Any]:
    """Return click's settings of an option that prints a text and ends the command."""

    def callback(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value not in (None, False) and not context.resilient_parsing:
            print_line(text_of(value).removesuffix("\n"))
            context.exit()

    return {"callback": callback, "is_eager": True, "expose_value": False}


def _explain(code: str) -> str:
    from launcher.reference.problem_codes import all_codes, explanation

    text = explanation(code) if code else "\n".join(all_codes())
    if text is None:
        raise click.UsageError(
            f"{code!r} is not a problem code{did_you_mean(code, all_codes())}; --explain alone lists them"
        )
    return text


def _schema(_: bool) -> str:
    from launcher.reference.schema import schema

    return json.dumps(schema(), indent=2) + "\n"


def _example(name: str) -> str:
    names = bundled.spec_names()
    if not name:
        return "\n".join(names)
    if name not in names:
        near = did_you_mean(name, names)
        raise click.UsageError(f"there is no example {name!r}{near}; expected one of {', '.join(names)}")
    return f"{bundled.SCHEMA_LINE}\n{bundled.spec_path(name).read_text(encoding='utf-8')}"


_lists: dict[str, Any] = {"is_flag": False, "flag_value": ""}  # the value may be left out


@click.group(
    cls=_SpecOrCommand,
    help=_HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "ignore_unknown_options": True,  # they may be those of a spec that follows
        "max_content_width": 120,
    },
    no_args_is_help=True,
)
@click.version_option(__version__, prog_name="launch")
@click.option(
    "--explain",
    metavar="[CODE]",
    shell_complete=one_of("launcher.reference.problem_codes:all_codes"),
    help="Explain a problem code, with a wrong and a right example; without CODE, list the codes.",
    **_lists,
    **_prints(_explain),
)
@click.option("--schema", is_flag=True, help="Print the spec's JSON Schema, for editors.", **_prints(_schema))
@click.option(
    "--skill",
    is_flag=True,
    help="Print the skill for coding agents, a SKILL.md.",
    **_prints(lambda _: bundled.SKILL.read_text("utf-8")),
)
@click.option(
    "--example",
    metavar="[NAME]",
    shell_complete=one_of("launcher.bundled:spec_names"),
    help="Print a commented spec to start from; without NAME, list the names.",
    **_lists,
    **_prints(_example),
)
def cli() -> None:
    """Do nothing besides what the options and commands do."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run `launch` with these arguments, by default those of the process, and exit with a code of `EXIT_CODES`."""
    args = list(sys.argv[1:] if argv is None else argv)
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:  # `launch ... >&-`
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends
        stream = getattr(sys, name)
        if mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 must not stop a training
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
            return cli.invoke(context) or 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        message = no_such_option(error) if isinstance(error, click.NoSuchOption) else error.format_message()
        _report(args, message, 2)
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
        return _report(args, f"{error}{error.remedy}", error.exit_code)
    except (KeyboardInterrupt, click.Abort) as error:
        return _report(args, str(error) or "interrupted", INTERRUPTED)
    except Exception as error:
        # Errors of other files than stdout and stderr have a file name.
        if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_ERRORS:
            raise
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            return _report(args, f"{error.strerror}; raise the limit, as by `ulimit -n 65536`", LaunchError.exit_code)
        # A missing file that a user names is reported where it is looked for, so another one is ours.
        if isinstance(error, OSError) and error.filename is not None and not isinstance(error, FileNotFoundError):
            hint = "ask its owner for access, or " * isinstance(error, PermissionError) + "use another path"
            return _report(args, f"{error.filename}: {error.strerror}; {hint}", LaunchError.exit_code)
        if isinstance(error, FileNotFoundError) and error.filename is None:
            return _report(args, "the working folder was removed; change to one that exists", LaunchError.exit_code)
        import traceback  # 2 ms of every other command

        say(traceback.format_exc().rstrip())
        return _report(args, "this is a bug in launch; please report it with the lines above", 1)


def _report(args: list[str], message: str, exit_code: int) -> int:
    if "--json" in args:
        _print_json(args, {"error": message, "exit_code": exit_code})
    if exit_code == INTERRUPTED:
        say(f"\n{message}")  # below the terminal's ^C
    else:
        show_error(message)
    return exit_code


def _print_json(args: list[str], data: Any) -> None:
    """Print JSON, on one line for `logs` and `top`, which print an object per line."""
    print_line(json.dumps(data, indent=None if args[:1] in (["logs"], ["top"]) else 2))


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
