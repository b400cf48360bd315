"""What a local run is asked for, its hosts, and the settings with which a runner starts each."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.errors import RefusedError
from launcher.request.view import machine_sets
from sagemaker_channels import contract

WARM_POOLS = ".warm-pool"  # beside the runs' folders, whose names cannot begin so
BEST_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")


@dataclass(frozen=True)
class LocalOptions:
    """The options of a local run, as `launch --local` has them.

    Attributes:
        runner: What runs the hosts: "process", the Python that runs this, "docker" or "podman".
        image: The image to run in place of the spec's.
        data: A folder in place of AWS's storage: DATA/s3/<bucket>/... and, for file systems, DATA/efs/<fs-id>/ and so on.
        mounts: The directories in place of file systems: ("fs-0123456789abcdef0=/data",).
        channels: The folder, file or manifest that each of these channels reads: ("train=./images", "test=./more").
        sample: Read only this number of objects of each channel, evenly spaced over their keys.
        instance_count: Run this number of hosts, whatever the spec says.
        resume: Begin with the checkpoints of this earlier local run, or of the "latest", as with what it wrote to S3.
        stop_after: Stop the job after so many seconds of training, as StopTrainingJob does.
        interrupt_after: Interrupt the job once after so many seconds, as when spot instances are taken back, and restart it.
        interrupt_at: The same once a line of a host's log contains this text; of both, what comes first.
        no_namespaces: Run without /opt/ml; SAGEMAKER_BASE_DIR names the folder.
        shell: Open a shell in the host of this name instead of running the job, as `launch exec` does.
        command: What that shell runs; empty to read commands from the terminal or standard input.
        verbose: Show each difference from SageMaker, and the numbers of waits that the job's lines have.
        yes: Answer yes to every question.
        as_json: Print the result as JSON on stdout, and everything else on stderr.
    """

    runner: str = "process"
    image: str | None = None
    data: Path | None = None
    mounts: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    sample: int | None = None
    instance_count: int | None = None
    resume: str | None = None
    stop_after: float | None = None
    interrupt_after: float | None = None
    interrupt_at: str | None = None
    no_namespaces: bool = False
    shell: str | None = None
    command: str = ""
    verbose: bool = False
    yes: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class Host:
    name: str  # algo-1, algo-2, ...
    group: str
    instance_type: str


@dataclass(frozen=True)
class BindMount:
    """A directory of this machine that the runner mounts at `target`, an empty directory that exists."""

    source: Path
    target: Path
    read_only: bool
    written: Path | None = None  # an empty directory for an overlay: the job writes into it, not into the source


@dataclass(frozen=True)
class HostProcess:
    name: str
    root: Path  # the job's /opt/ml
    command: tuple[str, ...]
    environ: Mapping[str, str]
    binds: tuple[BindMount, ...]
    temporary: str  # a folder for temporary files

    @property
    def folder(self) -> Path:
        return self.root.parent


def hosts_of(request: Mapping[str, Any], instance_count: int | None = None) -> tuple[Host, ...]:
    """Return the request's hosts, for the first of its preferences; `instance_count` replaces their number, in each group."""
    resources = {"InstanceType": "local", "InstanceCount": 1, **request.get("ResourceConfig", {})}
    groups = [{"InstanceGroupName": contract.HOMOGENEOUS_GROUP, **each} for _, each in machine_sets(resources)[0]]
    each_host = [group for group in groups for _ in range(instance_count or group["InstanceCount"])]
    return tuple(
        Host(f"algo-{number}", group["InstanceGroupName"], group["InstanceType"])
        for number, group in enumerate(each_host, 1)
    )


def entries_of(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the InputDataConfig entries, each with its mode filled in from the job's."""
    default = request.get("AlgorithmSpecification", {}).get("TrainingInputMode", "File")
    return [{"InputMode": default, **entry} for entry in request.get("InputDataConfig", ())]


@contextmanager
def refuse_full_disk(folder: Path) -> Iterator[None]:
    """Raise RefusedError, with the run's folder or that for temporary files, if the disk of one is full."""
    try:
        yield
    except OSError as error:
        # A shutil.Error, of a whole folder, has no errno, but the texts of its errors.
        if not any(os.strerror(full) in str(error) for full in (errno.ENOSPC, errno.EDQUOT)):
            raise
        full, remedy, temporary = folder, "run on another disk", tempfile.gettempdir()
        if shutil.disk_usage(temporary).free < shutil.disk_usage(folder.parent).free:  # an error of writing has no name
            full, remedy = Path(temporary), "name a folder of another disk in TMPDIR"
        raise RefusedError(f"{full}: its disk is full; free space there, or {remedy}") from error
