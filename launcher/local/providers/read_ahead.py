"""Reading several streams concurrently, and yielding their bytes in order.

Memory does not grow with the length of the streams: each reads a few chunks ahead and then waits for its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from queue import Empty, Queue
from threading import Event, Thread

from launcher.s3.reading import Stream

_Slot = Queue[bytes | Exception | None]  # a stream's chunks, then None or the error

_AT_ONCE = 3  # streams; hides the latency of small objects
_JOINED = 1 << 16  # minimum bytes of joined small streams
_CHUNKS_EACH = 2  # waiting chunks of each stream
_LOOK_SECONDS = 0.1  # between two checks of the stop event while no chunk arrives
_QUIT_SECONDS = 1.0  # to wait for a reading thread; one that waits for the network ends by its own timeout


@contextmanager
def read_ahead(streams: Iterator[Stream], stop: Event) -> Iterator[Iterator[bytes]]:
    """Read several streams concurrently and yield an iterator over their chunks, in order; on leaving, reading ends.

    An error of a stream is raised at its turn. Once `stop` is set, the chunks end early.
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
            with suppress(Empty):
                while True:
                    slot.get_nowait()  # wakes a thread that waits for room; it then sees `abandoned`
            thread.join(_QUIT_SECONDS)


@contextmanager
def in_order(streams: Iterator[Stream]) -> Iterator[Iterator[bytes]]:
    """Read the streams one after another, without threads, which gain nothing on a disk; yield an iterator over chunks.

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
    end = None
    with closing(stream):
        try:
            for chunk in stream:
                if abandoned.is_set():
                    return
                slot.put(chunk)
        except Exception as error:  # noqa: BLE001 - raised in the thread that takes the chunks
            end = error
    if not abandoned.is_set():
        slot.put(end)
