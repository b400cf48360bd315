"""Reading several streams at once, and handing out their bytes in order: the next is under way while this one is read.

Memory stays flat however long the streams are: each holds a few chunks and then waits for its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from queue import Empty, Queue
from threading import Event, Thread

from launcher.s3.reading import Stream

_Slot = Queue[bytes | Exception | None]  # a stream's chunks; then None, or what went wrong

_AT_ONCE = 3  # streams; hides the time to the first byte of small objects
_JOINED = 1 << 16  # bytes of small streams that are handed on at once
_CHUNKS_EACH = 2  # waiting chunks of each stream
_LOOK_SECONDS = 0.1  # between two looks at the stop sign while nothing moves
_QUIT_SECONDS = 1.0  # for a reading thread to end; one that hangs in the network ends by its own time limit


@contextmanager
def read_ahead(streams: Iterator[Stream], stop: Event) -> Iterator[Iterator[bytes]]:
    """The chunks of all streams, in order; reading begins at once. On leaving, all reading ends.

    What a stream raises is raised when its turn comes. Once `stop` is set, the chunks end early.
    """
    abandoned = Event()
    under_way: deque[tuple[_Slot, Thread]] = deque()

    def start(count: int) -> None:
        for stream in islice(streams, count):
            slot: _Slot = Queue(_CHUNKS_EACH)
            thread = Thread(target=_fill, args=(stream, slot, abandoned), daemon=True)
            thread.start()
            under_way.append((slot, thread))

    def chunks() -> Iterator[bytes]:
        while under_way:
            slot, _ = under_way[0]
            while (chunk := _take(slot, stop)) is not None:
                yield chunk
            if stop.is_set():
                return
            under_way.popleft()
            start(1)

    try:
        start(_AT_ONCE)
        yield chunks()
    finally:
        abandoned.set()
        for slot, thread in under_way:
            _empty(slot)  # a thread that waits for room finds it, and then the sign
            thread.join(_QUIT_SECONDS)


@contextmanager
def in_order(streams: Iterator[Stream]) -> Iterator[Iterator[bytes]]:
    """The bytes of all streams, read as they are asked for: a thread per stream gains nothing on a disk.

    Small streams are joined, since each chunk wakes the reader of the pipe.
    """

    def chunks() -> Stream:
        joined = bytearray()
        try:
            for stream in streams:
                with closing(stream):
                    for chunk in stream:
                        joined += chunk
                        if len(joined) >= _JOINED:
                            yield bytes(joined)
                            joined.clear()
        except Exception:
            yield bytes(joined)  # what was read before the error is sent
            raise
        yield bytes(joined)

    with closing(chunks()) as opened:
        yield opened


def _take(slot: _Slot, stop: Event) -> bytes | None:
    while not stop.is_set():
        try:
            chunk = slot.get(timeout=_LOOK_SECONDS)
        except Empty:
            continue
        if isinstance(chunk, Exception):
            raise chunk
        return chunk
    return None


def _fill(stream: Stream, slot: _Slot, abandoned: Event) -> None:
    with closing(stream):
        try:
            for chunk in stream:
                if not _put(slot, chunk, abandoned):
                    return
        except Exception as error:  # noqa: BLE001 - raised where the chunks are taken
            _put(slot, error, abandoned)
        else:
            _put(slot, None, abandoned)


def _put(slot: _Slot, chunk: bytes | Exception | None, abandoned: Event) -> bool:
    if abandoned.is_set():
        return False
    slot.put(chunk)
    return True


def _empty(slot: _Slot) -> None:
    with suppress(Empty):
        while True:
            slot.get_nowait()
