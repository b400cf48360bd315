"""The code that travels: which files, in which archive, under which digest.

The archive is reproducible: the same files give the same bytes on any machine, whatever their times and owners, so a
digest names the code. It covers names, modes and contents rather than the compressed bytes, which differ between versions
of zlib.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from entrypoints import contract
from launcher.errors import RefusedError
from launcher.nearest import did_you_mean

EXCLUDED = (
    *("__pycache__", "*.pyc", ".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".launch"),
    *(".ipynb_checkpoints", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".DS_Store", "*.egg-info"),
)
MAX_BYTES = 250_000_000  # more is data that was put beside the code, and would be sent with every change of it


@dataclass(frozen=True)
class CodeArchive:
    """The files of the user's folder and of the bundled package: (path in the archive, executable, content), sorted."""

    files: tuple[tuple[str, bool, bytes], ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of everything that travels, boot.py included."""
        sha = hashlib.sha256()
        for name, executable, content in self.files:
            encoded = name.encode()
            sha.update(b"%d:%b%d%d:" % (len(encoded), encoded, executable, len(content)))
            sha.update(content)
        return sha.hexdigest()

    def names(self) -> set[str]:
        """The paths in the archive."""
        return {name for name, _, _ in self.files}

    def boot(self) -> bytes:
        """The script that starts the container; it travels beside the archive, and in it."""
        boot = f"{contract.BUNDLE_DIR}/{contract.BUNDLED_PACKAGE}/{contract.BOOT_FILE}"
        return next(content for name, _, content in self.files if name == boot)

    def tar_gz(self) -> bytes:
        """The archive's bytes."""
        import tarfile  # a dry run needs the digest only

        buffer = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=6) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name, executable, content in self.files:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o755 if executable else 0o644
                tar.addfile(member, io.BytesIO(content))
        return buffer.getvalue()


def read_code(directory: Path | None) -> CodeArchive:
    """Collect the user's folder (None: nothing of the user's) and the bundled package.

    Raises RefusedError where the folder is missing or holds what cannot travel.
    """
    files: dict[str, Path] = {}
    if directory is not None:
        if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises for a path that is too long
            near = did_you_mean(directory.name, _folders_beside(directory))
            raise RefusedError(
                f"{directory}: code.directory is no folder{near}; write the path of the folder that holds the entry point"
            )
        files.update(_walk(directory))
        if any(name.split("/")[0] == contract.BUNDLE_DIR for name in files):
            raise RefusedError(
                f"{directory / contract.BUNDLE_DIR}: this name is taken by the launcher's own part of the archive"
            )
    bundled = Path(contract.__file__).parent
    files.update({f"{contract.BUNDLE_DIR}/{contract.BUNDLED_PACKAGE}/{name}": file for name, file in _walk(bundled)})
    return CodeArchive(
        tuple((name, os.access(file, os.X_OK), file.read_bytes()) for name, file in sorted(files.items()))
    )


def _folders_beside(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in directory.parent.iterdir() if entry.is_dir()]
    except OSError:  # only a hint is lost
        return []


def _walk(directory: Path, above: tuple[Path, ...] = (), name: str = "") -> Iterator[tuple[str, Path]]:
    """Every file to send with its path below the code folder; links are followed, but into no folder that is being walked."""
    real = directory.resolve()
    if real in above:
        return
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise RefusedError(f"{directory}: cannot be read: {error.strerror}; it would travel with the code") from None
    for entry in entries:
        path = f"{name}{entry.name}"
        if _excluded(entry.name):
            continue
        if not path.isprintable() or any("\ud800" <= letter <= "\udfff" for letter in path):
            raise RefusedError(f"{path!r} in {directory}: is no name for a file that travels; rename it")
        if entry.is_dir():
            yield from _walk(entry, (*above, real), f"{path}/")
        elif entry.is_file():
            yield path, entry


def _excluded(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in EXCLUDED)
