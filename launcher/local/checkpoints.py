"""The checkpoints of a local run: each host has a directory of its own, which is synced with one prefix in S3, as in SageMaker.

It is restored before the host starts. New and changed files are stored every second, in no order, and also while the job writes
them; files that a host removed are removed at its end. S3 has no links: a link to a file in the same directory is stored as that
file, and others are not stored.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from launcher.errors import RefusedError
from launcher.local.channels.selection import as_tree, list_prefix, written_as
from launcher.local.channels.stores import Store
from launcher.local.runs import copy_stored
from launcher.local.state import LocalRun
from launcher.local.workspace import BindMount, Host
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels import contract
from sagemaker_channels.formats.writing import replacing

_USUAL = f"{contract.BASE_DIR}/{contract.CHECKPOINT_DIR}"
_SECONDS = 1.0  # between two passes while the job runs
_Stamps = dict[str, tuple[int, int]]  # size and time of the last change of each file


class Checkpoints:
    """The objects below CheckpointConfig.S3Uri, in the run's own folder that stands for S3; none without CheckpointConfig."""

    def __init__(self, run: LocalRun, store: Store) -> None:
        """Restore the checkpoints from S3, or from an earlier run. Raises RefusedError if they cannot be read."""
        self._run = run
        self._known: dict[Path, _Stamps] = {}  # the files of each host's directory when they were stored last
        self._linked: set[str] = set()  # links that have caused a warning
        config = run.plan.request.get("CheckpointConfig", {})
        if run.options.resume:
            copy_stored(run, run.options.resume)
        self._local_path = config.get("LocalPath", _USUAL).rstrip("/") if config else ""
        self._stored = run.stored(config.get("S3Uri", ""))
        if not config:
            return
        self._stored.mkdir(parents=True, exist_ok=True)
        for found in () if run.options.resume else as_tree(list_prefix(store.objects, parse_s3_uri(config["S3Uri"]))):
            unfinished, target = run.folder / "unfinished", self._stored / found.path
            with written_as(found, unfinished) as file:  # not in S3's folder, where it would be the object that is read
                for _ in store.objects.copy(found.place, file):
                    pass
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished.rename(target)

    def place(self, host: Host) -> tuple[BindMount, ...]:
        """Copy the checkpoints for a host; return the mount of them at LocalPath. Raises RefusedError if LocalPath is unusable."""
        if not self._local_path:
            return ()
        target, own = self._target(host), self._run.host_folder(host) / "checkpoints"
        shutil.copytree(self._stored, own)
        self._known[own] = self._stamps(own)
        return (BindMount(own, target, read_only=False),)

    @contextmanager
    def stored_meanwhile(self) -> Iterator[None]:
        """Store new and changed files now and then, in a thread; what cannot be stored yet is left to `store`."""
        stop = Event()

        def work() -> None:
            while not stop.wait(_SECONDS):
                for own, known in self._known.items():
                    for name, stamp in self._stamps(own).items():
                        if not stop.is_set():
                            with suppress(OSError):
                                self._store_file(own, known, name, stamp)

        thread = Thread(target=work, name="checkpoints", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def store(self) -> None:
        """Store what the hosts, which have ended, have changed. Raises RefusedError if that fails."""
        for own, known in self._known.items():
            found = self._stamps(own)
            try:
                for name in known.keys() - found.keys():
                    self._remove(name)
                for name, stamp in found.items():
                    self._store_file(own, known, name, stamp)
            except OSError as error:
                what = f"{self._stored}: the checkpoints cannot be stored: {error.strerror}"
                raise RefusedError(f"{what}; free space there, or keep fewer of them") from None

    def forget(self) -> None:
        for own in self._known:
            shutil.rmtree(own, ignore_errors=True)
        self._known.clear()

    def _store_file(self, own: Path, known: _Stamps, name: str, stamp: tuple[int, int]) -> None:
        if known.get(name) != stamp:
            unfinished, target = self._run.folder / "unfinished", self._stored / name
            with replacing(target, unfinished):
                shutil.copy2(own / name, unfinished)
                target.parent.mkdir(parents=True, exist_ok=True)
            known[name] = stamp

    def _remove(self, name: str) -> None:
        target = self._stored / name
        target.unlink(missing_ok=True)
        with suppress(OSError):  # another file is in it
            for parent in target.parents[: name.count("/")]:
                parent.rmdir()

    def _stamps(self, own: Path) -> _Stamps:
        found: _Stamps = {}
        for folder, folders, files in os.walk(own):
            for path in (Path(folder, name) for name in (*files, *folders)):
                name, real = str(path.relative_to(own)), Path(os.path.realpath(path))
                with suppress(OSError):  # removed meanwhile, or another user's until the end of the hosts
                    if path.is_symlink() and not (real.is_file() and real.is_relative_to(own.resolve())):
                        if name not in self._linked:
                            self._linked.add(name)
                            what = f"the checkpoint {name} is a link to {path.readlink()}, which is not stored"
                            self._run.console.warn(f"{what}; store a file, such as one with this name in it")
                    elif real.is_file():
                        state = real.stat()
                        found[name] = state.st_size, state.st_mtime_ns
        return found

    def _target(self, host: Host) -> Path:
        """Return the directory of LocalPath: below the host's /opt/ml, or in a container anywhere."""
        path = Path(self._local_path)
        is_plain = path.is_absolute() and ".." not in path.parts
        if is_plain and path.is_relative_to(contract.BASE_DIR):
            target = self._run.root(host) / path.relative_to(contract.BASE_DIR)
            if not target.exists():
                target.mkdir(parents=True)
                return target
        elif is_plain and self._run.runner.image is not None:
            return path
        where = f"a folder of its own, and without docker or podman below {contract.BASE_DIR}"
        raise RefusedError(f"checkpoint_config.local_path {self._local_path}: it must be {where}; write {_USUAL}")
