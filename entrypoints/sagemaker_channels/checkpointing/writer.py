"""The process that stores a rank's file of a checkpoint, from memory that it shares with the training process.

A process, not a thread: the connector's client cannot be used across a fork, so an upload would hold up the workers of the next
epoch's DataLoader; and writing costs the training's threads no time. It imports neither torch nor the script. If the training
process is killed, it stores its file and ends.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sagemaker_channels.checkpointing import files
from sagemaker_channels.checkpointing.place import place_of
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.process_identity import unnamed_file
from sagemaker_channels.sources.silence import warn


class Writer:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._memory: mmap.mmap | None = None
        self._file: Any = None

    def memory(self, size: int) -> mmap.mmap:
        """Return shared memory of this size or more, the same as long as it is large enough: new memory is slow."""
        if self._file is None:  # Neither a small /dev/shm nor another process's end matters to a file without a name.
            self._file = open(unnamed_file("checkpoint"), "r+b")  # noqa: SIM115, PTH123
        if self._memory is None or len(self._memory) < size:
            self._file.truncate(max(size, mmap.PAGESIZE))
            self._memory = mmap.mmap(self._file.fileno(), 0)
        return self._memory

    def start(
        self, place: str, path: str, records: Iterable[tuple[str, bytes | tuple[int, int]]], **expired: Any
    ) -> None:
        """Begin to store a file of these records: their bytes, or where those are in the memory.

        `expired` are the arguments of `files.expire`, which is done before. Popen is not called in a thread: a DataLoader's worker
        that is forked meanwhile would have Popen's pipe, too, and Popen waits until it ends.
        """
        assert self._memory is not None
        descriptor, end, places = self._file.fileno(), len(self._memory), []
        for name, content in records:
            if isinstance(content, bytes):
                os.pwrite(descriptor, content, end)
                content = end, end + len(content)
                end = content[1]
            places.append((name, *content))
        table = json.dumps({"records": places, "expired": expired}).encode()
        os.pwrite(descriptor, table, end)
        folders = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, place, path, str(end), str(end + len(table))],
            stdin=self._file,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
            start_new_session=True,  # Ctrl-C and torchrun signal a whole process group, perhaps before `main` ignores it.
        )
        threading.Thread(target=self._process.wait).start()  # Python's exit waits for it.

    def wait(self) -> str | None:
        """Wait until the file is stored. Return why it was not; None if it was, or if nothing was started."""
        process = self._process
        if process is None:
            return None
        assert process.stdout is not None
        error = process.stdout.read().strip()
        code = process.wait()
        process.stdout.close()
        self._process = None  # not before: a signal's handler may raise, and the memory must not be used again too soon
        if code and not error:
            return f"the process that writes checkpoints has ended with exit code {code}; see the log"
        return error or None

    def close(self) -> None:
        file, self._file, self._memory = self._file, None, None
        if file is not None:
            file.close()


def main() -> None:
    """Store the file that the arguments name, from stdin; print why it cannot be."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the training, which may save once more
        signal.signal(number, signal.SIG_IGN)
    name, path, start, end = sys.argv[1:]
    memory = memoryview(mmap.mmap(sys.stdin.fileno(), 0, access=mmap.ACCESS_READ))
    table = json.loads(bytes(memory[int(start) : int(end)]))
    try:
        place = place_of(name)
        if table["expired"]:
            files.expire(place, **table["expired"])
        place.write(path, lambda stream: files.write(stream, table["records"], memory))
    except ChannelError as error:
        warn(str(error))
        print(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
