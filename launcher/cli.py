"""The command line: argv -> spec -> plan -> one effect -> exit code. The only module that prints or exits.

launch job.yaml --dry-run [--json]     show the request
launch job.yaml --local [...]          run it here
launch job.yaml                        submit it and follow it
launch logs|status|stop|... NAME       a job that exists
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from launcher.commands import COMMANDS
from launcher.console import say, tell
from launcher.errors import LaunchError, ProblemsError
from launcher.nearest import did_you_mean

_SPEC_ENDINGS = (".yaml", ".yml", ".json")


class _SpecOrCommand(click.Group):
    """`launch job.yaml` is the command `run`; whatever does not look like a spec is a command's name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [arg for arg in args if not arg.startswith("-") or arg == "-"]
        at_once = any(arg.startswith(("--import", "--example", "--explain")) for arg in args)
        if words and words[0] not in COMMANDS and not at_once and any(_is_spec(arg) for arg in args):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            near = did_you_mean(args[0], list(COMMANDS))
            specs = "a spec (*.yaml, *.yml, *.json, or - for stdin)"
            raise click.UsageError(f"{args[0]!r} is neither a command nor {specs}{near}", ctx)
        return super().resolve_command(ctx, args)


def _is_spec(argument: str) -> bool:
    return argument == "-" or argument.lower().endswith(_SPEC_ENDINGS)


def _explain(context: click.Context, option: click.Parameter, code: str | None) -> None:
    if code is None or context.resilient_parsing:
        return
    from launcher.codes import all_codes, explanation

    story = explanation(code)
    if story is None:
        raise click.UsageError(f"{code!r} is no code{did_you_mean(code, all_codes())}")
    click.echo(story, nl=False)
    context.exit()


def _schema(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from launcher.schema import schema

        click.echo(json.dumps(schema(), indent=2))
        context.exit()


def _example(context: click.Context, option: click.Parameter, name: str | None) -> None:
    if name is None or context.resilient_parsing:
        return
    import channel_specs

    if name not in channel_specs.names():
        near = did_you_mean(name, channel_specs.names())
        raise click.UsageError(f"there is no example {name!r}{near}; there are {', '.join(channel_specs.names())}")
    click.echo(channel_specs.path(name).read_text(encoding="utf-8"), nl=False)
    context.exit()


def _import(context: click.Context, option: click.Parameter, file: str | None) -> None:
    if file is not None and not context.resilient_parsing:
        from launcher.importing import import_file

        click.echo(import_file(file), nl=False)
        context.exit()


_AT_ONCE: dict[str, Any] = {"is_eager": True, "expose_value": False}


@click.group(cls=_SpecOrCommand, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="sagemaker-launch", prog_name="launch")
@click.option("--import", metavar="FILE", callback=_import, help="Print the spec for a request.", **_AT_ONCE)
@click.option(
    "--explain", metavar="CODE", callback=_explain, help="Tell the whole story of a problem's code.", **_AT_ONCE
)
@click.option("--schema", is_flag=True, callback=_schema, help="Print the spec's JSON Schema, for editors.", **_AT_ONCE)
@click.option("--example", metavar="NAME", callback=_example, help="Print a commented spec to start from.", **_AT_ONCE)
def cli() -> None:
    """Train on SageMaker from one page of YAML: launch SPEC [OPTIONS].

    \b
    launch job.yaml                    submit the job, and follow it on a terminal
    launch job.yaml --dry-run          show the request that would be sent
    launch job.yaml --check            ask AWS whether the job can run, and change nothing
    launch job.yaml --local --data DIR run the job on this machine
    launch --example s3-file           a commented spec to start from
    launch run --help                  every option
    """


def main(argv: Sequence[str] | None = None) -> None:
    """The `launch` command. Exit codes: `launcher.errors`; 1 is a bug of ours and shows a traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no UTF-8 must not stop a training
    try:
        sys.exit(cli.main(args, prog_name="launch", standalone_mode=False) or 0)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except ProblemsError as error:
        if "--json" in args:
            print(json.dumps({"problems": [problem.as_data() for problem in error.problems]}, indent=2))
        else:
            for problem in error.problems:
                tell(problem)
        sys.exit(error.exit_code)
    except LaunchError as error:
        if "--json" in args:
            print(json.dumps({"error": str(error), "exit_code": error.exit_code}, indent=2))
        say(str(error), "red")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        say("stopped")
        sys.exit(130)
    except Exception:  # noqa: BLE001 - the last resort: a bug of ours, shown whole
        traceback.print_exc()
        say("this is a bug of the launcher; please report it with the lines above", "red")
        sys.exit(1)


if __name__ == "__main__":
    main()
