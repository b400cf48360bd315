"""The command line: argv -> spec -> plan -> one effect -> exit code. The only module that prints or exits.

launch job.yaml --dry-run [--json]     show the request
launch job.yaml --local [...]          run it here
launch job.yaml                        submit it
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import launcher
from launcher import show
from launcher.checks import RULES
from launcher.console import COLOUR
from launcher.errors import LaunchError, Problem, RefusedError, SpecError, dotted
from launcher.nearest import did_you_mean

_SPEC_ENDINGS = (".yaml", ".yml", ".json")


class _SpecOrCommand(click.Group):
    """`launch job.yaml` is the command `run`; whatever does not look like a spec is a command's name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [arg for arg in args if not arg.startswith("-") or arg == "-"]
        at_once = any(arg.startswith(("--import", "--example", "--explain")) for arg in args)
        if words and words[0] not in self.commands and not at_once and any(_is_spec(arg) for arg in args):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in self.commands:
            raise click.UsageError(
                f"{args[0]!r} is neither a command nor a spec (*.yaml, *.yml, *.json, or - for stdin)", ctx
            )
        return super().resolve_command(ctx, args)


def _is_spec(argument: str) -> bool:
    return argument == "-" or argument.lower().endswith(_SPEC_ENDINGS)


def _explain(context: click.Context, option: click.Parameter, code: str | None) -> None:
    if code is None or context.resilient_parsing:
        return
    from launcher.codes import OTHER_CODES, explanation

    story = explanation(code)
    if story is None:
        known = [*(rule.code for rule in RULES), *OTHER_CODES]
        raise click.UsageError(f"{code!r} is no code{did_you_mean(code, known)}")
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
@click.option("--import", metavar="FILE", callback=_import, help="Print the spec for a request in JSON.", **_AT_ONCE)
@click.option(
    "--explain", metavar="CODE", callback=_explain, help="Tell the whole story of a problem's code.", **_AT_ONCE
)
@click.option("--schema", is_flag=True, callback=_schema, help="Print the spec's JSON Schema, for editors.", **_AT_ONCE)
@click.option("--example", metavar="NAME", callback=_example, help="Print a commented spec to start from.", **_AT_ONCE)
def cli() -> None:
    """Train on SageMaker from one page of YAML: launch SPEC [OPTIONS].

    \b
    launch job.yaml --dry-run          show the request that would be sent
    launch job.yaml --local --data DIR run the job on this machine
    launch --example s3-file           a commented spec to start from
    launch run --help                  every option
    """


@cli.command("run", short_help="Plan a spec, and show it, run it here, or submit it (`run` can be left out).")
@click.argument("spec", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Print the CreateTrainingJob request, and do nothing.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print for machines: the request, the result or the problems as JSON."
)
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set a key of the spec. Can be given again.")
@click.option(
    "--ignore", multiple=True, metavar="CODE", help="Say nothing of warnings with this code. Can be given again."
)
@click.option("--strict", is_flag=True, help="Stop at warnings, too.")
@click.option("--show-secrets", is_flag=True, help="Show the values of ${NAME} in environment and hyperparameters.")
@click.option("--name", help="The job's whole name, in place of the spec's.")
@click.option("--local", is_flag=True, help="Run the job on this machine, as SageMaker would.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="With --local: a folder that stands for the cloud: DIR/s3/<bucket>/..., DIR/efs/<fs-id>/, DIR/fsx/<fs-id>/.",
)
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="FS-ID=PATH",
    help="With --local: the directory that stands for a file system. Can be given again.",
)
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="N", help="With --local: the first N objects of each channel only."
)
@click.option(
    "--instance-count", type=click.IntRange(min=1), metavar="N", help="With --local: N hosts, whatever the spec says."
)
@click.option(
    "--no-namespaces", is_flag=True, help="With --local: run without /opt/ml; SAGEMAKER_BASE_DIR names the place."
)
@click.option("--yes", is_flag=True, help="Ask nothing.")
def run(spec: str, **options: Any) -> None:
    """Plan SPEC, a YAML file or - for standard input, and do one thing with it."""
    dry_run, as_json, name, local = (options.pop(key) for key in ("dry_run", "as_json", "name", "local"))
    sets, ignore, strict, show_secrets = (options.pop(key) for key in ("sets", "ignore", "strict", "show_secrets"))
    local_options = options
    given = sorted(key for key, value in local_options.items() if value not in (None, False, ()))
    if dry_run and local:
        raise click.UsageError("--dry-run shows and --local runs; give one of them")
    if given and not local and given != ["yes"]:
        raise click.UsageError(f"--{given[0].replace('_', '-')} goes with --local".replace("--mounts", "--mount"))
    plan = launcher.plan(launcher.load(spec, sets=sets), name=name, ignore=ignore, strict=strict)
    for warning in plan.warnings:
        _tell(warning)
    if dry_run:
        request = plan.request if show_secrets else plan.veiled_request()
        sys.stdout.write(show.as_json(request) if as_json else show.as_yaml(request))
    elif local:
        from launcher.local.run import run_local
        from launcher.local.workspace import LocalOptions

        sys.exit(run_local(plan, LocalOptions(as_json=as_json, **local_options)))
    else:
        raise RefusedError(
            "submitting is not built yet; --dry-run shows the request, --local runs the job on this machine"
        )


def _say(text: str, colour: str | None = None) -> None:
    click.secho(text, fg=colour, err=True, color=COLOUR)


def _tell(problem: Problem) -> None:
    """A problem in one line, and under it the line of the file with a mark."""
    warning = problem.severity == "warning"
    _say(f"warning: {problem}" if warning else str(problem), "yellow" if warning else "red")
    if problem.location and (quoted := problem.location.quoted()):
        _say(quoted)


def _as_data(problem: Problem) -> dict[str, Any]:
    at = problem.location
    location = {"file": at.file, "line": at.line, "column": at.column} if at else {}
    return {
        **location,
        "path": dotted(problem.path),
        "message": problem.message,
        "code": problem.code,
        "severity": problem.severity,
    }


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
    except SpecError as error:
        if "--json" in args:
            print(json.dumps({"problems": [_as_data(problem) for problem in error.problems]}, indent=2))
        else:
            for problem in error.problems:
                _tell(problem)
        sys.exit(error.exit_code)
    except LaunchError as error:
        if "--json" in args:
            print(json.dumps({"error": str(error), "exit_code": error.exit_code}, indent=2))
        _say(str(error), "red")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("stopped")
        sys.exit(130)
    except Exception:  # noqa: BLE001 - the last resort: a bug of ours, shown whole
        traceback.print_exc()
        _say("this is a bug of the launcher; please report it with the lines above", "red")
        sys.exit(1)


if __name__ == "__main__":
    main()
