"""The checkpoints of a local run: restored for each host before it starts, and stored when all have ended.

As in SageMaker, each host has its own directory, and all are synced with one prefix in S3: a new or changed file is stored (the
newest, if several hosts changed it), and a file that a host removed is removed. SageMaker syncs during the run, this at its end.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from entrypoints import contract
from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Store
from launcher.local.data.selection import list_prefix
from launcher.local.workspace import Host, LocalRun
from launcher.s3.uri import parse_s3_uri

_USUAL = f"{contract.BASE_DIR}/{contract.CHECKPOINT_DIR}"


class Checkpoints:
    """The objects below CheckpointConfig.S3Uri, in the run's own folder that stands for S3; none without CheckpointConfig."""

    def __init__(self, run: LocalRun, store: Store) -> None:
        """Restore the checkpoints from S3. Raises RefusedError if they cannot be read."""
        self._run = run
        config = run.plan.request.get("CheckpointConfig")
        if config is None:
            self._stored = None
            return
        self._stored = run.stored(config["S3Uri"])
        self._local_path = config.get("LocalPath", _USUAL).rstrip("/")
        self._stored.mkdir(parents=True, exist_ok=True)
        for found in list_prefix(store.objects, parse_s3_uri(config["S3Uri"])):
            target = self._stored / found.path
            if self._stored.resolve() not in target.resolve().parents or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            # Copied elsewhere first, since the store shows a file in the run's folder instead of its own.
            unfinished = run.folder / "restoring"
            with unfinished.open("wb") as file:
                for _ in store.objects.copy(found.place, file.fileno()):
                    pass
            unfinished.replace(target)
        self._restored = _stamps(self._stored)

    def place(self, host: Host) -> tuple[BindMount, ...]:
        """Copy the checkpoints for a host; return the mount of them at LocalPath. Raises RefusedError if LocalPath is unusable."""
        if self._stored is None:
            return ()
        target, own = self._target(host), self._own(host)
        shutil.copytree(self._stored, own, symlinks=True)
        if self._run.runner.mounts:
            return (BindMount(own.absolute(), target, read_only=False),)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(own)
        return ()

    def store(self) -> None:
        """Store the hosts' changes in the run's folder for S3."""
        if self._stored is None:
            return
        changed: list[tuple[int, str, Path]] = []
        for own in map(self._own, self._run.hosts):
            stamps = _stamps(own)
            for name in self._restored.keys() - stamps.keys():
                (self._stored / name).unlink(missing_ok=True)
            new = stamps.items() - self._restored.items()
            changed += [(modified, name, own / name) for name, (_, modified) in new]
        for _, name, file in sorted(changed):
            (self._stored / name).parent.mkdir(parents=True, exist_ok=True)
            file.replace(self._stored / name)
        for own in map(self._own, self._run.hosts):
            shutil.rmtree(own, ignore_errors=True)

    def _own(self, host: Host) -> Path:
        return self._run.host_folder(host) / "checkpoints"

    def _target(self, host: Host) -> Path:
        """Return the directory of LocalPath: below the host's /opt/ml, or for a mount anywhere else."""
        path, target, wrong = Path(self._local_path), Path(self._local_path), ""
        own = (Path(contract.BASE_DIR), self._run.folder, Path(sys.prefix), Path(sys.base_prefix))
        needed = (*own, Path("/etc/hosts"), Path("/proc"), Path("/dev"))
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
        elif any(each.is_relative_to(path) for each in needed):
            wrong = "this would hide files that the job needs"
        if wrong:
            raise RefusedError(f"checkpoint_config.local_path {self._local_path}: {wrong}; write {_USUAL}")
        return target


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of each file or link below a folder, by its relative path."""
    files = (file for file in folder.rglob("*") if file.is_symlink() or file.is_file())
    states = ((file, file.lstat()) for file in files)
    return {str(file.relative_to(folder)): (state.st_size, state.st_mtime_ns) for file, state in states}
