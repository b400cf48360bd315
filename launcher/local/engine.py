"""The container engine of this machine, by its command line: what its refusals mean for the user, and how it mounts folders."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.console import Console
from launcher.errors import RefusedError, did_you_mean
from launcher.local.workspace import WARM_POOLS, BindMount, HostProcess, LocalOptions, entries_of
from launcher.request.image_uris import image_region
from sagemaker_channels import contract


@dataclass(frozen=True)
class Dialect:
    """What an engine has of its own."""

    package: str
    gpus: tuple[str, ...]  # the options for all GPUs
    attach: tuple[str, ...]  # the command that attaches to a running container
    options: tuple[str, ...] = ()  # for `create`
    # Whether a daemon makes the network's bridge and each overlay; if not, they exist only while a container runs.
    has_daemon: bool = True


DIALECTS = {
    "docker": Dialect(
        package="docker.io",
        gpus=("--gpus", "all"),
        # Not `start`, which starts again what has ended since it attached.
        attach=("attach", "--sig-proxy=false", "--detach-keys="),
    ),
    "podman": Dialect(
        package="podman",
        gpus=("--device", "nvidia.com/gpu=all"),
        # Not `attach`, which adds a line to the program's; `start` only attaches to what runs.
        attach=("start", "--attach", "--interactive", "--detach-keys="),
        # As docker does: no proxy variables of this machine, and `rm --force` does not wait.
        options=("--http-proxy=false", "--stop-timeout", "0"),
        has_daemon=False,
    ),
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What the engines' messages contain -> what to do.
_REMEDIES = {
    r"permission denied while trying to connect|connect: permission denied": "you may not use the engine:"
    " `sudo usermod -aG docker $USER`, then log in again",
    r"cannot connect to the docker daemon|failed to connect to the docker api|error during connect": "no engine is running:"
    " start it (`sudo systemctl start docker`, or Docker Desktop), or correct DOCKER_HOST",
    r"no space left on device": "free space on the engine's disk: `{engine} system df` shows its use,"
    " `{engine} system prune` removes what is unused",
    r"no matching manifest": "pull it for another processor, which is slow: `{engine} pull --platform linux/amd64 IMAGE`",
    r"mounts denied|not shared from the host": "share the folder in Docker Desktop's settings (Resources, File sharing)",
    r"/bin/sh\W.*(no such file|not found)": "the image has no /bin/sh, through which a local run passes the variables;"
    " add one to the image",
    r"could not select device driver|nvidia-container": "install the NVIDIA Container Toolkit",
    r"nvidia\.com/gpu": "install the NVIDIA Container Toolkit, then `sudo nvidia-ctk cdi generate --output /etc/cdi/nvidia.yaml`",
    r"invalid reference format|must be lowercase": "write it as NAME:TAG, in lower case, such as python:3.12",
    r"short-name": "name the image with its registry, such as docker.io/library/python:3.12",
    r"address pool": "the engine's networks use all its addresses: `{engine} network prune` removes unused ones",
}


@dataclass(frozen=True)
class Image:
    """An image that the engine has."""

    name: str
    identity: str
    entrypoint: tuple[str, ...]
    is_of_other_user: bool = False  # than root


class Engine:
    """The engine that the command line `name` controls: on other systems than Linux, that of Docker Desktop's virtual machine."""

    def __init__(self, name: str) -> None:
        """Find the engine. Raises RefusedError if there is none, or this user may not use it."""
        program = shutil.which(name)
        self.dialect = DIALECTS[name]
        if sys.platform != "linux" and name != "docker":
            raise RefusedError(f"--local {name} needs Linux; use --local docker, with Docker Desktop")
        if program is None:
            package = f"`apt-get install {self.dialect.package}`" if sys.platform == "linux" else "Docker Desktop"
            remedy = f"install it ({package}), or leave out {name}"
            raise RefusedError(f"--local {name}: there is no program {name}; {remedy}")
        version = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if b"podman" in version.stdout:  # also as a program named docker
            self.dialect = DIALECTS["podman"]
        if not self.dialect.has_daemon and os.geteuid():
            reason = "without root, the gateway of its networks is not an address of this machine"
            raise RefusedError(f"--local {name}: {reason}; use sudo, or --local alone")
        self.program = program
        self.name = name
        self.ask("ps", "--quiet")

    def ask(self, *arguments: str) -> str:
        """Return what a command prints. Raises RefusedError with a remedy if it fails."""
        done = subprocess.run(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,  # The terminal's Ctrl-C would also end commands that must not be interrupted.
        )
        if done.returncode:
            raise self._refusal(arguments[0], done.stderr)
        return done.stdout

    def inspect(self, kind: str, *names: str) -> list[Any]:
        """Return what the engine knows of containers, images or networks."""
        found: list[Any] = json.loads(self.ask(kind, "inspect", *names))
        return found

    def gateway(self, network: str) -> str:
        """Return the address of this machine in a network. Raises RefusedError if the engine's networks are not on this machine."""
        [found] = self.inspect("network", network)
        subnets: list[Mapping[str, str]] = found["subnets"] if "subnets" in found else found["IPAM"]["Config"]
        address = next(value for key, value in subnets[0].items() if key.lower() == "gateway")
        with socket.socket() as probe:
            try:
                probe.bind((address, 0))
            except OSError as error:
                reason = f"{address}, the gateway of the containers' network, is not an address of this machine ({error.strerror})"
                remedy = "use an engine that is neither rootless nor in a virtual machine nor remote, or --local alone"
                raise RefusedError(f"--local {self.name}: {reason}; {remedy}") from None
        return address

    def refuse_fifos(self, request: Mapping[str, Any], options: LocalOptions) -> None:
        """Raise RefusedError for what needs a FIFO, which does not reach into a virtual machine (docker/for-mac#911)."""
        pipes = [entry["ChannelName"] for entry in entries_of(request) if entry["InputMode"] == "Pipe"]
        if sys.platform != "linux" and options.shell:
            raise RefusedError("a shell in a container needs Linux: it gets its variables by a FIFO; leave out docker")
        if sys.platform != "linux" and pipes:
            remedy = f"use --local alone, or another mode: --set channels.{pipes[0]}.input_mode=File"
            raise RefusedError(f"--local docker needs Linux for input_mode Pipe (channel {', '.join(pipes)}); {remedy}")

    def reachable(self, store: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables of a store with the name by which Docker Desktop's containers reach 127.0.0.1 of this machine.

        See https://docs.docker.com/desktop/features/networking/.
        """
        named = [name for name in store if name.lower().startswith(("aws_endpoint_url", "no_proxy"))]
        if sys.platform != "linux":
            here = re.compile(r"127\.0\.0\.1|localhost")
            store = {**store, **{name: here.sub("host.docker.internal", store[name], count=1) for name in named}}
        return store

    def image(self, name: str, console: Console) -> Image:
        """Return an image, pulled if the engine does not have it. Raises RefusedError if it cannot be used."""
        try:
            [found] = self.inspect("image", name)
        except RefusedError:
            console.say(f"pulling {name}")
            self._pull(name)
            [found] = self.inspect("image", name)
        machine = platform.machine()
        if found["Architecture"] != _ARCHITECTURES.get(machine, machine) and not _is_emulated(found["Architecture"]):
            remedy = "use an image for this machine, or install qemu-user-static, with which it runs slowly"
            raise RefusedError(f"{name}: the image is for {found['Architecture']}, this machine is {machine}; {remedy}")
        config = found["Config"]
        is_of_other_user = (config.get("User") or "root").partition(":")[0] not in ("root", "0")
        return Image(name, found["Id"], tuple(config.get("Entrypoint") or ()), is_of_other_user)

    def _pull(self, name: str) -> None:
        command = [self.program, "pull", name]
        # Progress goes to standard error (2), since --json prints the result on standard output.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=2, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            remedy = f"build or load it, name another by --image, or log in: `{_login(self.name, name)}`"
            listed = self.ask("images", "--format", "{{.Repository}}:{{.Tag}}").split()
            hint = did_you_mean(name.removeprefix("localhost/"), [each.removeprefix("localhost/") for each in listed])
            raise self._refusal(f"pull {name}", done.stderr, remedy, hint)

    def _refusal(self, what: str, errors: str, remedy: str = "", hint: str = "") -> RefusedError:
        errors = re.sub(r"(?m)^(time=|Trying to pull ).*", "", errors)  # podman's log of its attempts
        text = " ".join(errors.split()).partition(" Error: failed to start containers: ")[0]
        found = (known for pattern, known in _REMEDIES.items() if re.search(pattern, text, re.IGNORECASE))
        reason = text.removeprefix("Error response from daemon: ").removeprefix("Error: ")
        advice = next(found, remedy).replace("{engine}", self.name)
        return RefusedError(f"{self.name} {what}: {reason}{advice and '; '}{advice}{hint}")


def _login(engine: str, image: str) -> str:
    """Return the command that logs in to the registry of an image."""
    registry, slash, _ = image.partition("/")
    if region := image_region(image):
        password = f"aws ecr get-login-password --region {region}"
        return f"{password} | {engine} login --username AWS --password-stdin {registry}"
    is_named = slash and ("." in registry or ":" in registry or registry == "localhost")
    return f"{engine} login {registry}" if is_named else f"{engine} login"


def _is_emulated(architecture: str) -> bool:
    if sys.platform != "linux":
        return True  # Docker Desktop has QEMU and Rosetta.
    machine = next((mine for mine, theirs in _ARCHITECTURES.items() if theirs == architecture), architecture)
    return Path(f"/proc/sys/fs/binfmt_misc/qemu-{machine}").exists()


def _target(host: HostProcess, path: Path) -> Path:
    """Return the path in the container of a mount's target."""
    root = host.root.absolute()
    return Path(contract.BASE_DIR, path.relative_to(root)) if path.is_relative_to(root) else path


def folder_mounts(host: HostProcess) -> Iterator[str]:
    """Yield the options that mount SageMaker's own folders; that of the output data would else be hidden by a volume of the image.

    The rest of /opt/ml is the image's, which may have its code there. A mount also cannot be replaced by a link, which would lead
    to another file of this machine than of the container. The container cannot write where this machine writes files while it runs.
    """
    bound = {bind.target for bind in host.binds}
    for name in (
        contract.CONFIG_DIR,
        contract.DATA_DIR,
        contract.MODEL_DIR,
        contract.OUTPUT_DIR,
        contract.OUTPUT_DATA_DIR,
    ):
        if (folder := host.root.absolute() / name) not in bound:
            folder.mkdir(parents=True, exist_ok=True)
            yield from mount_option(host, BindMount(folder, folder, read_only=name == contract.CONFIG_DIR))


def mount_option(host: HostProcess, bind: BindMount) -> tuple[str, str]:
    """Return the option of `create` for a mount."""
    mode = ["readonly"] if bind.read_only else []
    return "--mount", csv_line("type=bind", f"source={bind.source}", f"target={_target(host, bind.target)}", *mode)


def csv_line(*fields: str) -> str:
    """Return the fields as --mount takes them: one line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def let_all_users_in(host: HostProcess) -> list[Path]:
    """Let the image's user, which may be any, read and write as in SageMaker; outside, only this user may enter the folders.

    Returns:
        The host's folders outside the run's own, whose owner must be this user again after the run.
    """
    for file in (host.root / contract.CONFIG_DIR).iterdir():
        file.chmod(0o644)
    pools = host.root.parents[2].absolute() / WARM_POOLS
    binds = [bind.source for bind in host.binds if not bind.read_only]
    own = [folder for folder in binds if folder.is_relative_to(host.root.parent.absolute())]
    kept = [folder for folder in binds if folder.is_relative_to(pools)]
    for folder in (host.root, *kept):
        folder.parent.chmod(0o700)
    written = (host.root / name for name in (contract.MODEL_DIR, contract.OUTPUT_DIR, contract.OUTPUT_DATA_DIR))
    for folder in (host.root, *written):
        folder.chmod(0o777)
    for folder in (*own, *kept):
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink() and os.geteuid() in (0, path.stat().st_uid):
                path.chmod(path.stat().st_mode & 0o777 | (0o777 if path.is_dir() else 0o666))
    return kept
