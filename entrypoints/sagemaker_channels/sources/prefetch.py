"""Prefetching: threads fetch objects, whole or in pieces, and the reader gets them in order as streams.

It serves S3, which sends any range at any time, and mounts, whose files are read from front to back by one thread at a time:
mount-s3, rclone and NFS prefetch themselves and slow down if reads jump. The schedule limits bytes and objects (schedule.py).

- An error is raised in place of its piece. Nothing is fetched, and no thread started, before the first read.
- The reader waits here, not in a request, so Ctrl-C works, and a silent store is reported and at last an error (silence.py).
- Closing never waits, not even for the lock: it may run while Python finalizes a generator, where a Ctrl-C would be lost, or in a
  thread that holds the lock.
- A forked process has no threads and cannot continue its parent's streams; reading them raises ChannelError.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.meter import received, waited
from sagemaker_channels.sources.background import run_in_thread
from sagemaker_channels.sources.schedule import LOOK_SECONDS, Fetchable, Limits, Piece, Schedule, Slot
from sagemaker_channels.sources.silence import remote_silence
from sagemaker_channels.sources.stream import ReadStream


class ReadAhead(Iterator[ReadStream]):
    """What `read_ahead` iterates over; its last stream can be read after the iteration's end."""

    def __init__(self, sources: Iterator[Fetchable], limits: Limits, who: str) -> None:
        self._sources = sources
        self._silence = remote_silence(who)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)  # a piece for the reader, or a slot
        self._schedule = Schedule(limits, who)
        self._objects = limits.objects
        self._given: list[Slot] = []  # those whose streams the reader has, or had
        self._failure: BaseException | None = None  # raised by `sources`, after all slots
        self._exhausted = False
        self._listing = False  # A thread is advancing `sources`.
        self._fetching = 0  # threads that fetch, or are about to
        self._started = self._closed = False
        _pipelines.add(weakref.ref(self, _pipelines.discard))

    def __next__(self) -> ReadStream:
        self._check_process()
        with self._lock:
            self._drop_closed()
            self._silence.begin()
            while not self._schedule.waiting:
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._exhausted:
                    raise StopIteration
                self._start()
                self._wait("the next object's name")
            slot = self._schedule.waiting.popleft()
            stream = ReadStream(slot.source.key, self, slot)
            # No callback, and so no finalizer: Python would lose a Ctrl-C that comes while it runs.
            slot.stream = weakref.ref(stream)
            self._given.append(slot)
            self._start()
        return stream

    def close(self) -> None:
        """End the threads and drop what was fetched for later streams, without waiting."""
        self._closed = self._exhausted = True
        self.tidy()

    def end(self) -> None:
        """Close the pipeline and the streams it has returned, so that no thread waits for their bytes any more."""
        self.close()
        if self._process == os.getpid():
            with self._lock:
                self._drop(self._given)

    # For streams

    def next_piece(self, slot: Slot) -> bytes | None:
        """Wait for the slot's next piece and return it; None at the object's end. Raises what its fetch raised."""
        self._check_process()
        with self._lock:
            self._drop_closed()
            self._silence.begin()
            self._started = True
            while not (piece := self._schedule.take(slot)):
                if piece is None:
                    return None
                if slot.closed:
                    raise ChannelError(f"object {slot.source.key!r}: its stream was closed before its end")
                self._start()
                self._wait(f"object {slot.source.key!r}")
            self._start()
            received(len(piece))
            return piece

    def seek(self, slot: Slot, place: int) -> None:
        """Continue the slot at a byte. Pieces fetched for other positions are dropped."""
        self._check_process()
        size = self.size(slot)  # needed to recognize the end
        with self._lock:
            if not slot.closed and place != slot.place:
                self._schedule.seek(slot, place, size)

    def size(self, slot: Slot) -> int:
        return slot.source.length() if slot.end is None else slot.end

    def tidy(self) -> None:
        """Drop closed streams, unless another thread holds the lock: then at the next read or answer."""
        if self._process == os.getpid() and self._lock.acquire(blocking=False):
            try:
                self._drop_closed()
            finally:
                self._lock.release()

    # With the lock held

    def _wait(self, what: str) -> None:
        """Wait for news, for a moment at most. Raises ChannelError if the store has been silent for too long."""
        begin = time.perf_counter()
        if not self._news.wait(LOOK_SECONDS):
            self._silence.check(what)
            self._schedule.look()
        waited(begin)

    def _drop_closed(self) -> None:
        """End the slots of streams that were closed, or dropped before they were closed."""
        if self._closed:
            self._schedule.drop_all()
            self._news.notify_all()
        self._drop([slot for slot in self._given if (stream := slot.stream()) is None or stream.closed])

    def _drop(self, slots: list[Slot]) -> None:
        for slot in tuple(slots):
            self._given.remove(slot)
            self._schedule.drop(slot)

    def _start(self) -> None:
        """Start a thread for each kind of work that there may be. A thread that fetches starts the next one."""
        if self._closed:
            return
        waiting = len(self._schedule.waiting)
        if not (self._exhausted or self._listing) and waiting <= (self._objects * 7 // 8 if self._started else 0):
            run_in_thread(partial(self._run, self._list))
            self._listing = True
        if self._started and self._schedule.has_more() and self._fetching < self._schedule.most_requests():
            run_in_thread(partial(self._run, self._fetch_all))
            self._fetching += 1

    # In the threads, with the lock held except for a request

    def _run(self, work: Callable[[], None]) -> None:
        with self._lock:
            work()
            self._drop_closed()

    def _list(self) -> None:
        """Advance `sources` as far as it may be ahead of the reader."""
        while not self._exhausted and len(self._schedule.waiting) < (self._objects if self._started else 1):
            self._lock.release()
            source, failure = None, None
            try:
                source = next(self._sources, None)
            except BaseException as error:  # noqa: BLE001 - raised where the reader asks for the stream
                failure = error
            finally:
                self._lock.acquire()
            if source is None:
                self._exhausted, self._failure = True, failure
            elif self._closed:
                source.close()
            else:
                self._schedule.add(source)
                self._start()
            self._silence.begin()
            if len(self._schedule.waiting) <= 1:
                self._news.notify_all()  # The reader may wait for it, or for the end.
        self._listing = False

    def _fetch_all(self) -> None:
        """Fetch pieces as long as there are some, and room for them."""
        while not self._closed and (piece := self._schedule.next_piece()) is not None:
            self._start()
            self._fetch(piece)
        self._fetching -= 1

    def _fetch(self, piece: Piece) -> None:
        self._lock.release()
        answer: bytes | Exception
        try:
            answer = piece.slot.source.fetch(piece.start, piece.size)
        except Exception as error:  # noqa: BLE001 - raised where the piece is read
            answer = error
        finally:
            self._lock.acquire()
        self._schedule.put(piece, answer)
        self._drop_closed()
        self._silence.begin()
        if isinstance(answer, bytes):
            self._silence.bytes += len(answer)
        if piece.slot.stream is not None:
            self._news.notify_all()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise ChannelError(
                "a stream was opened before the process was forked; open the channel in the process that reads it"
            )


def read_ahead(sources: Iterator[Fetchable], limits: Limits, who: str) -> Generator[ReadStream, None, None]:
    """Yield the streams of `sources` in order, with prefetch. Closing the generator ends the prefetch and closes `sources`.

    Args:
        sources: The objects, advanced by one thread at a time. What they raise is raised in place of the next stream.
        limits: How far to prefetch.
        who: The store, for messages.

    Raises:
        ChannelError: The store has been silent for too long.
    """
    pipeline = ReadAhead(sources, limits, who)
    try:
        yield from pipeline
    except BaseException:
        pipeline.close()
        if isinstance(sources, Generator):
            with suppress(ValueError):  # A thread is advancing it; it is closed with the last reference.
                sources.close()
        raise


_pipelines: set[weakref.ref[ReadAhead]] = set()  # all that exist


@atexit.register
def end_all() -> None:
    """End every pipeline of this process."""
    for reference in tuple(_pipelines):
        if (pipeline := reference()) is not None:
            pipeline.end()
