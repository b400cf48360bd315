"""`launch SPEC`: plan a spec, and show it, check it, run it here, or submit it and follow it to its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import launcher
from launcher.commands.effects import carry_out, effect_options, refuse_contradictions
from launcher.commands.options import json_option, open_account, spec_options
from launcher.console import tell

_LOCAL = (
    click.option(
        "--data",
        type=click.Path(file_okay=False, exists=True, path_type=Path),
        metavar="DIR",
        help="With --local: a folder that stands for the cloud: DIR/s3/<bucket>/..., DIR/efs/<fs-id>/, DIR/fsx/<fs-id>/.",
    ),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="FS-ID=PATH",
        help="With --local: the directory that stands for a file system. Can be given again.",
    ),
    click.option(
        "--channel",
        "channels",
        multiple=True,
        metavar="NAME=PATH",
        help="With --local: the folder, file or manifest that a channel reads. Can be given again.",
    ),
    click.option(
        "--sample",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --local: the first N objects of each channel only.",
    ),
    click.option(
        "--instance-count",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --local: N hosts, whatever the spec says.",
    ),
    click.option(
        "--no-namespaces", is_flag=True, help="With --local: run without /opt/ml; SAGEMAKER_BASE_DIR names the place."
    ),
)


def _local_options(function: Any) -> Any:
    for option in reversed(_LOCAL):
        function = option(function)
    return function


@click.command("run", short_help="Plan a spec, and show it, run it here, or submit it (`run` can be left out).")
@click.argument("spec", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--name", help="The job's whole name, in place of the spec's.")
@spec_options
@effect_options
@json_option
@click.option("--local", is_flag=True, help="Run the job on this machine, as SageMaker would.")
@_local_options
def command(spec: str, **options: Any) -> None:
    """Plan SPEC, a YAML file or - for standard input, and submit it, or do another one thing with it."""
    local = {
        key: options.pop(key) for key in ("data", "mounts", "channels", "sample", "instance_count", "no_namespaces")
    }
    refuse_contradictions(options)
    for key, value in local.items():
        if value not in (None, False, ()) and not options["local"]:
            option = {"mounts": "mount", "channels": "channel"}.get(key, key.replace("_", "-"))
            raise click.UsageError(f"--{option} works only with --local; add --local or leave it out")
    reading = {key: options[key] for key in ("name", "ignore", "strict")}
    plan = launcher.plan(launcher.load(spec, sets=options["sets"]), **reading)
    if options["local"]:
        for warning in plan.warnings:
            tell(warning)
        sys.exit(
            launcher.run_local(
                plan, options=launcher.LocalOptions(as_json=options["as_json"], yes=options["yes"], **local)
            )
        )
    sys.exit(carry_out(plan, lambda: open_account(plan.spec.region, plan.spec.profile), options))
