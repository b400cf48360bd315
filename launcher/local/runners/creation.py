"""Creating and starting the hosts' containers, whose shells then wait for the variables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.errors import RefusedError
from launcher.local.runners import HostProcess
from launcher.local.runners.engine import Engine, Image
from launcher.local.runners.mounts import folder_mounts, mount_options, target_of
from sagemaker_channels import contract

_NVIDIA = Path("/dev/nvidiactl")
# Run with the container's root, so that no link of the image leads out of it.
_OPEN = "import os, sys; os.chroot(sys.argv[1]); [os.chmod(target, 0o777) for target in sys.argv[2:]]"


def create(engine: Engine, image: Image, host: HostProcess, name: str, label: str, network: Sequence[str]) -> None:
    """Create a host's container, with its folders and channels. Raises RefusedError if the engine refuses it."""
    options = [*folder_mounts(host, image.volumes)]
    options += [option for bind in host.binds for option in mount_options(host, bind, engine.dialect, label)]
    engine.ask(
        "create",
        *("--interactive", *engine.dialect.options),
        *("--name", name, "--label", label, "--hostname", host.name),
        *network,
        # The default of 64 MB is too small for DataLoaders. Half of the memory is what tmpfs has by default.
        *("--shm-size", str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)),
        *("--log-driver", "none"),  # the run's own log is enough
        *("--security-opt", "label=disable"),  # SELinux would need other labels on the user's data
        *(engine.dialect.gpus if _NVIDIA.exists() else ()),
        *options,
        *("--entrypoint", "/bin/sh", image.identity, "-s"),
    )
    if engine.dialect.has_daemon and image.is_of_other_user:
        _open_base(engine, host, name)


def start(engine: Engine, image: Image, hosts: Mapping[str, HostProcess]) -> None:
    """Start the containers of the hosts, which are by their names. Raises RefusedError if a container's shell ends."""
    engine.ask("start", *hosts)
    states = [each["State"] for each in engine.inspect("container", *hosts)]
    for state in states:
        _refuse_ended_shell(engine, image, state)
    if not engine.dialect.has_daemon:
        for host, state in zip(hosts.values(), states, strict=True):
            _open_folders(image, host, state["Pid"])


def start_waiting(engine: Engine, image: Image, label: str, network: str) -> None:
    """Start a container that only waits, so that the network's address exists. Raises RefusedError if its shell ends."""
    options = ("--detach", "--interactive", *engine.dialect.options, "--label", label, "--network", network)
    name = engine.ask("run", *options, "--entrypoint", "/bin/sh", image.identity, "-s").strip()
    try:
        engine.ask("exec", name, "/bin/sh", "-c", ":")  # A shell that cannot run may not have ended yet.
    except RefusedError:
        _refuse_ended_shell(engine, image, engine.inspect("container", name)[0]["State"])
        raise


def _refuse_ended_shell(engine: Engine, image: Image, state: Mapping[str, Any]) -> None:
    if not state["Running"]:
        reason = f"/bin/sh, through which a local run passes the variables, ended with code {state['ExitCode']}"
        remedy = f"see why with `{engine.name} run -it --entrypoint /bin/sh {image.name}`"
        raise RefusedError(f"{image.name}: {reason}; {remedy}")


def _open_folders(image: Image, host: HostProcess, pid: int) -> None:
    """Let all users write in /opt/ml, as boot.py does, and in overlays, which have other modes after the start."""
    base = [Path(contract.BASE_DIR)] if image.is_of_other_user else []
    overlays = [target_of(host, bind.target) for bind in host.binds if bind.written is not None]
    if targets := [*base, *overlays]:
        subprocess.run([sys.executable, "-I", "-c", _OPEN, f"/proc/{pid}/root", *targets], check=True)


def _open_base(engine: Engine, host: HostProcess, name: str) -> None:
    """Let all users write in /opt/ml, by a copy of an empty folder with this mode."""
    base = Path(contract.BASE_DIR)
    opened = Path(host.temporary, base.name)
    opened.mkdir()
    opened.chmod(0o777)
    with suppress(RefusedError):  # a link of the image, which boot.py refuses with a remedy if it is not writable
        engine.ask("cp", str(opened), f"{name}:{base.parent}")
