"""`--local`: run the job on this machine."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click

import launcher
from launcher.commands.card import Effect, GetAccount
from launcher.commands.options import duration, flag, one_of, option, optional_choice, repeatable
from launcher.spec.channels import KINDS

_HOSTS = click.IntRange(min=1, max=1000)  # each is folders and processes of this machine
_DATA = dict.fromkeys(f"DIR/{kind.DATA}" for kind in KINDS.values() if kind.DATA)


class Local(Effect):
    """Run the job on this machine. The options are those of `launcher.LocalOptions`."""

    chosen_by = "local"
    example = "job.yaml --local --data DIR"
    summary = "run the job on this machine"

    local: str = optional_choice(
        ("docker", "podman"),
        without="process",
        help="Run the job on this machine, as SageMaker would: in the Python that runs `launch`, or in the image.",
    )
    image: str | None = option(
        metavar="IMAGE", help="With --local docker or podman: the image to run in place of the spec's."
    )
    image_env: bool = flag(
        help="With --local alone: set the variables of the spec's image (ENV), which ECR is asked for."
    )
    data: Path | None = option(
        type=click.Path(path_type=Path),
        metavar="DIR",
        help=f"With --local: a folder in place of AWS's storage: {', '.join(_DATA)}.",
    )
    mounts: tuple[str, ...] = repeatable(
        "--mount", metavar="FS-ID=PATH", help="With --local: the directory in place of a file system. Repeatable."
    )
    channels: tuple[str, ...] = repeatable(
        "--channel",
        metavar="NAME=PATH",
        help="With --local: the folder, file or manifest that a channel reads. Repeatable.",
    )
    sample: int | None = option(
        type=click.IntRange(min=1),
        metavar="N",
        help="With --local: read only N objects of each channel, evenly spaced over their keys.",
    )
    instance_count: int | None = option(
        type=_HOSTS, metavar="N", help="With --local: run N hosts, whatever the spec says."
    )
    resume: str | None = option(
        metavar="NAME",
        shell_complete=one_of("launcher.local.runs:run_names"),
        help="With --local: begin with the checkpoints of an earlier local run, or of the latest: --resume latest.",
    )
    stop_after: float | None = option(
        type=duration,
        metavar="TIME",
        help="With --local: stop the job after this time, such as 90s or 10m, as StopTrainingJob does.",
    )
    interrupt_after: float | None = option(
        type=duration,
        metavar="TIME",
        help="With --local: interrupt the job after this time, as spot instances are, and restart it from its checkpoints.",
    )
    interrupt_at: str | None = option(
        metavar="TEXT", help="With --local: the same as soon as a line of the log has TEXT, such as 'epoch 2'."
    )
    times: int = option(
        type=click.IntRange(min=1), default=1, metavar="N", help="With --interrupt-after or -at: interrupt N attempts."
    )
    restart_hosts: tuple[int, ...] = repeatable(
        type=_HOSTS,
        metavar="N",
        help="With --interrupt-after or -at: restart with N hosts. Repeatable: taken in turn.",
    )
    rename_hosts: bool = flag(help="With --interrupt-after or -at: restart with host names that the job has not seen.")
    keep: bool = flag(
        help="With --local: keep the hosts as they ended, for a look: their files, and an image of each container."
    )
    no_namespaces: bool = flag(help="With --local: run without /opt/ml; SAGEMAKER_BASE_DIR names the folder.")
    verbose: bool = option(
        "--verbose",
        "-v",
        default=False,
        is_flag=True,
        help="With --local: show each difference from SageMaker, and the numbers of waits.",
    )

    def carry_out(self, plan: launcher.Plan, account: GetAccount) -> int:
        return launcher.run_local(plan, options=self.options()).exit_code

    def options(self, *, shell: str | None = None) -> launcher.LocalOptions:
        """Return the options of the run; `shell` is the host in which to open a shell instead."""
        names = (each.name for each in fields(launcher.LocalOptions) if each.name in self.declared())
        values = {name: getattr(self, name) for name in names}
        return launcher.LocalOptions(runner=self.local or "process", shell=shell, **values)
