"""The first process of a host of a local run: it sets up the host's file system, then becomes the job.

`processes` starts it in new user, mount, UTS and PID namespaces, where it is root without being root outside. It mounts
the host's directory at /opt/ml, mounts the channels, sets the host's name, and execs the container's entrypoint, which is PID 1
as in SageMaker's container.

The new /opt is a tmpfs into which every entry of the real /opt is mounted, not an overlay: this keeps file systems mounted below
/opt, works on kernels without overlays in user namespaces, and works if the run itself is below /opt.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

OVERLAY = "lowerdir=lower,upperdir=upper,workdir=work,userxattr"  # relative: a path in an option must not contain commas or colons
_KEPT_FLAGS = ("nosuid", "nodev", "noexec", "noatime", "relatime", "nodiratime")


def enter(host: dict[str, Any]) -> None:
    """Set up the namespaces and exec. `host` has the settings that `processes` passes."""
    tool = host["mount"]
    for bind in host["binds"]:
        if bind["written"]:
            _lay_over(tool, bind)
            continue
        _mount(tool, "--rbind", bind["source"], bind["target"])
        if bind["read_only"]:
            for target, flags in _mounts_at(bind["target"]):
                _mount(tool, "-o", ",".join(["remount", "bind", "ro", *flags]), target)
    base = Path(host["base_dir"])
    _show_at(tool, base, Path(host["root"]), Path(host["stage"]))
    _mount(tool, "--bind", host["etc_hosts"], "/etc/hosts")
    socket.sethostname(host["name"])
    os.chdir("/")
    try:
        os.execvpe(host["command"][0], host["command"], os.environ)
    except OSError as error:
        what = f"cannot run {host['command'][0]!r}: {error.strerror}"
        sys.exit(f"{what}; container_entrypoint must name a program of this machine")


def _lay_over(tool: str, bind: dict[str, Any]) -> None:
    """Show the source at the target through an overlay, which stores writes in the folder `written`."""
    os.chdir(bind["written"])
    os.symlink(bind["source"], "lower")  # noqa: PTH211 - a relative link
    for name in ("upper", "work"):
        os.mkdir(name)  # noqa: PTH102 - in the current directory
    _mount(tool, "-t", "overlay", "-o", OVERLAY, "overlay", bind["target"])


def _show_at(tool: str, base: Path, root: Path, stage: Path) -> None:
    """Show `root` at `base`; the parent of `base` keeps its other entries."""
    _mount(tool, "-t", "tmpfs", "-o", "mode=755", "none", str(stage))
    for entry in base.parent.iterdir():
        here = stage / entry.name
        if entry.name == base.name:
            continue
        if entry.is_symlink():
            here.symlink_to(entry.readlink())
        elif entry.is_dir():
            here.mkdir()
            _mount(tool, "--rbind", str(entry), str(here), optional=True)
        else:
            here.touch()
            _mount(tool, "--bind", str(entry), str(here), optional=True)
    (stage / base.name).mkdir()
    _mount(tool, "--rbind", str(root), str(stage / base.name))
    _mount(tool, "--rbind", str(stage), str(base.parent))


def _mount(tool: str, *arguments: str, optional: bool = False) -> None:
    """Run the program mount; exit with its message if it fails, unless it is optional because the source may be gone."""
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    if done.returncode and not optional:
        sys.exit(f"cannot set up the host: mount {' '.join(arguments)}: {done.stderr.strip()}")


def _mounts_at(target: str) -> list[tuple[str, list[str]]]:
    """Return the mounts at and below a path, each with the flags that a remount must keep: user namespaces lock them."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").strip().split("\n"):
        fields = line.split()
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        if place == target or place.startswith(f"{target}/"):
            found.append((place, [flag for flag in fields[5].split(",") if flag in _KEPT_FLAGS]))
    return found


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as file:
        settings = json.load(file)
    enter(settings)
