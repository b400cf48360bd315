"""How the hosts of a local run are run: one card per way, chosen by `--local` (`RUNNERS`)."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from launcher.local.data.delivery import BindMount

if TYPE_CHECKING:
    from launcher.console import Console
    from launcher.local.workspace import Host, LocalOptions, LocalRun
    from launcher.planning import Plan

ASK_SECONDS = 60
BEST_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")
RUNNERS = {"process": "processes", "docker": "containers", "podman": "containers"}


@dataclass(frozen=True)
class HostProcess:
    """The settings with which one host starts."""

    name: str
    root: Path  # the job's /opt/ml
    command: tuple[str, ...]
    environ: Mapping[str, str]
    binds: tuple[BindMount, ...]
    temporary: str  # a folder for temporary files


class Kept(NamedTuple):
    """What is left of the hosts for a look."""

    enter: Mapping[str, str]  # for each host, the command
    remove: tuple[str, ...]  # the commands


class Runner(Protocol):
    """One way of running hosts. A host's process is that of a program on this machine, whose exit code is the host's."""

    mounts: bool
    """Whether it makes the providers' mounts and shows each host's folder at /opt/ml; if not, hosts use the folder itself."""
    other_users: bool
    """Whether a host's processes can be those of another user of this machine."""
    interface: str
    """The network interface of a host."""
    image: str | None
    """The image that the hosts run, if any."""
    network: str
    """The hosts' network, for the report."""
    own_network: bool
    """Whether the hosts have it for themselves."""
    address: str
    """The address at which a host reaches the servers of this machine."""

    def environ(self, run: LocalRun, host: Host, store: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that a host gets besides SageMaker's; `store` has those of S3."""

    def command(self, run: LocalRun, host: Host) -> tuple[str, ...]:
        """Return the command of a host's PID 1."""

    def prepare(self, hosts: Sequence[HostProcess]) -> None:
        """Make what the hosts need to start. Raises RefusedError if they cannot start."""

    def ask(self, host: HostProcess, command: Sequence[str]) -> bytes:
        """Return what a program prints that runs as the prepared host's would. Raises OSError or SubprocessError if it fails."""

    def start(self, host: HostProcess) -> subprocess.Popen[bytes]:
        """Start a host's process; its `stdout` and `stderr` are pipes."""

    def enter(self, host: HostProcess, stdout: int | None) -> subprocess.Popen[bytes]:
        """Start a program in a prepared host, in place of `start`, on this process's terminal or standard input."""

    def terminate(self, process: subprocess.Popen[bytes]) -> bool:
        """Send SIGTERM to the host's PID 1; return whether it was sent, which is only done if PID 1 handles it."""

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End all processes of a host."""

    def finish(self, folder: Path) -> None:
        """Make this user the owner of what the hosts wrote below a folder. Raises RefusedError if hosts were ended from outside."""

    def keep(self, hosts: Sequence[HostProcess]) -> Kept:
        """Keep what ended hosts wrote outside their folders; return how to enter and remove it. Raises OSError if a copy fails."""


def opened(plan: Plan, options: LocalOptions, console: Console) -> AbstractContextManager[Runner]:
    """Open the runner that the options name; on leaving, nothing of it is left. Raises RefusedError if it cannot run here."""
    module = importlib.import_module(f"{__name__}.{RUNNERS[options.runner]}")
    runner: AbstractContextManager[Runner] = module.opened(plan, options, console)
    return runner
