"""`--local`: run the job on this machine."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click

import launcher
from launcher.commands.effects.effect import Effect, EffectOptions, GetAccount
from launcher.commands.options import flag, option


class LocalRunOptions(EffectOptions):
    """The options of `--local`: those of `launcher.LocalOptions` as a command has them."""

    local: bool = flag(help="Run the job on this machine, as SageMaker would.")
    data: Path | None = option(
        type=click.Path(file_okay=False, exists=True, path_type=Path),
        metavar="DIR",
        help="With --local: a folder in place of AWS's storage: DIR/s3/<bucket>/..., DIR/efs/<fs-id>/, DIR/fsx/<fs-id>/.",
    )
    mounts: tuple[str, ...] = option(
        "--mount",
        default=(),
        multiple=True,
        metavar="FS-ID=PATH",
        help="With --local: the directory in place of a file system. Repeatable.",
    )
    channels: tuple[str, ...] = option(
        "--channel",
        default=(),
        multiple=True,
        metavar="NAME=PATH",
        help="With --local: the folder, file or manifest that a channel reads. Repeatable.",
    )
    sample: int | None = option(
        type=click.IntRange(min=1), metavar="N", help="With --local: read only the first N objects of each channel."
    )
    instance_count: int | None = option(
        type=click.IntRange(min=1), metavar="N", help="With --local: run N hosts, whatever the spec says."
    )
    no_namespaces: bool = flag(help="With --local: run without /opt/ml; SAGEMAKER_BASE_DIR names the folder.")


def _run(plan: launcher.Plan, account: GetAccount, options: LocalRunOptions) -> int:
    names = [each.name for each in fields(launcher.LocalOptions)]
    return launcher.run_local(plan, options=launcher.LocalOptions(**{each: getattr(options, each) for each in names}))


EFFECT = Effect(
    options=LocalRunOptions,
    carry_out=_run,
    flag="local",
    example="job.yaml --local --data DIR",
    summary="run the job on this machine",
)
