"""Starting and ending the process of one host, in its own namespaces if the machine allows them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from entrypoints import contract
from launcher.local import enter
from launcher.local.data.delivery import BindMount

_UNSHARE = ("--user", "--map-root-user", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
_QUIT_SECONDS = 2
_TOOLS = ("unshare", "setpriv", "mount")


@dataclass(frozen=True)
class HostProcess:
    """The settings with which one host starts."""

    name: str
    root: Path  # the job's /opt/ml
    stage: Path  # an empty directory for the launcher
    command: tuple[str, ...]
    environ: Mapping[str, str]
    binds: tuple[BindMount, ...]
    etc_hosts: Path


@cache
def why_no_namespaces() -> str | None:
    """Return why /opt/ml cannot be mounted on this machine, or None if it can; found by one attempt."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no mount namespaces"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found (package util-linux)"
    base = Path(contract.BASE_DIR)
    if not base.parent.is_dir():
        return f"{base.parent} does not exist"
    return _attempt(f"mount -t tmpfs none {base.parent} && mkdir {base} && mount --bind /dev/null /etc/hosts")


def why_no_overlay(source: Path, scratch: Path) -> str | None:
    """Return why a host cannot get a folder through an overlay in `scratch`, or None if it can; found by one attempt."""
    trial = scratch / "trial"
    trial.mkdir(parents=True)
    steps = f'cd "$1" && ln -s "$2" lower && mkdir upper work it && mount -t overlay -o {enter.OVERLAY} overlay it'
    reason = _attempt(steps, trial, source)
    remove_overlay(trial)
    return reason


def _attempt(steps: str, *arguments: Path) -> str | None:
    """Run shell commands in new namespaces; return the first line of their errors, or None if they succeed."""
    command = [*_unshare(), "sh", "-c", steps, "sh", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unshare failed"])[0]


def remove_overlay(written: Path) -> None:
    """Remove the folders of an overlay, including the one that the kernel protects against all users."""
    with contextlib.suppress(FileNotFoundError):
        (written / "work" / "work").chmod(0o700)
    shutil.rmtree(written, ignore_errors=True)


def _unshare() -> list[str]:
    """Return the command by its full path, since PATH is the job's."""
    return [shutil.which("unshare") or "unshare", *_UNSHARE]


def start(host: HostProcess, *, namespaces: bool) -> subprocess.Popen[bytes]:
    """Start the host's process; its `stdout` and `stderr` are pipes."""
    if namespaces:
        settings = {
            "name": host.name,
            "root": host.root,
            "base_dir": contract.BASE_DIR,
            "stage": host.stage,
            "etc_hosts": host.etc_hosts,
            "binds": [asdict(bind) for bind in host.binds],
            "command": host.command,
            "mount": shutil.which("mount"),
        }
        settings_file = host.stage.with_suffix(".json")
        settings_file.write_text(json.dumps(settings, default=str), encoding="utf-8")
        # -I: the job must not import modules from the launcher's folder.
        command: Sequence[str | Path] = [*_unshare(), sys.executable, "-I", enter.__file__, settings_file]
    else:
        command = host.command
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]  # the job ends even if the launcher is killed
    return subprocess.Popen(
        command,
        cwd="/",
        env=dict(host.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # the launcher forwards the terminal's Ctrl-C
    )


def terminate(process: subprocess.Popen[bytes], *, namespaces: bool) -> bool:
    """Send SIGTERM to the host's PID 1; return whether a process handles it."""
    try:
        # `unshare` does not forward the signal, so it is sent to its child, PID 1 of the namespace.
        pids = [pid for pid in (_children(process.pid) if namespaces else [process.pid]) if _handles_sigterm(pid)]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        return bool(pids)
    except ProcessLookupError:
        return True


def kill(process: subprocess.Popen[bytes], *, namespaces: bool) -> None:
    """End all processes of a host."""
    with contextlib.suppress(ProcessLookupError):
        if not namespaces:
            # The training has its own session, which only boot.py knows; on SIGQUIT it ends all of it.
            os.kill(process.pid, signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_QUIT_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)  # --kill-child ends the whole PID namespace


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _handles_sigterm(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM; PID 1 receives no signal without a handler."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return not sys.platform.startswith("linux")
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
