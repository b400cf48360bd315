"""One local run: its options, plan, folder and console."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launcher.console import Console
from launcher.local.cluster import Host
from launcher.planning import Plan


@dataclass(frozen=True)
class LocalOptions:
    """The options of a local run, as `launch --local` has them.

    Attributes:
        data: A folder in place of AWS's storage: DATA/s3/<bucket>/..., DATA/efs/<fs-id>/, DATA/fsx/<fs-id>/.
        mounts: The directories in place of file systems: ("fs-0123456789abcdef0=/data",).
        channels: The folder, file or manifest that each of these channels reads: ("train=./images", "test=./more").
        sample: Read only the first objects of each channel, this many.
        instance_count: Run this number of hosts, whatever the spec says.
        no_namespaces: Run without /opt/ml; SAGEMAKER_BASE_DIR names the folder.
        yes: Answer yes to every question.
        as_json: Print the result as JSON on stdout, and everything else on stderr.
    """

    data: Path | None = None
    mounts: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    sample: int | None = None
    instance_count: int | None = None
    no_namespaces: bool = False
    yes: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class LocalRun:
    """One run: its plan, options, folder, hosts and console."""

    plan: Plan
    options: LocalOptions
    folder: Path
    hosts: tuple[Host, ...]
    console: Console
    namespaces: bool
    named: Callable[[str], str] = str  # rewrites a message so that it names the user's own files

    @property
    def s3_folder(self) -> Path:
        """The folder that stands for S3 when the job writes."""
        return self.folder / "s3"

    def host_folder(self, host: Host) -> Path:
        """Return a host's part of the run's folder."""
        return self.folder / host.name

    def root(self, host: Host) -> Path:
        """Return the folder that is the host's /opt/ml."""
        return self.host_folder(host) / "ml"
