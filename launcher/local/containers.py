"""Hosts as containers of the job's image, one each on a private network, by the command line of docker or podman.

No value of the environment is part of a container's settings, which all users of the engine can read: each container
starts with a shell as PID 1 that reads the variables from its standard input and then execs the image's program. So the names of
all hosts resolve before the first program starts, too.

It is the command line, not the Python package of docker: podman would need a service for that, and the package has no terminals
(`launch exec`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from launcher.console import Console
from launcher.errors import InputError, RefusedError
from launcher.local.engine import Engine, Image, csv_line, folder_mounts, let_all_users_in, mount_option
from launcher.local.leftovers import at_the_end
from launcher.local.processes import handles_sigterm
from launcher.local.workspace import HostProcess, LocalOptions, hosts_of
from launcher.planning import Plan
from sagemaker_channels import contract

_KILL_SECONDS = 10  # for the engine to end a container
LABEL = "sagemaker-launcher.run"  # of what a run makes in the engine; its value names the run
NVIDIA = Path("/dev/nvidiactl")
# Becomes the program of the arguments, unless no engine would run it: a shell takes any text for a script.
_EXEC = b"""set -- "$(command -v "$1")" "$@"
[ ! -f "$1" ] || [ ! -r "$1" ] || (IFS= read -r first <"$1"; case $first in "#!"* | ?ELF*) ;; *) exit 1 ;; esac) || {
    echo "$1: exec format error: it begins with no line such as #!/bin/sh" >&2
    exit 126
}
shift
exec "$@" </dev/null
"""
# Attaches, and ends with the container's exit code, which podman's `start` does not have.
_ATTACH = '"$@"; for name; do :; done; exit "$("$1" wait "$name" 2>/dev/null || echo 125)"'
_REMOVE = """
for pause in 0 1 3; do  # another program may be removing them
    sleep $pause
    names=$("$1" ps -aq --filter "label=$2") && [ -z "$names" ] || "$1" rm -fv $names && break
done
names=$("$1" network ls -q --filter "label=$2") && [ -z "$names" ] || "$1" network rm $names
"""
# Prints the versions of this Python and of the packages that its arguments name, as JSON.
_VERSIONS = """
import json, platform, sys
from importlib import metadata
found = {"Python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except ImportError:
        pass
print(json.dumps(found))
"""


@contextmanager
def opened(plan: Plan, options: LocalOptions, console: Console) -> Iterator[Containers]:
    """Yield the runner, with the image and a private network; on leaving, its containers and network are gone."""
    isolated = bool(plan.request.get("EnableNetworkIsolation"))
    if options.no_namespaces:
        remedy = f"leave it out, or write --local without {options.runner}"
        raise InputError(f"--no-namespaces: containers have namespaces; {remedy}")
    engine = Engine(options.runner)
    engine.refuse_fifos(plan.request, options)
    name = options.image
    if name is None:
        name = plan.request.get("AlgorithmSpecification", {}).get("TrainingImage")
    if not name:
        raise InputError(f"--local {engine.name} needs an image, and none is named; write --image IMAGE")
    image = engine.image(name, console)
    run = f"launch-{plan.request['TrainingJobName']}-{os.getpid()}"  # which `launch exec` knows
    label = f"{LABEL}={run}"
    umask = os.umask(0o022)  # The image's user, which may be any, reads the files of the channels.
    try:
        with at_the_end(_REMOVE, engine.program, label):
            internal = ["--internal"] if isolated else []  # only between the hosts
            engine.ask("network", "create", "--label", label, *internal, run)
            address = "127.0.0.1"
            if not isolated and sys.platform == "linux":
                if not engine.dialect.has_daemon:
                    _start_waiting(engine, image, label, run)
                address = engine.gateway(run)
            alone = isolated and len(hosts_of(plan.request, options.instance_count)) == 1
            yield Containers(engine, image, label, console, address, isolated, alone)
        _warn_of_leftovers(engine, label, console)
    finally:
        os.umask(umask)


def _start_waiting(engine: Engine, image: Image, label: str, network: str) -> None:
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


def _warn_of_leftovers(engine: Engine, label: str, console: Console) -> None:
    chosen = f"--filter label={label}"
    with suppress(RefusedError):
        if not engine.ask("ps", "-aq", *chosen.split()):
            return
    remove = f"{engine.name} rm -fv $({engine.name} ps -aq {chosen}); {engine.name} network prune {chosen}"
    console.warn(f"the run's containers could not be removed; `{remove}` removes them")


def _exports(environ: Mapping[str, str]) -> bytes:
    """Return a script of a shell that sets the variables; `command` lets it go on after one that it refuses, such as bash's UID."""
    return "".join(f"command export {name}={shlex.quote(value)}\n" for name, value in environ.items()).encode()


@dataclass
class Containers:
    """The runner of containers, as `Processes` is that of processes."""

    engine: Engine
    its_image: Image
    label: str
    console: Console
    address: str
    isolated: bool
    alone: bool  # without any network, even one of its own
    kept: list[Path] = field(default_factory=list)  # folders of the hosts that outlast the run

    mounts: ClassVar[bool] = True
    own_network: ClassVar[bool] = True
    other_users: ClassVar[bool] = True

    @property
    def image(self) -> str:
        return self.its_image.name

    @property
    def network(self) -> str:
        return "none" if self.alone else "only between the hosts" if self.isolated else "one of the hosts' own"

    @property
    def interface(self) -> str:
        return "lo" if self.alone else "eth0"

    def settings(self, plan: Plan, root: Path, store: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the request's entrypoint and arguments, or the image's own entry point with `train`; and the variables of S3."""
        algorithm = plan.request.get("AlgorithmSpecification", {})
        arguments = algorithm.get("ContainerArguments", ())
        command = (*self.its_image.entrypoint, *(arguments or ("train",)))
        if "ContainerEntrypoint" in algorithm:
            command = (*algorithm["ContainerEntrypoint"], *arguments)
        return command, self._environ(root, store)

    def _environ(self, root: Path, store: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of S3; with network isolation, a job gets no credentials."""
        if self.isolated:
            return {"AWS_REGION": store["AWS_REGION"]}
        store = self.engine.reachable(store)
        endpoint = store.get("AWS_ENDPOINT_URL", "")
        if any(f"//{name}" in endpoint for name in ("127.", "localhost", "[::1]")):
            remedy = "name it in AWS_ENDPOINT_URL by an address that containers reach"
            raise RefusedError(f"AWS_ENDPOINT_URL {endpoint}: in a container this is the container itself; {remedy}")
        if not (bundle := store.get("AWS_CA_BUNDLE")):
            return dict(store)
        copy = Path(contract.CONFIG_DIR, "ca-bundle.pem")  # the path is this machine's
        try:
            shutil.copyfile(bundle, root / copy)
        except OSError as error:
            raise RefusedError(f"AWS_CA_BUNDLE {bundle}: cannot be read: {error.strerror}; correct the path") from None
        return {**store, "AWS_CA_BUNDLE": f"{contract.BASE_DIR}/{copy}"}

    def prepare(self, hosts: Sequence[HostProcess]) -> None:
        """Create and start all containers, in place of those of an earlier attempt. Their programs wait for the variables."""
        names = [self._name(host) for host in hosts]
        if earlier := self.engine.ask("ps", "-aq", "--filter", f"name={self._run}-").split():  # not the one that waits
            self.engine.ask("rm", "-fv", *earlier)
        self.kept = [folder for host in hosts for folder in let_all_users_in(host)]
        try:
            for host in hosts:
                self._create(host)
            self.engine.ask("start", *names)
            for each in self.engine.inspect("container", *names):
                _refuse_ended_shell(self.engine, self.its_image, each["State"])
            for host in hosts if self.its_image.is_of_other_user else ():  # for root, boot.py does it
                self.engine.ask("exec", "--user", "0", self._name(host), "chmod", "777", contract.BASE_DIR)
        except BaseException:
            self.finish(hosts[0].folder.parent)
            raise

    def _create(self, host: HostProcess) -> None:
        options = [*folder_mounts(host)]
        options += [word for bind in host.binds for word in mount_option(host, bind)]
        network = ("--network", self._run, "--network-alias", host.name)
        if self.alone:
            network = ("--network", "none", "--add-host", f"{host.name}:127.0.0.1")
        self.engine.ask(
            "create",
            *("--interactive", *self.engine.dialect.options),
            *("--name", self._name(host), "--label", self.label, "--hostname", host.name),
            *network,
            # The default of 64 MB is too small for DataLoaders. Half of the memory is what tmpfs has by default.
            *("--shm-size", str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)),
            *("--log-driver", "none"),  # the run's own log is enough
            *("--security-opt", "label=disable"),  # SELinux would need other labels on the user's data
            *(self.engine.dialect.gpus if NVIDIA.exists() else ()),
            *options,
            *("--entrypoint", "/bin/sh", self.its_image.identity, "-s"),
        )

    def versions(self, host: HostProcess, packages: Sequence[str]) -> Mapping[str, str]:
        """Return the versions that the image's Python reports; none if it has no Python."""
        with suppress(RefusedError, ValueError):
            return dict(json.loads(self.engine.ask("exec", self._name(host), "python3", "-c", _VERSIONS, *packages)))
        return {}

    def start(self, host: HostProcess) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _ATTACH, "sh", self.engine.program, *self.engine.dialect.attach, self._name(host)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the launcher forwards the terminal's Ctrl-C
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as stdin:  # its exit code shows that the container has ended
            stdin.write(_exports(host.environ) + f"set -- {shlex.join(host.command)}\n".encode() + _EXEC)
        return process

    def enter(self, host: HostProcess, stdout: int | None) -> subprocess.Popen[bytes]:
        # The program keeps the terminal, so it gets its variables by a FIFO, in a folder that the container cannot write.
        variables = host.root / contract.CONFIG_DIR / ".variables"
        os.mkfifo(variables, 0o644)  # for the image's user; other users of this machine cannot enter the folder
        Thread(target=variables.write_bytes, args=[_exports(host.environ)], daemon=True).start()
        terminal = ["--tty"] if sys.stdin.isatty() else []
        script = f'. {contract.BASE_DIR}/{variables.relative_to(host.root)} && exec "$@"'
        options = ("--interactive", *terminal, self._name(host))
        command = [self.engine.program, "exec", *options, "/bin/sh", "-c", script, "sh", *host.command]
        return subprocess.Popen(command, stdout=stdout)

    def terminate(self, process: subprocess.Popen[bytes]) -> bool:
        with suppress(RefusedError):
            name = str(process.args[-1])  # type: ignore[index]
            [state] = self.engine.inspect("container", name)
            if state["State"]["Running"] and handles_sigterm(state["State"]["Pid"]):
                self.engine.ask("kill", "--signal", signal.SIGTERM.name, name)
                return True
        return False

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(RefusedError, subprocess.TimeoutExpired):
            self.engine.ask("kill", str(process.args[-1]))  # type: ignore[index]
            process.wait(timeout=_KILL_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def finish(self, folder: Path) -> None:
        """Make this user the owner of what the containers' users wrote, in a container of the image, as only root can."""
        if os.geteuid() == 0 or sys.platform != "linux":  # Docker Desktop's file sharing does it.
            return
        targets = {each.absolute(): f"target=/folders/{number}" for number, each in enumerate((folder, *self.kept))}
        mounts = [csv_line("type=bind", f"source={each}", targets[each], "bind-nonrecursive") for each in targets]
        options = [word for mount in mounts for word in ("--mount", mount)]
        options += ("--rm", "--user", "0", "--network", "none", "--label", self.label)
        owner = f"{os.geteuid()}:{os.getegid()}"
        try:
            self.engine.ask("run", *options, "--entrypoint", "chown", self.its_image.identity, "-hR", owner, "/folders")
        except RefusedError as error:
            self.console.warn(f"{folder}: what the containers wrote there may belong to other users ({error})")

    @property
    def _run(self) -> str:
        return self.label.partition("=")[2]

    def _name(self, host: HostProcess) -> str:
        return f"{self._run}-{host.name}"
