"""Container engines of the tests' own, in private folders, and an image of this machine's Python."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from launcher.local.containers import LABEL
from patience import PATIENCE, wait_for

IMAGE = "launch-tests/python:1"
_ATTEMPTS = 3  # dockerd gives up if its containerd takes more than 15 s to start
_SECONDS = 60  # after which an engine hangs
# Where the connector's client looks for certificates: on Debian and Ubuntu, and on Fedora.
_CERTIFICATES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
_TOOLS = ("sh", "chmod", "chown", "cat", "sleep")
_LEFT_OUT = (
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "pydoc_data",
)
_MODULES = ("zlib", "_bz2", "_lzma", "_ssl", "_hashlib", "_ctypes", "_sqlite3")  # those that need libraries


class CannotStartError(Exception):
    """This machine cannot run an engine; the message has the reason."""


class Engine:
    """An engine that keeps everything in a folder of its own."""

    name: str
    programs: tuple[str, ...]
    gateway: str  # the place of the gateway in what the engine knows of a network

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ: dict[str, str] = {}

    def start(self) -> None:
        """Start it, if it is not only a program."""

    def stop(self) -> None:
        """Stop it."""

    def ask(self, *arguments: str, data: bytes | None = None) -> str:
        """Return what a command prints; fail with its errors."""
        environ = {**os.environ, "TMPDIR": str(self.folder), **self.environ}  # `podman cp` leaves a folder there
        done = subprocess.run(
            [self.name, *arguments], env=environ, input=data, capture_output=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def try_out(self) -> None:
        """Do once what every run needs: a container of the image that reaches this machine, on a network in which it has a name."""
        self.ask("import", "--change", "ENV PATH=/usr/bin:/bin", "-", IMAGE, data=_python())
        self.ask("network", "create", "trial")
        gateway = self.ask("network", "inspect", "--format", f"{{{{{self.gateway}}}}}", "trial").strip()
        with socket.create_server(("", 0)) as server:
            connect = f"socket.create_connection({(gateway, server.getsockname()[1])}, {_SECONDS})"
            script = f"import socket; socket.gethostbyname('host'); {connect}"
            options = ("--rm", "--network", "trial", "--network-alias", "host")
            self.ask("run", *options, IMAGE, "python3", "-c", script)
        self.ask("network", "rm", "trial")

    def left(self) -> str:
        """Return the containers, networks, volumes and kept images of runs."""
        networks = self.ask("network", "ls", "--format", "{{.Name}}").split()
        own = [name for name in networks if name not in ("bridge", "host", "none", "podman")]
        others = self.ask("volume", "ls", "--quiet") + self.ask("images", "--quiet", "--filter", f"label={LABEL}")
        return self.ask("ps", "--all", "--quiet") + " ".join(own) + others

    def make_image(self, name: str, *changes: str, files: Mapping[str, str] | None = None) -> None:
        """Make an image of IMAGE and these programs; each change is a line of a Dockerfile."""
        container = self.ask("create", IMAGE, "none").strip()
        try:
            if files:  # podman takes no empty archive
                self.ask("cp", "-", f"{container}:/", data=_programs(files))
            self.ask("commit", *(word for change in changes for word in ("--change", change)), container, name)
        finally:
            self.ask("rm", container)


class Docker(Engine):
    """`dockerd` on a private socket, without a default network and without a change of the machine's firewall and routing."""

    name = "docker"
    programs = ("docker", "dockerd")
    gateway = "(index .IPAM.Config 0).Gateway"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.environ = {"DOCKER_HOST": f"unix://{self.folder}/socket"}
        places = {"host": self.environ["DOCKER_HOST"], "pidfile": f"{self.folder}/pid"}
        places |= {f"{name}-root": f"{self.folder}/{name}" for name in ("data", "exec")}
        options = [f"--{name}={place}" for name, place in places.items()]
        command = ["dockerd", *options, "--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false"]
        for _ in range(_ATTEMPTS):
            with (self.folder / "log").open("wb") as log:
                environ = {
                    **os.environ,
                    "TMPDIR": str(self.folder),
                }  # for the stacks of a containerd that does not answer
                self._process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if wait_for(lambda: self._answers() or self._process.poll() is not None) and self._process.poll() is None:
                return
        raise CannotStartError(" ".join((self.folder / "log").read_text().split("\n")[-3:]))

    def _answers(self) -> bool:
        command, environ = ["docker", "ps"], {**os.environ, **self.environ}
        return subprocess.run(command, env=environ, capture_output=True, check=False, timeout=_SECONDS).returncode == 0

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Podman(Engine):
    """podman with containers, images and networks of its own; its networks change the machine's firewall and routing."""

    name = "podman"
    programs = ("podman", "runc", "iptables")
    gateway = "range .Subnets}}{{.Gateway}}{{end"

    def start(self) -> None:
        """Write its settings, which ask for no more than this machine may allow: no limits for processes, no systemd."""
        conf, storage = self.folder / "containers.conf", self.folder / "storage.conf"
        engine = '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        network = f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{self.folder}/networks"\n'
        conf.write_text(f"[containers]\ndefault_ulimits = []\n{engine}{network}")
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.folder}/data"\nrunroot = "{self.folder}/run"\n'
        )
        self.environ = {"CONTAINERS_CONF": str(conf), "CONTAINERS_STORAGE_CONF": str(storage)}

    def stop(self) -> None:
        command, environ = ["podman", "rm", "--all", "--force"], {**os.environ, **self.environ}
        subprocess.run(
            command, env=environ, capture_output=True, check=False, timeout=_SECONDS
        )  # where it cannot run, none are left


ENGINES = {each.name: each for each in (Docker, Podman)}


@contextmanager
def running(name: str) -> Iterator[Engine]:
    """Start an engine with the image; nothing of it is left on leaving.

    Raises:
        CannotStartError: This machine cannot run one, or it cannot run containers.
    """
    kind = ENGINES[name]
    if os.geteuid() or any(shutil.which(program) is None for program in kind.programs):
        raise CannotStartError(f"needs root, {' and '.join(kind.programs)}")
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    found = kind(folder)
    try:
        try:
            found.start()
            found.try_out()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            raise CannotStartError(str(error)) from error
        yield found
    finally:
        found.stop()
        _unmount(folder)
        # Processes of the engine may still write there, or unmount, after it has ended.
        wait_for(partial(_remove, folder))


def _remove(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _unmount(folder: Path) -> None:
    """Unmount what the engine has left mounted below its folder, the innermost first."""
    targets = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in reversed([each for each in targets if Path(each).is_relative_to(folder)]):
        subprocess.run(["umount", "--lazy", target], check=False)


def _programs(texts: Mapping[str, str]) -> bytes:
    """Return a tar archive of programs."""
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for name, text in texts.items():
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.size, entry.mode = len(text.encode()), 0o755
                tar.addfile(entry, io.BytesIO(text.encode()))
        return file.getvalue()


@cache
def _python() -> bytes:
    """Return a tar archive: Python with its standard library, a shell, a few tools, and the libraries that they need."""
    library = Path(sysconfig.get_path("stdlib"))
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    programs = [Path(shutil.which(tool) or tool) for tool in _TOOLS]
    modules = [file for name in _MODULES for file in (library / "lib-dynload").glob(f"{name}.*.so")]
    modules += Path(sysconfig.get_path("platlib")).glob("s3torchconnectorclient/*.so")  # jobs bring it with their code
    listed = subprocess.run(["ldd", python, *programs, *modules], capture_output=True, text=True, check=True).stdout
    words = {word for word in listed.split() if ".so" in word and word[0] == "/" and word[-1] != ":"}
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w", dereference=True) as tar:
            places = {
                path.parent.resolve() / path.name: path
                for path in (*programs, python, *map(Path, sorted(words)), *filter(Path.exists, _CERTIFICATES))
            }
            for place, path in places.items():
                tar.add(path, str(place), filter=_open_to_all)
            tar.add(library, filter=_open_to_all)
            for directory in (*reversed(library.parents), Path("/tmp")):
                entry = tarfile.TarInfo(str(directory))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory.name == "tmp" else 0o755
                tar.addfile(entry)
            for link, target in (
                ("/usr/bin/python3", str(python)),
                ("/bin", "usr/bin"),
                ("/lib", "usr/lib"),
                ("/lib64", "usr/lib64"),
            ):
                entry = tarfile.TarInfo(link)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return file.getvalue()


def _open_to_all(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = entry.name.rpartition("/")[2]
    if name in _LEFT_OUT or name.startswith("config-") or ".opt-" in name:
        return None
    entry.mode |= 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
