"""The namespaces of a host that is a process: whether this machine allows them, and what runs in them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

from launcher.local import enter
from sagemaker_channels import contract

_UNSHARE = ("--user", "--map-root-user", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
_TOOLS = ("unshare", "setpriv", "mount")


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
    command = [*unshare(), "sh", "-c", steps, "sh", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unshare failed"])[0]


def remove_overlay(written: Path) -> None:
    """Remove the folders of an overlay, including the one that the kernel protects against all users."""
    with contextlib.suppress(OSError):  # none was mounted, or an engine mounted it as root
        (written / "work" / "work").chmod(0o700)
    shutil.rmtree(written, ignore_errors=True)


def unshare() -> list[str]:
    """Return the command that starts a program in new namespaces, by its full path, since PATH is the job's."""
    return [shutil.which("unshare") or "unshare", *_UNSHARE]


def handles_sigterm(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM; PID 1 receives no signal without a handler.

    True as well if that is unknown: on macOS, for a process that has ended, and for one that `hidepid` of /proc hides.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
