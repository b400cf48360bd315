"""The container's first program: unpack the code beside it and run the entry point or command.

    python3 /…/input/data/launcher_code/boot.py [<entry point>] [--requirements <file>] [--argument-style json]
        [--arguments=<form>] [--command <JSON, in pieces that fit into an argument>...]

If the sagemaker-training toolkit has unpacked the code, it can start this script with the hyperparameters as arguments; then the
arguments above are in a variable.

It is PID 1 of any image, so it needs only Python's standard library, and none of this project's modules until it has unpacked them.
It loads these by their file, not by `import` from a path, because the user's folder may hold a `json.py` or a
`sagemaker_channels` of its own. Everything after unpacking is in `start/entry_point.py` of the library.

Each error is one line on stderr and in `output/failure`.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import shutil
import signal
import sys
import tarfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import NoReturn

# Copied from the library's contract.py, which is in the archive; a test keeps them equal.
BASE_DIR_VARIABLE = "SAGEMAKER_BASE_DIR"
CODE_ARCHIVE = "code.tar.gz"
CODE_DIR = "code"
BUNDLE_DIR = "launcher_bundle"
BOOT_ARGUMENTS_VARIABLE = "LAUNCHER_BOOT_ARGUMENTS"
LIBRARY = "sagemaker_channels"
FAILURE_FILE = "output/failure"

FAILED = 1  # the exit code if the entry point was not started


class BootError(Exception):
    """The code cannot be unpacked, or the arguments are wrong; one line with the reason and the remedy."""


class ArgumentParser(argparse.ArgumentParser):
    """An argparse parser whose errors become the job's failure reason."""

    def error(self, message: str) -> NoReturn:
        """Raise BootError."""
        raise BootError(f"boot.py: wrong arguments: {message}; check ContainerArguments")


def main(arguments: Sequence[str]) -> int:
    """Run the job and return the container's exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)  # PID 1 ignores them by default.
    here = Path(__file__).absolute().parent
    root = Path(os.environ.get(BASE_DIR_VARIABLE) or here.parents[2]).absolute()
    try:
        is_unpacked = BOOT_ARGUMENTS_VARIABLE in os.environ and not (here / CODE_ARCHIVE).exists()
        options = _parse(json.loads(os.environ[BOOT_ARGUMENTS_VARIABLE]) if is_unpacked else arguments)
        if not is_unpacked:
            unpack(here / CODE_ARCHIVE, root / CODE_DIR)
        _move_bundle(root)
        _load_package(root / BUNDLE_DIR / LIBRARY)
        from sagemaker_channels.start.entry_point import StartOptions, run_entry_point

        return run_entry_point(root, os.environ, StartOptions(**vars(options)))
    except BootError as error:
        print(f"boot: {error}", file=sys.stderr, flush=True)
        _write_failure(root, str(error))
        return FAILED
    except Exception as error:
        _write_failure(root, f"{type(error).__name__}: {error}")
        raise


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a tar.gz of plain files into `directory`.

    Raises:
        BootError: The archive is damaged, or a member is a link, a device or outside of the folder; nothing is written then.
    """
    try:
        with gzip.open(archive) as whole:  # gzip's checksum detects a truncated archive, tarfile does not.
            while whole.read(1 << 20):
                pass
        with tarfile.open(archive, "r:gz") as tar:
            members = tar.getmembers()
            for member in members:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise BootError(f"{archive.name}: {member.name!r} would be outside the code folder")
                if not (member.isfile() or member.isdir()):
                    raise BootError(f"{archive.name}: {member.name!r} is a link or device; expected plain files only")
            for member in members:
                _unpack_member(tar, member, directory / member.name)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BootError(f"{archive} is damaged: {error}; submit the job again") from error
    except OSError as error:
        remedy = "the image's user must be able to write there, and the disk must have space"
        raise BootError(f"{archive} cannot be unpacked into {directory}: {error.strerror}; {remedy}") from error


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None  # because it is a plain file
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(member.mode & 0o777)


def _move_bundle(root: Path) -> None:
    """Move the launcher's modules out of the code folder: scripts copy that folder into their models."""
    bundle, unpacked = root / BUNDLE_DIR, root / CODE_DIR / BUNDLE_DIR
    if not unpacked.is_dir():
        raise BootError(f"{CODE_ARCHIVE} does not hold {BUNDLE_DIR}; submit the job by this launcher")
    if bundle.is_dir():  # The container was started again.
        shutil.rmtree(bundle)
    shutil.move(unpacked, bundle)  # The code folder can be a volume of its own.


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = ArgumentParser(description="Runs a training script in a SageMaker container.")
    parser.add_argument(
        "entry_point", nargs="?", help="a file of the code, or entrypoints/<name>.py for a bundled script"
    )
    parser.add_argument("--requirements", help="a file of the code, for pip")
    parser.add_argument(
        "--shell", nargs="?", const="", help="become a shell, or run a command in one, in place of the entry point"
    )
    parser.add_argument("--argument-style", choices=["toolkit", "json"], default="toolkit")
    parser.add_argument("--arguments", default="--name value")
    parser.add_argument("--command", nargs=argparse.REMAINDER, help="JSON: a shell line, or a list of words")
    options = parser.parse_args(arguments)
    if (options.entry_point is None) == (options.command is None):
        parser.error("expected an entry point or --command")
    if options.command is not None:
        try:
            options.command = json.loads("".join(options.command))
        except ValueError as error:
            parser.error(f"--command is not JSON: {error}")
    return options


def _load_package(folder: Path) -> None:
    """Import the library in this folder, even if the path has another module of that name."""
    location = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(folder.name, location, submodule_search_locations=[str(folder)])
    if not location.is_file() or spec is None or spec.loader is None:
        raise BootError(f"{CODE_ARCHIVE} does not hold {BUNDLE_DIR}/{folder.name}; submit the job by this launcher")
    module = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = module
    spec.loader.exec_module(module)


def _write_failure(root: Path, text: str) -> None:
    path = root / FAILURE_FILE
    with suppress(OSError):  # A full disk, for example; standard error has the text as well.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Exit: no user's program runs yet, so nothing has to be saved."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
