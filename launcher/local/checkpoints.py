"""The checkpoints of a local run: restored for each host before it starts, and stored while it runs and when it has ended.

As in SageMaker, each host has its own directory, and all are synced with one prefix in S3: a new or changed file is stored, and
a file that a host removed is removed. Files are stored in no order, and also while the job writes them. S3 has no links: a link
to a file beside it is stored as that file, and others are not stored.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Store
from launcher.local.data.selection import as_tree, list_prefix, written_as
from launcher.local.runs import copy_stored
from launcher.local.workspace import TOO_DEEP, Host, LocalRun
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels import contract

_USUAL = f"{contract.BASE_DIR}/{contract.CHECKPOINT_DIR}"
_SECONDS = 1.0  # between two passes while the job runs
_CHUNK = 1 << 20  # bytes
_JUST_NOW = 100_000_000  # ns within which a file can change twice without another time of its last change
# What the job replaces while it is read, such as a folder by a file; the next pass, or the last one, stores it.
_CHANGED = (errno.ENOTDIR, errno.ELOOP, errno.EINVAL)
_Stamp = tuple[int, int]  # size and time of the last change


class Checkpoints:
    """The objects below CheckpointConfig.S3Uri, in the run's own folder that stands for S3; none without CheckpointConfig."""

    def __init__(self, run: LocalRun, store: Store) -> None:
        """Restore the checkpoints from S3, or from an earlier run. Raises RefusedError if they cannot be read."""
        self._run = run
        self._known: dict[Path, dict[str, _Stamp]] = {}  # the files of each host's directory when they were stored last
        config = run.plan.request.get("CheckpointConfig")
        if run.options.resume:
            copy_stored(run, run.options.resume)
        if config is None:
            self._stored = None
            return
        self._stored = run.stored(config["S3Uri"])
        self._local_path = config.get("LocalPath", _USUAL).rstrip("/")
        self._stored.mkdir(parents=True, exist_ok=True)
        if run.options.resume:
            return
        for found in as_tree(list_prefix(store.objects, parse_s3_uri(config["S3Uri"]))):
            target = self._stored / found.path
            # Copied elsewhere first, since the store shows a file in the run's folder instead of its own.
            with written_as(found, target), self._unfinished.open("wb") as file:
                for _ in store.objects.copy(found.place, file.fileno()):
                    pass
                target.parent.mkdir(parents=True, exist_ok=True)
                self._unfinished.replace(target)

    def place(self, host: Host) -> tuple[BindMount, ...]:
        """Copy the checkpoints for a host; return the mount of them at LocalPath. Raises RefusedError if LocalPath is unusable."""
        if self._stored is None:
            return ()
        target, own = self._target(host), self._run.host_folder(host) / "checkpoints"
        shutil.copytree(self._stored, own)
        files = {str(file.relative_to(own)): file.stat() for file in own.rglob("*") if file.is_file()}
        self._known[own] = {name: (state.st_size, state.st_mtime_ns) for name, state in files.items()}
        if self._run.runner.mounts:
            return (BindMount(own.absolute(), target, read_only=False),)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(own)
        return ()

    @contextmanager
    def stored_meanwhile(self, on_error: Callable[[Exception], None]) -> Iterator[None]:
        """Store the hosts' changes now and then, in a thread; on leaving, what is not stored completely is not stored."""
        stop = Event()

        def work() -> None:
            try:
                while not stop.wait(_SECONDS):
                    self._store(stop, is_running=True)
            except RefusedError as error:
                on_error(error)

        thread = Thread(target=work, name="checkpoints", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def store(self) -> None:
        """Store the hosts' last changes. Raises RefusedError if that fails."""
        self._store(Event())

    def forget(self, *, kept: bool = False) -> None:
        """Remove the hosts' directories, with what was not stored, unless they are kept."""
        for own in () if kept else self._known:
            with suppress(RecursionError):
                shutil.rmtree(own, ignore_errors=True)
        self._known.clear()
        self._unfinished.unlink(missing_ok=True)

    @property
    def _unfinished(self) -> Path:
        return self._run.folder / "unfinished"

    def _store(self, stop: Event, *, is_running: bool = False) -> None:
        for own, known in self._known.items():
            try:
                self._store_host(own, known, stop)
            except OSError as error:
                if is_running and error.errno in _CHANGED:
                    continue
                what = f"{self._stored}: the checkpoints cannot be stored: {error.strerror}"
                raise RefusedError(f"{what}; free space there, or keep fewer of them") from None
            except RecursionError:
                raise RefusedError(f"{self._stored}: the checkpoints cannot be stored: {TOO_DEEP}") from None

    def _store_host(self, own: Path, known: dict[str, _Stamp], stop: Event) -> None:
        """Store what has changed in a host's directory since the last time, until `stop`."""
        assert self._stored is not None
        found: set[str] = set()
        unread: list[OSError] = []
        for folder, names, descriptor in _walk(own, unread):
            found.update(f"{folder}{name}" for name in names)
            for name in random.sample(names, len(names)):
                # Removed since it was listed, or another user's, until the end of the hosts.
                with suppress(FileNotFoundError, PermissionError):
                    self._store_file(f"{folder}{name}", (name, descriptor), known, stop)
        if unread or stop.is_set():
            return
        for path in known.keys() - found:
            del known[path]
            target = self._stored / path
            if target.is_file():
                target.unlink()
            for parent in target.parents[: path.count("/")]:
                with suppress(OSError):  # other files are in it
                    parent.rmdir()

    def _store_file(self, path: str, place: tuple[str, int], known: dict[str, _Stamp], stop: Event) -> None:
        """Store a file if it has changed. `place` is its name in an open directory: the job can replace directories by links."""
        assert self._stored is not None
        name, folder = place
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(state.st_mode):
            name = os.readlink(name, dir_fd=folder)
            if "/" not in name:
                state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if "/" in name or stat.S_ISDIR(state.st_mode):
                what = f"the checkpoint {path} is a link to {name}, which is not stored"
                self._run.console.warn(f"{what}; store a file, such as one with this name in it")
                return
        stamp = state.st_size, state.st_mtime_ns
        if not stat.S_ISREG(state.st_mode) or known.get(path) == stamp:
            return
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(source, "rb") as file, self._unfinished.open("wb") as copy:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                return
            while chunk := file.read(_CHUNK):
                if stop.is_set():
                    return
                copy.write(chunk)
        os.utime(self._unfinished, ns=(stamp[1], stamp[1]))
        target = self._stored / path
        for parent in target.parents[: path.count("/")]:
            if parent.is_file():
                parent.unlink()
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._unfinished.replace(target)
        known[path] = stamp if time.time_ns() - stamp[1] > _JUST_NOW else (0, 0)

    def _target(self, host: Host) -> Path:
        """Return the directory of LocalPath: below the host's /opt/ml, or for a mount anywhere else."""
        path, target, wrong = Path(self._local_path), Path(self._local_path), ""
        own = (Path(contract.BASE_DIR), self._run.folder, Path(sys.prefix), Path(sys.base_prefix))
        system = (
            "/etc/hosts",
            "/proc",
            "/dev",
            "/bin/sh",
            "/usr/bin/env",
            "/lib/ld",
            "/lib64/ld",
            "/usr/lib/ld",
            "/usr/lib64/ld",
        )
        needed = (*own, *map(Path, system))
        if path.is_relative_to(contract.BASE_DIR):
            target = self._run.root(host).absolute() / path.relative_to(contract.BASE_DIR)
            if ".." in target.parts or target.exists() or target.is_symlink():
                wrong = "another folder has this path"
            elif self._run.runner.mounts:
                target.mkdir(parents=True)
        elif not self._run.runner.mounts:
            wrong = "without namespaces all hosts would share this folder of the machine"
        elif not path.is_absolute() or ".." in path.parts or (path.exists() and not path.is_dir()):
            wrong = "this cannot be a directory"
        elif path.is_relative_to("/proc") or path.is_relative_to("/sys"):
            wrong = "this is no folder of files"
        elif any(each.is_relative_to(path) for each in needed):
            wrong = "this would hide files that the job needs"
        if wrong:
            raise RefusedError(f"checkpoint_config.local_path {self._local_path}: {wrong}; write {_USUAL}")
        return target


def _walk(
    path: Path | str, unread: list[OSError], parent: int | None = None, folder: str = ""
) -> Iterator[tuple[str, list[str], int]]:
    """Yield each directory below a path: its name with a "/", what it has besides directories, and it, open.

    Unlike os.fwalk, it does not wait for ever if the job replaces a directory by a FIFO. Errors are added to `unread`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        unread.append(error)
        return
    try:
        with os.scandir(descriptor) as entries:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        yield folder, [name for name, is_folder in kinds.items() if not is_folder], descriptor
        for name in (name for name, is_folder in kinds.items() if is_folder):
            yield from _walk(name, unread, descriptor, f"{folder}{name}/")
    finally:
        os.close(descriptor)
