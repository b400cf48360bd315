"""Hosts as processes of this machine, in the Python that runs `launch`, and in their own namespaces if the machine allows them."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from launcher.console import Console
from launcher.errors import InputError, RefusedError
from launcher.local import enter
from launcher.local.leftovers import remove_tree
from launcher.local.runs import RUNS_FOLDER
from launcher.local.workspace import BindMount, HostProcess, LocalOptions
from launcher.planning import Plan, boot_arguments
from sagemaker_channels import contract

_UNSHARE = ("--user", "--map-root-user", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
_TOOLS = ("unshare", "setpriv", "mount")
_QUIT_SECONDS = 2
# The variables that programs need on this machine; a job does not inherit any others.
_PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
)


@contextmanager
def opened(plan: Plan, options: LocalOptions, console: Console) -> Iterator[Processes]:
    """Yield the runner. Raises InputError if only the image knows what to run."""
    algorithm = plan.request.get("AlgorithmSpecification", {})
    if not options.shell and plan.code is None and "ContainerEntrypoint" not in algorithm:
        remedy = "write code: {directory: src, entry_point: train.py}, or run the image: --local docker"
        needs = "needs code or container_entrypoint: without them only the image knows what to run"
        raise InputError(f"--local without docker {needs}; {remedy}")
    if options.image is not None:
        raise InputError("--image: --local alone uses no image; write --local docker, or leave out --image")
    reason = "switched off" if options.no_namespaces else why_no_namespaces()
    if reason is not None:
        instead = f"{contract.BASE_DIR_VARIABLE} and SM_* name the folder instead, hosts have no names"
        console.warn(f"there is no {contract.BASE_DIR} ({reason}): {instead}")
    if plan.request.get("EnableNetworkIsolation"):
        console.warn("local runs without docker do not enforce enable_network_isolation: the job can reach the network")
    yield Processes(mounts=reason is None)


class Processes:
    """The runner of processes; `Containers` has the same attributes and methods.

    A host's process is that of a program on this machine, whose exit code is the host's. `mounts` is whether hosts have namespaces,
    with mounts and their folder at /opt/ml; if not, links and copies take the place of mounts, and hosts use the folder itself.
    """

    other_users = False  # whether a host's processes can be those of another user of this machine
    image = None  # that the hosts run
    network = "this machine's"  # for the report
    own_network = False  # whether the hosts have it for themselves
    address = "127.0.0.1"  # at which a host reaches the servers of this machine

    def __init__(self, *, mounts: bool) -> None:
        self.mounts = mounts
        self.interface = "lo0" if "lo0" in [name for _, name in socket.if_nameindex()] else "lo"  # macOS or Linux
        with socket.socket() as probe:
            probe.bind((self.address, 0))
            self._port = probe.getsockname()[1]  # the same for all hosts; other runs use this machine as well

    def settings(self, plan: Plan, root: Path, store: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the command of a host's PID 1, and its variables besides SageMaker's; `store` has those of S3."""
        # The entrypoint's `python3` is the Python of the launcher, with its packages.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        environ = {
            **{key: value for key, value in os.environ.items() if key in _PASSED_ON or key.startswith("PIP_")},
            "PATH": path,
            "HOME": str(root.parent / "home"),
            "PYTHONUSERBASE": site.getuserbase(),
            **store,
            contract.MASTER_PORT_VARIABLE: str(self._port),
        }
        algorithm = plan.request.get("AlgorithmSpecification", {})
        if "ContainerEntrypoint" in algorithm:
            command = [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", ())]
        elif plan.spec.code is None:
            command = ["train"]  # never started: `opened` refuses such a job, unless it is for a shell
        else:
            boot = f"{contract.BASE_DIR}/{contract.DATA_DIR}/{contract.CODE_CHANNEL}/{contract.BOOT_FILE}"
            command = ["python3", boot, *boot_arguments(plan.spec.code)]
        if not self.mounts:
            environ[contract.BASE_DIR_VARIABLE] = str(root)
            environ[contract.MASTER_ADDR_VARIABLE] = self.address
            prefix = f"{contract.BASE_DIR}/"
            command = [f"{root}/{word.removeprefix(prefix)}" if word.startswith(prefix) else word for word in command]
        return tuple(command), environ

    def prepare(self, hosts: Sequence[HostProcess]) -> None:
        """Make what the hosts need to start: their folders, and /etc/hosts, in which all have names."""
        here = Path("/etc/hosts")
        known = here.read_text(encoding="utf-8") if here.exists() else "127.0.0.1 localhost"
        added = "".join(f"\n127.0.1.{index} {each.name}" for index, each in enumerate(hosts, 1))
        for host in hosts:
            for bind in host.binds if not self.mounts else ():
                _put(bind)
            for name in ("home", "stage"):
                (host.folder / name).mkdir()
            (host.folder / "hosts").write_text(f"{known.rstrip()}{added}\n", encoding="utf-8")

    def versions(self, host: HostProcess, packages: Sequence[str]) -> Mapping[str, str]:
        """Return the versions of Python and of those packages in the prepared host: its Python is the launcher's."""
        found = {"Python": platform.python_version()}
        for name in packages:
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
        return found

    def start(self, host: HostProcess) -> subprocess.Popen[bytes]:
        """Start a prepared host's process; its `stdout` and `stderr` are pipes."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self._start(host, **pipes, start_new_session=True)  # the launcher forwards the terminal's Ctrl-C

    def enter(self, host: HostProcess, stdout: int | None) -> subprocess.Popen[bytes]:
        """Start a program in a prepared host, in place of `start`, on this process's terminal or standard input."""
        return self._start(host, stdout=stdout)

    def _start(self, host: HostProcess, **options: Any) -> subprocess.Popen[bytes]:
        with ExitStack() as stack:
            command, inherited = host.command, list[int]()
            if self.mounts and sys.platform == "linux":
                # In memory, since the command can have secrets, as in the arguments of a hyperparameter.
                settings = stack.enter_context(os.fdopen(os.memfd_create("host"), "w+b"))
                settings.write(_settings(host))
                settings.seek(0)
                inherited.append(settings.fileno())
                # -I: the job must not import modules from the launcher's folder.
                command = (*_unshare(), sys.executable, "-I", enter.__file__, str(settings.fileno()))
            if setpriv := shutil.which("setpriv"):
                # The job ends even if the launcher is killed; without namespaces it is boot.py that ends the training (see `kill`).
                command = (setpriv, "--pdeathsig", "KILL" if self.mounts else "QUIT", *command)
            environ = {"TMPDIR": host.temporary, **host.environ}
            return subprocess.Popen(command, cwd="/", env=environ, pass_fds=inherited, **options)

    def terminate(self, process: subprocess.Popen[bytes]) -> bool:
        """Send SIGTERM to the host's PID 1; return whether it was sent, which is only done if PID 1 handles it."""
        with suppress(FileNotFoundError, ProcessLookupError):
            pids = [process.pid]
            if self.mounts:
                # `unshare` does not forward the signal, so it is sent to its child, PID 1 of the namespace.
                pids = [*map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())]
            pids = [pid for pid in pids if handles_sigterm(pid)]
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            return bool(pids)
        return False

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End all processes of a host."""
        with suppress(ProcessLookupError):
            if not self.mounts:
                # The training has its own session, which only boot.py knows; on SIGQUIT it ends all of it.
                os.kill(process.pid, signal.SIGQUIT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_QUIT_SECONDS)
            os.killpg(process.pid, signal.SIGKILL)  # --kill-child ends the whole PID namespace

    def finish(self, folder: Path) -> None:
        """Make this user the owner of what the hosts wrote below a folder, as processes of this user do."""


def _put(bind: BindMount) -> None:
    """Put a link, or a copy to protect the source, in place of a mount. Links in a copy stay links."""
    bind.target.rmdir()
    if not bind.read_only:
        bind.target.symlink_to(bind.source)
        return
    try:
        shutil.copytree(bind.source, bind.target, symlinks=True)
    except OSError as error:  # shutil.Error has the errors of all files
        reason = error.strerror or "; ".join(f"{name}: {why}" for name, _, why in error.args[0][:1])
        raise RefusedError(f"{bind.source}: cannot be copied to {bind.target} ({reason})") from error


def _settings(host: HostProcess) -> bytes:
    """Return the settings that `enter` reads."""
    places = {"base_dir": contract.BASE_DIR, "stage": host.folder / "stage", "etc_hosts": host.folder / "hosts"}
    return json.dumps({**asdict(host), **places, "mount": shutil.which("mount")}, default=str).encode()


@cache
def why_no_namespaces() -> str | None:
    """Return why /opt/ml cannot be mounted on this machine, or None if it can; found by one attempt."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no mount namespaces"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found (package util-linux)"
    base = Path(contract.BASE_DIR)
    # There, root is not above the permissions of other users' folders.
    entered = f'{{ cd "$1" && {{ [ ! -d {RUNS_FOLDER} ] || cd {RUNS_FOLDER}; }}; }} 2>&-'
    refused = f'{{ echo "root may not enter another user\'s $1/{RUNS_FOLDER} in a namespace" >&2; exit 1; }}'
    mounted = f"mount -t tmpfs none {base.parent} && mkdir {base} && mount --bind /dev/null /etc/hosts"
    return _attempt(f"{entered} || {refused}; {mounted}", Path.cwd())


def why_no_overlay(source: Path, scratch: Path) -> str | None:
    """Return why a host cannot get a folder through an overlay in `scratch`, or None if it can; found by one attempt."""
    trial = scratch / "trial"
    trial.mkdir(parents=True)
    steps = f'cd "$1" && ln -s "$2" lower && mkdir upper work it && mount -t overlay -o {enter.OVERLAY} overlay it'
    reason = _attempt(steps, trial, source)
    remove_overlay(trial, lambda text: None)
    return reason


def remove_overlay(written: Path, on_warning: Callable[[str], None]) -> None:
    """Remove the folders of an overlay, including the one that the kernel protects against all users."""
    with suppress(OSError):  # none was mounted, or an engine mounted it as root
        (written / "work" / "work").chmod(0o700)
    remove_tree(written, on_warning)


def _attempt(steps: str, *arguments: Path) -> str | None:
    """Run shell commands in new namespaces; return the first line of their errors, or None if they succeed."""
    command = [*_unshare(), "sh", "-c", steps, "sh", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unshare failed"])[0]


def _unshare() -> list[str]:
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
