"""The process that writes checkpoints, from memory that it shares with the training process.

A process, not a thread: the connector's client cannot be used across a fork, so an upload would hold up the workers of the next
epoch's DataLoader; and writing costs the training's threads no time. It imports neither torch nor the script. It ends when the
training process does, in the middle of a write too: nothing that it writes counts without the manifest.

    request: a line of JSON: [file, size, [[start, end], ...]], [file, text], [null, [checkpoints]] or [null, newest, keep]
    reply: a line of JSON: {"found": [...]} or {"error": text}
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from sagemaker_channels.checkpointing.catalog import MANIFEST, expired
from sagemaker_channels.checkpointing.place import Bucket, Folder, place_of
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.fetching.background import in_background
from sagemaker_channels.fetching.silence import warn


class Writer:
    """The training process's end: shared memory, and requests to write it."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._process: subprocess.Popen[str] | None = None
        self._memory: mmap.mmap | None = None
        self._file: Any = None

    def memory(self, size: int) -> mmap.mmap:
        """Return shared memory of this size or more, the same as long as it is large enough: new memory is slow."""
        if self._file is None:  # Neither a small /dev/shm nor another process's end matters to a file without a name.
            has_memory = hasattr(os, "memfd_create")  # Linux's
            self._file = open(os.memfd_create("checkpoint"), "r+b") if has_memory else tempfile.TemporaryFile()  # noqa: SIM115, PTH123
        # Here and not in the thread that writes: a DataLoader's worker that is forked while Popen starts a process has Popen's
        # pipe, too, and Popen waits until it ends.
        self._process = self._process or self._start()
        if self._memory is None or len(self._memory) < size:
            self._file.truncate(size)
            self._memory = mmap.mmap(self._file.fileno(), size)
        return self._memory

    def write(self, file: str, size: int, pieces: list[tuple[int, int]]) -> list[int]:
        """Write the first `size` bytes of the memory, and return the CRC-32 of pieces of it. Raises ChannelError."""
        digests: list[int] = self._request(file, size, pieces)
        return digests

    def write_text(self, file: str, text: str) -> None:
        """Write a small file. Raises ChannelError."""
        self._request(file, text)

    def expire(self, newest: str, keep: int) -> list[str]:
        """Remove what is older than the last `keep` checkpoints up to `newest`, and return their names; the log has what fails."""
        removed: list[str] = self._request(None, newest, keep)
        return removed

    def remove(self, checkpoints: list[str]) -> None:
        """Remove checkpoints; the log has what fails."""
        self._request(None, checkpoints)

    def close(self) -> None:
        """End the process, and free the memory."""
        self._end()
        file, self._file, self._memory = self._file, None, None
        if file is not None:
            file.close()

    def _request(self, *request: Any) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if not reply:
            raise ChannelError(
                f"the process that writes checkpoints has ended with exit code {self._end()}; see the log"
            )
        found: dict[str, Any] = json.loads(reply)
        if "error" in found:
            raise ChannelError(found["error"])
        return found["found"]

    def _start(self) -> subprocess.Popen[str]:
        folders = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._file.fileno()), self._place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[self._file.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
        )

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        # Workers that were forked have its input, too, so that closing it is not enough.
        with suppress(BrokenPipeError), process:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return process.returncode


def _perform(place: Folder | Bucket, descriptor: int, request: list[Any]) -> list[Any]:
    file, content, *others = request
    if file is None:
        return _remove(place, content, *others)
    if isinstance(content, str):
        place.write(file, memoryview(content.encode()))
        return []
    view = memoryview(mmap.mmap(descriptor, content, access=mmap.ACCESS_READ))
    place.write(file, view)
    return [zlib.crc32(view[start:end]) for start, end in others[0]]


def _remove(place: Folder | Bucket, names: Any, keep: int | None = None) -> list[Any]:
    try:
        names = names if keep is None else expired(place, names, keep)
        for name in names:
            place.remove(name, MANIFEST)
    except (ChannelError, OSError) as error:
        warn(f"old checkpoints remain in {place}: {error}")
        return []
    return list(names)


def _reply(place: Folder | Bucket, descriptor: int, line: str) -> None:
    try:
        reply: dict[str, Any] = {"found": _perform(place, descriptor, json.loads(line))}
    except (ChannelError, OSError) as error:
        reply = {"error": str(error)}
    except BaseException:  # noqa: BLE001 - the other end waits for a reply or for this process's end
        traceback.print_exc()
        os._exit(1)
    print(json.dumps(reply), flush=True)


def main() -> None:
    """Serve the process that started this one, until its end."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the training, which may save once more
        signal.signal(number, signal.SIG_IGN)
    descriptor, place = int(sys.argv[1]), place_of(sys.argv[2])
    for line in iter(sys.stdin.readline, "\n"):
        if not line:
            break
        in_background(lambda line=line: _reply(place, descriptor, line), "checkpoint")  # type: ignore[misc]
    os._exit(0)


if __name__ == "__main__":
    main()
