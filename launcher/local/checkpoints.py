"""The checkpoints of a local run: restored for each host before it starts, and stored while it runs and when it has ended.

As in SageMaker, each host has its own directory, and all are synced with one prefix in S3: a new or changed file is stored, and
a file that a host removed is removed. Files are stored in no order, and also while the job writes them. S3 has no links: a link
to a file in the same directory is stored as that file, and others are not stored.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Store
from launcher.local.data.selection import as_tree, list_prefix
from launcher.local.runs import copy_stored
from launcher.local.workspace import Host, LocalRun
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels import contract

_USUAL = f"{contract.BASE_DIR}/{contract.CHECKPOINT_DIR}"
_SECONDS = 1.0  # between two passes while the job runs
_JUST_NOW = 100_000_000  # ns within which a file can change twice without another time of its last change
_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
# A file was removed or replaced since it was listed, or is another user's, until the end of the hosts.
_CHANGED = (FileNotFoundError, NotADirectoryError, PermissionError)
_Stamps = dict[str, tuple[int, int]]  # size and time of the last change of each file


class Checkpoints:
    """The objects below CheckpointConfig.S3Uri, in the run's own folder that stands for S3; none without CheckpointConfig."""

    def __init__(self, run: LocalRun, store: Store) -> None:
        """Restore the checkpoints from S3, or from an earlier run. Raises RefusedError if they cannot be read."""
        self._run = run
        self._known: dict[Path, _Stamps] = {}  # the files of each host's directory when they were stored last
        self._linked: set[str] = set()  # links that have caused a warning
        config = run.plan.request.get("CheckpointConfig")
        if run.options.resume:
            copy_stored(run, run.options.resume)
        self._stored = run.stored(config["S3Uri"]) if config else None
        if config is None or self._stored is None:
            return
        self._local_path = config.get("LocalPath", _USUAL).rstrip("/")
        self._stored.mkdir(parents=True, exist_ok=True)
        for found in () if run.options.resume else as_tree(list_prefix(store.objects, parse_s3_uri(config["S3Uri"]))):
            try:
                with self._replacing(self._stored / found.path) as file:
                    for _ in store.objects.copy(found.place, file.fileno()):
                        pass
            except OSError as error:
                what = f"{found.place}: cannot be restored below {self._stored}: {error.strerror}"
                raise RefusedError(f"{what}; free space there, or rename the object") from error

    def place(self, host: Host) -> tuple[BindMount, ...]:
        """Copy the checkpoints for a host; return the mount of them at LocalPath. Raises RefusedError if LocalPath is unusable."""
        if self._stored is None:
            return ()
        target, own = self._target(host), self._run.host_folder(host) / "checkpoints"
        shutil.copytree(self._stored, own)
        self._known[own] = self._stamps(own)
        return (BindMount(own.absolute(), target, read_only=False),)

    @contextmanager
    def stored_meanwhile(self, on_error: Callable[[Exception], None]) -> Iterator[None]:
        """Store the hosts' changes now and then, in a thread."""
        stop = Event()

        def work() -> None:
            try:
                while not stop.wait(_SECONDS):
                    self.store(stop)
            except RefusedError as error:
                on_error(error)

        thread = Thread(target=work, name="checkpoints", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def store(self, stop: Event | None = None) -> None:
        """Store what the hosts have changed since the last time, until `stop`. Raises RefusedError if that fails."""
        for own, known in self._known.items():
            try:
                self._store_host(own, known, stop or Event())
            except OSError as error:
                what = f"{self._stored}: the checkpoints cannot be stored: {error.strerror}"
                raise RefusedError(f"{what}; free space there, or keep fewer of them") from None

    def forget(self) -> None:
        """Remove the hosts' directories, with what was not stored."""
        for own in self._known:
            shutil.rmtree(own, ignore_errors=True)
        self._known.clear()

    def _store_host(self, own: Path, known: _Stamps, stop: Event) -> None:
        assert self._stored is not None
        unread: list[OSError] = []
        found = self._stamps(own, unread)
        for name in known.keys() - found.keys() if not unread else ():
            del known[name]
            target = self._stored / name
            target.unlink(missing_ok=True)
            with suppress(OSError):  # another file is in it
                for parent in target.parents[: name.count("/")]:
                    parent.rmdir()
        for name, stamp in found.items():
            if stop.is_set():
                return
            if known.get(name) == stamp:
                continue
            with suppress(*_CHANGED), (own / name).open("rb") as file:
                with self._replacing(self._stored / name, stamp[1]) as copy:
                    shutil.copyfileobj(file, copy)
                known[name] = stamp if time.time_ns() - stamp[1] > _JUST_NOW else (0, 0)

    def _stamps(self, own: Path, unread: list[OSError] | None = None) -> _Stamps:
        """Return the files below a host's directory; adds to `unread` why a folder in it could not be read."""
        found: _Stamps = {}
        for folder, folders, files in os.walk(own, onerror=(unread if unread is not None else []).append):
            for path in (Path(folder, name) for name in (*files, *folders)):
                name, real = str(path.relative_to(own)), Path(os.path.realpath(path))
                with suppress(*_CHANGED):
                    if path.is_symlink() and not (real.is_file() and real.is_relative_to(own.resolve())):
                        if name not in self._linked:
                            self._linked.add(name)
                            what = f"the checkpoint {name} is a link to {path.readlink()}, which is not stored"
                            self._run.console.warn(f"{what}; store a file, such as one with this name in it")
                    elif real.is_file():
                        state = real.stat()
                        found[name] = state.st_size, state.st_mtime_ns
        return found

    @contextmanager
    def _replacing(self, target: Path, changed: int | None = None) -> Iterator[BinaryIO]:
        """Open a file that takes the target's place when it is complete, with a time of its last change."""
        unfinished = self._run.folder / "unfinished"
        try:
            with unfinished.open("wb") as file:
                yield file
            if changed is not None:
                os.utime(unfinished, ns=(changed, changed))
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)

    def _target(self, host: Host) -> Path:
        """Return the directory of LocalPath: below the host's /opt/ml, or for a mount anywhere else."""
        path, target, wrong = Path(self._local_path), Path(self._local_path), ""
        needed = (Path(contract.BASE_DIR), self._run.folder, Path(sys.prefix), Path(sys.base_prefix))
        if path.is_relative_to(contract.BASE_DIR):
            target = self._run.root(host).absolute() / path.relative_to(contract.BASE_DIR)
            if ".." in target.parts or target.exists():
                wrong = "another folder has this path"
            else:
                target.mkdir(parents=True)
        elif not self._run.runner.mounts:
            wrong = "without namespaces all hosts would share this folder of the machine"
        elif not path.is_absolute() or ".." in path.parts or (path.exists() and not path.is_dir()):
            wrong = "this cannot be a directory"
        elif any(each.is_relative_to(path) for each in needed) or any(map(path.is_relative_to, _SYSTEM)):
            wrong = "this would hide files that the job needs"
        if wrong:
            raise RefusedError(f"checkpoint_config.local_path {self._local_path}: {wrong}; write {_USUAL}")
        return target
