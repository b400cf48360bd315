"""A container engine of the tests' own, on a private socket, and an image of this machine's Python."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE, wait_for

IMAGE = "launch-tests/python:1"
_ATTEMPTS = 3  # dockerd gives up if its containerd takes more than 15 s to start
_SECONDS = 60  # after which an engine hangs
_TOOLS = ("sh", "chown", "cat", "sleep")
_LEFT_OUT = (
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "pydoc_data",
    "__pycache__",
)
_MODULES = ("zlib", "_bz2", "_lzma", "_ssl", "_hashlib", "_ctypes", "_sqlite3")  # those that need libraries


class CannotStartError(Exception):
    """This machine cannot run an engine; the message has the reason."""


class Engine:
    """`dockerd` with its own folder, without a default network and without a change of the machine's firewall and routing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/socket"

    def start(self) -> None:
        """Start it and wait until it answers."""
        places = {"host": self.host, "pidfile": f"{self.folder}/pid"}
        places |= {f"{name}-root": f"{self.folder}/{name}" for name in ("data", "exec")}
        options = [f"--{name}={place}" for name, place in places.items()]
        command = ["dockerd", *options, "--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false"]
        for _ in range(_ATTEMPTS):
            with (self.folder / "log").open("wb") as log:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if wait_for(lambda: self._answers() or self._process.poll() is not None) and self._process.poll() is None:
                return
        raise CannotStartError(" ".join((self.folder / "log").read_text().split("\n")[-3:]))

    def _answers(self) -> bool:
        command = ["docker", "-H", self.host, "ps"]
        return subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS).returncode == 0

    def try_out(self) -> None:
        """Do once what every run needs: a container of the image that reaches this machine, on a network in which it has a name."""
        self.make_image(IMAGE)
        self.ask("network", "create", "trial")
        gateway = self.ask("network", "inspect", "--format", "{{(index .IPAM.Config 0).Gateway}}", "trial").strip()
        with socket.create_server((gateway, 0)) as server:
            connect = f"socket.create_connection({server.getsockname()}, {_SECONDS})"
            script = f"import socket; socket.gethostbyname('host'); {connect}"
            options = ("--rm", "--network", "trial", "--network-alias", "host")
            self.ask("run", *options, IMAGE, "python3", "-c", script)
        self.ask("network", "rm", "trial")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, *arguments: str, data: bytes | None = None) -> str:
        """Return what a command prints; fail with its errors."""
        command = ["docker", "-H", self.host, *arguments]
        done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def left(self) -> str:
        """Return the containers, networks and volumes of runs."""
        networks = self.ask("network", "ls", "--quiet", "--filter", "type=custom")
        return self.ask("ps", "--all", "--quiet") + networks + self.ask("volume", "ls", "--quiet")

    def make_image(self, name: str, *changes: str) -> None:
        """Make an image of this machine's Python; each change is a line of a Dockerfile."""
        words = [word for change in ("ENV PATH=/usr/bin:/bin", *changes) for word in ("--change", change)]
        self.ask("import", *words, "-", name, data=_files())


@contextmanager
def engine() -> Iterator[Engine]:
    """Start an engine with the image; nothing of it is left on leaving.

    Raises:
        CannotStartError: This machine cannot run one, or it cannot run containers.
    """
    if os.geteuid() or any(shutil.which(program) is None for program in ("docker", "dockerd")):
        raise CannotStartError("needs root, docker and dockerd (package docker.io)")
    folder = Path(tempfile.mkdtemp(prefix="docker-"))
    found = Engine(folder)
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
        wait_for(lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists())


def _unmount(folder: Path) -> None:
    """Unmount what the engine has left mounted below its folder, the innermost first."""
    targets = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in reversed([each for each in targets if Path(each).is_relative_to(folder)]):
        subprocess.run(["umount", "--lazy", target], check=False)


def _files() -> bytes:
    """Return a tar archive: Python with its standard library, a shell, a few tools, and the libraries that they need."""
    library = Path(sysconfig.get_path("stdlib"))
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    programs = [Path(shutil.which(tool) or tool) for tool in _TOOLS]
    modules = [file for name in _MODULES for file in (library / "lib-dynload").glob(f"{name}.*.so")]
    listed = subprocess.run(["ldd", python, *programs, *modules], capture_output=True, text=True, check=True).stdout
    words = {word for word in listed.split() if ".so" in word and word[0] == "/" and word[-1] != ":"}
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w", dereference=True) as tar:
            places = {
                path.parent.resolve() / path.name: path for path in (*programs, python, *map(Path, sorted(words)))
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
    if name in _LEFT_OUT or name.startswith("config-"):
        return None
    entry.mode |= 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
