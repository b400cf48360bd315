"""Hosts as processes of this machine, in the Python that runs `launch`, and in their own namespaces if the machine allows them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from launcher.aws.account import Account
from launcher.aws.ecr import read_variables
from launcher.console import Console, counted
from launcher.errors import InputError, RefusedError
from launcher.local import enter, sandbox
from launcher.local.runners import ASK_SECONDS, HostProcess, Kept
from launcher.local.workspace import Host, LocalOptions, LocalRun
from launcher.planning import Plan, boot_arguments
from launcher.request.image_uris import image_region
from sagemaker_channels import contract

_QUIT_SECONDS = 2
# The variables that programs need on this machine; a job does not inherit any others.
_PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
)


@contextlib.contextmanager
def opened(plan: Plan, options: LocalOptions, console: Console) -> Iterator[Processes]:
    """Yield the runner. Raises InputError if only the image knows what to run."""
    if (
        not options.shell
        and plan.code is None
        and "ContainerEntrypoint" not in plan.request.get("AlgorithmSpecification", {})
    ):
        remedy = "write code: {directory: src, entry_point: train.py}, or run the image: --local docker"
        what = (
            "--local without docker needs code or container_entrypoint: without them only the image knows what to run"
        )
        raise InputError(f"{what}; {remedy}")
    if options.image is not None:
        raise InputError("--image: --local alone uses no image; write --local docker, or leave out --image")
    reason = "switched off" if options.no_namespaces else sandbox.why_no_namespaces()
    if reason is not None:
        instead = f"{contract.BASE_DIR_VARIABLE} and SM_* name the folder instead, hosts have no names"
        console.warn(f"there is no {contract.BASE_DIR} ({reason}): {instead}")
    if plan.request.get("EnableNetworkIsolation"):
        console.warn("local runs without docker do not enforce enable_network_isolation: the job can reach the network")
    variables: dict[str, str] = {}
    if options.image_env:
        variables = _variables_of_image(plan)
        console.say(f"{counted(len(variables), 'variable')} of the image: {', '.join(variables)}")
    yield Processes(mounts=reason is None, variables=variables)


def _variables_of_image(plan: Plan) -> dict[str, str]:
    """Ask ECR for the variables of the spec's image. Raises RefusedError with the option that asked."""
    uri = plan.request.get("AlgorithmSpecification", {}).get("TrainingImage", "")
    account = Account(region=image_region(uri), profile=plan.spec.profile)
    try:
        return read_variables(account.call, uri)
    except RefusedError as error:
        raise RefusedError(f"--image-env: {error}") from None


class Processes:
    """The runner of processes; `mounts` is whether they have namespaces, `variables` are those of the image."""

    other_users = False
    image = None
    network = "this machine's"
    own_network = False
    address = "127.0.0.1"

    def __init__(self, *, mounts: bool, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self.mounts, self.variables = mounts, variables
        self.interface = "lo0" if "lo0" in [name for _, name in socket.if_nameindex()] else "lo"  # macOS or Linux

    @cached_property
    def _port(self) -> int:
        """One free port, the same for all hosts, since other runs may use this machine as well."""
        with socket.socket() as probe:
            probe.bind((self.address, 0))
            return int(probe.getsockname()[1])

    def environ(self, run: LocalRun, host: Host, store: Mapping[str, str]) -> dict[str, str]:
        # The entrypoint's `python3` is the Python of the launcher, with its packages.
        paths = (str(Path(sys.executable).parent), self.variables.get("PATH"), os.environ.get("PATH", os.defpath))
        environ = {
            **{key: value for key, value in os.environ.items() if key in _PASSED_ON or key.startswith("PIP_")},
            **self.variables,
            "PATH": os.pathsep.join(filter(None, paths)),
            "HOME": str(run.host_folder(host) / "home"),
            "PYTHONUSERBASE": site.getuserbase(),
            **store,
            contract.MASTER_PORT_VARIABLE: str(self._port),
        }
        if not self.mounts:
            environ[contract.BASE_DIR_VARIABLE] = str(run.root(host))
            environ[contract.MASTER_ADDR_VARIABLE] = self.address
        return environ

    def command(self, run: LocalRun, host: Host) -> tuple[str, ...]:
        """Return the request's ContainerEntrypoint; without namespaces, with the real path of /opt/ml."""
        algorithm = run.plan.request.get("AlgorithmSpecification", {})
        if "ContainerEntrypoint" in algorithm:
            command = [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", ())]
        elif run.plan.spec.code is None:
            command = ["train"]  # never started: `opened` refuses such a job, unless it is for a shell
        else:
            run.note("start of the code", contract.BOOT_FILE, "the image's toolkit", same=False)
            boot = f"{contract.BASE_DIR}/{contract.DATA_DIR}/{contract.CODE_CHANNEL}/{contract.BOOT_FILE}"
            command = ["python3", boot, *boot_arguments(run.plan.spec.code)]
        if not self.mounts:
            root, prefix = run.root(host), f"{contract.BASE_DIR}/"
            command = [f"{root}/{word.removeprefix(prefix)}" if word.startswith(prefix) else word for word in command]
        return tuple(command)

    def prepare(self, hosts: Sequence[HostProcess]) -> None:
        """Write the hosts' folders and /etc/hosts, in which all have names."""
        here = Path("/etc/hosts")
        known = here.read_text(encoding="utf-8") if here.exists() else "127.0.0.1 localhost"
        added = "".join(f"\n127.0.1.{index} {each.name}" for index, each in enumerate(hosts, 1))
        for host in hosts:
            for name in ("home", "stage"):
                (host.root.parent / name).mkdir()
            (host.root.parent / "hosts").write_text(f"{known.rstrip()}{added}\n", encoding="utf-8")

    def ask(self, host: HostProcess, command: Sequence[str]) -> bytes:
        environ = dict(host.environ)
        return subprocess.check_output(
            command, cwd="/", env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=ASK_SECONDS
        )

    def start(self, host: HostProcess) -> subprocess.Popen[bytes]:
        return self._start(
            host,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the launcher forwards the terminal's Ctrl-C
        )

    def enter(self, host: HostProcess, stdout: int | None) -> subprocess.Popen[bytes]:
        return self._start(host, stdout=stdout)

    def _start(self, host: HostProcess, **options: Any) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as stack:
            command, inherited = host.command, list[int]()
            if self.mounts:
                # In memory, since the command can have secrets, as in the arguments of a hyperparameter.
                settings = stack.enter_context(os.fdopen(os.memfd_create("host"), "w+b"))
                settings.write(_settings(host))
                settings.seek(0)
                inherited.append(settings.fileno())
                # -I: the job must not import modules from the launcher's folder.
                command = (*sandbox.unshare(), sys.executable, "-I", enter.__file__, str(settings.fileno()))
            if setpriv := shutil.which("setpriv"):
                # The job ends even if the launcher is killed; without namespaces it is boot.py that ends the training (see `kill`).
                command = (setpriv, "--pdeathsig", "KILL" if self.mounts else "QUIT", *command)
            environ = {"TMPDIR": host.temporary, **host.environ}
            return subprocess.Popen(command, cwd="/", env=environ, pass_fds=inherited, **options)

    def terminate(self, process: subprocess.Popen[bytes]) -> bool:
        try:
            # `unshare` does not forward the signal, so it is sent to its child, PID 1 of the namespace.
            pids = [
                pid
                for pid in (_children(process.pid) if self.mounts else [process.pid])
                if sandbox.handles_sigterm(pid)
            ]
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            return bool(pids)
        except ProcessLookupError:
            return False

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            if not self.mounts:
                # The training has its own session, which only boot.py knows; on SIGQUIT it ends all of it.
                os.kill(process.pid, signal.SIGQUIT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_QUIT_SECONDS)
            os.killpg(process.pid, signal.SIGKILL)  # --kill-child ends the whole PID namespace

    def finish(self, folder: Path) -> None:
        """Do nothing: the processes are this user's."""

    def keep(self, hosts: Sequence[HostProcess]) -> Kept:
        """Copy the temporary files, without sockets and FIFOs."""
        for host in hosts:
            shutil.copytree(host.temporary, host.root.parent / "tmp", symlinks=True, ignore=_special)
        return Kept({}, ())


def _settings(host: HostProcess) -> bytes:
    """Return the settings that `enter` reads."""
    settings = {
        "name": host.name,
        "root": host.root,
        "base_dir": contract.BASE_DIR,
        "stage": host.root.parent / "stage",
        "etc_hosts": host.root.parent / "hosts",
        "binds": [asdict(bind) for bind in host.binds],
        "command": host.command,
        "mount": shutil.which("mount"),
    }
    return json.dumps(settings, default=str).encode()


def _special(folder: str, names: Sequence[str]) -> list[str]:
    paths = {name: Path(folder, name) for name in names}
    return [name for name, path in paths.items() if not (path.is_symlink() or path.is_dir() or path.is_file())]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
