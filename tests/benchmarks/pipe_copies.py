"""The least that a Pipe's processes do, as a limit: one reads the FIFO into shared memory, two copy each member, one does so again.

No headers are parsed, no samples are made and nothing is pickled: only places go from one process to the next. The processes are up
before the time begins.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

STEP = 512 + 100_352  # bytes from one member to the next
SIZE = 100_000
BATCH = 32
_MEMORY = 32 << 20
_PLACE = struct.Struct("<Q")
_END = 1 << 63


def seconds(folder: Path, shard: Path) -> float:
    """Return how long the bytes of a tar of members of SIZE bytes take from `cat` to the last copy."""
    fifo = folder / "copies"
    if not fifo.exists():
        os.mkfifo(fifo)
    count = shard.stat().st_size // STEP
    with mmap.mmap(-1, _MEMORY) as shared:
        shared[:] = bytes(_MEMORY)
        view = memoryview(shared)
        begin, free, batches, *to_workers = (os.pipe() for _ in range(5))
        processes = [_forked(lambda: _read(view, fifo, count, begin[0], free[0], [each[1] for each in to_workers]))]
        processes += [_forked(partial(_work, view, each[0], batches[1])) for each in to_workers]
        start = time.perf_counter()
        with subprocess.Popen(["sh", "-c", f"exec cat '{shard}' > '{fifo}'"]):
            os.write(begin[1], b"\0")
            taken = 0
            while taken < count:
                places = _places(os.read(batches[0], BATCH * _PLACE.size))
                copies = [_copy(view, place) for place in places]
                taken += len(copies)
                os.write(free[1], _PLACE.pack(len(copies)))
        end = time.perf_counter()
        for process in processes:
            os.waitpid(process, 0)
        for ends in (begin, free, batches, *to_workers):
            for descriptor in ends:
                os.close(descriptor)
        view.release()
    return end - start


def _read(view: memoryview, fifo: Path, count: int, begin: int, free: int, workers: list[int]) -> None:
    os.read(begin, 1)
    position, sent, room = 0, 0, len(view)
    with fifo.open("rb", buffering=0) as stream:
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 1 << 20)
        while True:
            while room < 1 << 20:
                room += STEP * sum(_places(os.read(free, 1 << 16)))
            place = position % len(view)
            if not (size := stream.readinto(view[place : place + (1 << 20)])):
                break
            position += size
            room -= size
            found = range(sent, min(position // STEP, count))
            for index, worker in enumerate(workers):
                if places := [STEP * number + 512 for number in found if number % len(workers) == index]:
                    os.write(worker, struct.pack(f"<{len(places)}Q", *places))
            sent = found.stop
    for worker in workers:
        os.write(worker, _PLACE.pack(_END))


def _work(view: memoryview, source: int, batches: int) -> None:
    batch: list[int] = []
    copies = []
    while True:
        for place in _places(os.read(source, 1 << 16)):
            if place != _END:
                batch.append(place)
                copies.append(_copy(view, place))
            if batch and (place == _END or len(batch) == BATCH):
                # A pipe keeps a write of up to 4096 bytes together, and readers read as many as a full batch has.
                os.write(batches, struct.pack(f"<{len(batch)}Q", *batch))
                batch, copies = [], []
            if place == _END:
                return


def _copy(view: memoryview, place: int) -> bytes:
    place %= len(view)
    return view[place : place + SIZE].tobytes()  # shorter at the memory's end: one in 300


def _places(data: bytes) -> list[int]:
    return [place for (place,) in _PLACE.iter_unpack(data)]


def _forked(work: Callable[[], None]) -> int:
    process = os.fork()
    if not process:
        work()
        os._exit(0)
    return process
