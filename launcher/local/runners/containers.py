"""Hosts as containers of the job's image, one each on a private network, by the command line of docker or podman.

No value of the environment is part of a container's settings, which all users of the engine can read: each container
starts with a shell as PID 1 that reads the variables from its standard input and then execs the image's program. So the names of
all hosts resolve before the first program starts, too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import ClassVar

from launcher.console import Console
from launcher.errors import InputError, RefusedError
from launcher.local.runners import ASK_SECONDS, HostProcess, Kept
from launcher.local.runners.creation import create, start, start_waiting
from launcher.local.runners.engine import KILL_SECONDS, Engine, Image
from launcher.local.runners.kept_images import kept_images
from launcher.local.runners.leftovers import LABEL, name_of_run, removed_at_the_end
from launcher.local.runners.mounts import csv_line, let_all_users_in
from launcher.local.sandbox import handles_sigterm
from launcher.local.workspace import Host, LocalOptions, LocalRun, hosts_of
from launcher.planning import Plan
from sagemaker_channels import contract

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


@contextmanager
def opened(plan: Plan, options: LocalOptions, console: Console) -> Iterator[Containers]:
    """Yield the runner, with the image and a private network; on leaving, its containers and network are gone."""
    isolated = bool(plan.request.get("EnableNetworkIsolation"))
    if options.no_namespaces:
        remedy = f"leave it out, or write --local without {options.runner}"
        raise InputError(f"--no-namespaces: containers have namespaces; {remedy}")
    if options.image_env:
        raise InputError(f"--image-env: --local {options.runner} has the image's variables; leave it out")
    engine = Engine(options.runner)
    name = (
        plan.request.get("AlgorithmSpecification", {}).get("TrainingImage") if options.image is None else options.image
    )
    if not name:
        raise InputError(f"--local {engine.name} needs an image, and none is named; write --image IMAGE")
    image = engine.image(name, console)
    run = name_of_run(plan.request["TrainingJobName"])
    label = f"{LABEL}={run}"
    with removed_at_the_end(engine, label, console):
        umask = os.umask(0o022)  # The image's user, which may be any, reads the files of the channels.
        try:
            internal = ["--internal"] if isolated else []  # only between the hosts
            engine.ask("network", "create", "--label", label, *internal, run)
            address = "127.0.0.1" if isolated else engine.gateway(run)
            if not (isolated or engine.dialect.has_daemon):
                start_waiting(engine, image, label, run)
            _refuse_foreign_address(engine, address)
            counts = (options.instance_count, *options.restart_hosts)
            alone = isolated and all(len(hosts_of(plan.request, count)) == 1 for count in counts)
            yield Containers(engine, image, label, console, address, isolated, alone)
        finally:
            os.umask(umask)


def _exports(environ: Mapping[str, str]) -> bytes:
    """Return a script of a shell that sets the variables; `command` lets it go on after one that it refuses, such as bash's UID."""
    return "".join(f"command export {name}={shlex.quote(value)}\n" for name, value in environ.items()).encode()


def _script(host: HostProcess, command: Sequence[str]) -> bytes:
    """Return a script that sets the host's variables and becomes a program."""
    return _exports(host.environ) + f"set -- {shlex.join(command)}\n".encode() + _EXEC


def _refuse_foreign_address(engine: Engine, address: str) -> None:
    """Raise RefusedError if the engine's networks are not on this machine."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            reason = f"{address}, the gateway of the containers' network, is not an address of this machine ({error.strerror})"
            remedy = "use an engine that is neither rootless nor in a virtual machine nor remote, or --local alone"
            raise RefusedError(f"--local {engine.name}: {reason}; {remedy}") from None


@dataclass
class Containers:
    """The runner of containers."""

    engine: Engine
    its_image: Image
    label: str
    console: Console
    address: str
    isolated: bool
    alone: bool  # without any network, even one of its own
    kept: list[Path] = field(default_factory=list)  # folders of the hosts that outlast the run
    begun: float = 0.0  # when the containers were started
    signalled: set[str] = field(default_factory=set)  # containers that this run has ended

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
    def _run(self) -> str:
        return self.label.partition("=")[2]

    @property
    def interface(self) -> str:
        return "lo" if self.alone else "eth0"

    def environ(self, run: LocalRun, host: Host, store: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of S3; with network isolation, a job gets no credentials."""
        if self.isolated:
            return {"AWS_REGION": store["AWS_REGION"]}
        endpoint = store.get("AWS_ENDPOINT_URL", "")
        if any(f"//{name}" in endpoint for name in ("127.", "localhost", "[::1]")):
            remedy = "name it in AWS_ENDPOINT_URL by an address that containers reach"
            raise RefusedError(f"AWS_ENDPOINT_URL {endpoint}: in a container this is the container itself; {remedy}")
        if not (bundle := store.get("AWS_CA_BUNDLE")):
            return dict(store)
        copy = Path(contract.CONFIG_DIR, "ca-bundle.pem")  # the path is this machine's
        try:
            shutil.copyfile(bundle, run.root(host) / copy)
        except OSError as error:
            remedy = "name a file of certificates, or unset it"
            raise RefusedError(f"AWS_CA_BUNDLE {bundle}: {error.strerror}; {remedy}") from None
        return {**store, "AWS_CA_BUNDLE": f"{contract.BASE_DIR}/{copy}"}

    def command(self, run: LocalRun, host: Host) -> tuple[str, ...]:
        """Return the request's entrypoint and arguments, or the image's own entry point with `train`."""
        algorithm = run.plan.request.get("AlgorithmSpecification", {})
        arguments = algorithm.get("ContainerArguments", ())
        if "ContainerEntrypoint" in algorithm:
            return (*algorithm["ContainerEntrypoint"], *arguments)
        return (*self.its_image.entrypoint, *(arguments or ("train",)))

    def prepare(self, hosts: Sequence[HostProcess]) -> None:
        """Create and start all containers, in place of those of an earlier attempt. Their programs wait for the variables."""
        names = f"name={self._run}-"  # not the container that waits
        if earlier := self.engine.ask("ps", "-aq", "--filter", names).split():
            self.engine.ask("rm", "-fv", *earlier)
        self.kept.clear()
        self.signalled.clear()
        self.begun = time.time()
        with ExitStack() as stack:
            stack.callback(self._give_back, hosts[0].root.parent.parent)
            for host in hosts:
                self.kept.extend(let_all_users_in(host))
                create(self.engine, self.its_image, host, self._name(host), self.label, self._network_options(host))
            start(self.engine, self.its_image, {self._name(host): host for host in hosts})
            stack.pop_all()

    def ask(self, host: HostProcess, command: Sequence[str]) -> bytes:
        program = [self.engine.program, "exec", "--interactive", self._name(host), "/bin/sh", "-s"]
        return subprocess.check_output(
            program, input=_script(host, command), stderr=subprocess.DEVNULL, timeout=ASK_SECONDS
        )

    def start(self, host: HostProcess) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["sh", "-c", _ATTACH, "sh", self.engine.program, *self.engine.dialect.attach, self._name(host)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the launcher forwards the terminal's Ctrl-C
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as stdin:  # its exit code shows that the container has ended
            stdin.write(_script(host, host.command))
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
                self.signalled.add(name)
                self.engine.ask("kill", "--signal", signal.SIGTERM.name, name)
                return True
        return False

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(RefusedError, subprocess.TimeoutExpired):
            self.signalled.add(str(process.args[-1]))  # type: ignore[index]
            self.engine.ask("kill", str(process.args[-1]))  # type: ignore[index]
            process.wait(timeout=KILL_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def finish(self, folder: Path) -> None:
        """Make this user the owner of what the containers' users wrote, in a container of the image, as only root can."""
        try:
            if self.engine.dialect.has_daemon:
                self._refuse_end_by_others()
        finally:
            self._give_back(folder)

    def keep(self, hosts: Sequence[HostProcess]) -> Kept:
        names = {self._name(host): host for host in hosts}
        return kept_images(self.engine, self.its_image, names, f"{LABEL}=kept", self.console)

    def _refuse_end_by_others(self) -> None:
        """Raise RefusedError if an engine that stops, or another program, has ended containers: some have exit code 0 then."""
        since = ("--since", f"{self.begun:f}", "--until", f"{time.time():f}")
        filters = ("--filter", f"label={self.label}", "--filter", "event=kill")
        shown = ("--format", "{{.Actor.Attributes.name}} {{.Actor.Attributes.signal}}")
        for line in self.engine.ask("events", *since, *filters, *shown).splitlines():
            name, number = line.split()
            if number in ("9", "15") and name not in self.signalled:
                host, instead = name.removeprefix(f"{self._run}-"), "to end a run, press Ctrl-C or use --stop-after"
                raise RefusedError(f"{host}: another program has ended its container by signal {number}; {instead}")

    def _give_back(self, folder: Path) -> None:
        if os.geteuid() == 0:
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

    def _network_options(self, host: HostProcess) -> tuple[str, ...]:
        if self.alone:
            return ("--network", "none", "--add-host", f"{host.name}:127.0.0.1")
        return ("--network", self._run, "--network-alias", host.name)

    def _name(self, host: HostProcess) -> str:
        return f"{self._run}-{host.name}"
