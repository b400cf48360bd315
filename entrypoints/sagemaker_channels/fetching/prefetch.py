"""Prefetching: threads fetch objects, whole or in pieces, and the reader gets them in order as streams.

It serves S3, which sends any range at any time, and mounts, whose files are read from front to back by one thread at a time:
mount-s3, rclone and NFS prefetch themselves and slow down if reads jump. The schedule limits bytes and objects (schedule.py).

- An error is raised in place of its piece. Nothing is fetched, and no thread started, before the first read.
- The reader waits here, not in a request, so Ctrl-C works, and a silent store is reported and at last an error (silence.py).
- Closing never waits, not even for the lock: it may run while Python finalizes a generator, where a Ctrl-C would be lost, or in a
  thread that holds the lock. Only the exit handler waits for threads, for a moment; any that are stuck are left behind.
- A forked process has no threads and cannot continue its parent's streams; reading them raises ChannelError.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.fetching.background import exit_deadline, prefetch_in_thread
from sagemaker_channels.fetching.schedule import Fetch, Fetchable, Limits, Schedule, Slot
from sagemaker_channels.fetching.silence import remote_silence
from sagemaker_channels.fetching.stream import ReadStream
from sagemaker_channels.meter import received, waited

_POLL_SECONDS = 0.01  # between two looks of the waiting reader for a slow request
_LOOK_SECONDS = 1.0  # between two checks of an idle thread for dropped streams
_QUIT_SECONDS = 1.0  # for all requests together that are under way at exit


class ReadAhead(Iterator[ReadStream]):
    """What `read_ahead` iterates over; its last stream can be read after the iteration's end."""

    def __init__(self, sources: Iterator[Fetchable], limits: Limits, who: str) -> None:
        self._sources = sources
        self._silence = remote_silence(who)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # threads wait for something to fetch, or room for it
        self._news = threading.Condition(self._lock)  # the reader waits for a piece or a slot
        self._schedule = Schedule(limits, who)
        self._given: dict[weakref.ref[ReadStream], Slot] = {}
        self._abandoned: deque[weakref.ref[ReadStream]] = deque()  # references to streams that were dropped
        self._left: deque[Slot] = deque()  # slots of streams that were closed
        self._failure: BaseException | None = None  # raised by `sources`, after all slots
        self._exhausted = False
        self._advancing = False  # a thread is advancing `sources`
        self._idle = 0  # waiting threads
        self._threads = 0  # that run, or are about to
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
                if not self._advancing:
                    self._advancing = True
                    threading.Thread(target=self._advance_once, name="listing", daemon=True).start()
                self._wait("the next object's name")
            slot = self._schedule.waiting.popleft()
            slot.given = True
            if self._started:
                self._start()
            stream = ReadStream(slot.source.key, self, slot)
            # The callback is C code: Python would lose a Ctrl-C that comes while it finalizes a stream in Python.
            self._given[weakref.ref(stream, self._abandoned.append)] = slot
        return stream

    def close(self) -> None:
        """End the threads and drop what was fetched for later streams, without waiting."""
        self._closed = self._exhausted = True
        self._tidy()

    def end(self) -> None:
        """Close the pipeline and the streams it has returned, so that no thread waits for their bytes any more."""
        self.close()
        if self._process == os.getpid():
            with self._lock:
                self._left.extend(self._given.values())
                self._drop_closed()

    def wait_for_threads(self, deadline: float) -> None:
        """Wait until the threads of an ended pipeline have ended, too, or time.monotonic() is past the deadline."""
        if self._process == os.getpid():
            with self._lock:
                self._news.wait_for(lambda: not self._threads, max(0.0, deadline - time.monotonic()))

    # For streams

    def next_piece(self, slot: Slot) -> bytes | None:
        """Wait for the slot's next piece and return it; None at the object's end. Raises what its fetch raised."""
        self._check_process()
        with self._lock:
            self._drop_closed()
            self._silence.begin()
            while not (piece := self._schedule.take(slot)):
                if slot.closed:
                    raise ChannelError(f"object {slot.source.key!r}: its stream was closed before its end")
                if slot.at_end():
                    return None
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

    def close_slot(self, slot: Slot) -> None:
        """End the reading of one object, without waiting."""
        self._left.append(slot)
        self._tidy()

    def _tidy(self) -> None:
        """Drop closed streams, unless another thread holds the lock: that thread drops them within a second."""
        if self._process == os.getpid() and self._lock.acquire(blocking=False):
            try:
                self._drop_closed()
            finally:
                self._lock.release()

    # With the lock held

    def _wait(self, what: str) -> None:
        """Wait for news, for a moment at most. Raises ChannelError if the store has been silent for too long."""
        begin = time.perf_counter()
        if not self._news.wait(_POLL_SECONDS):
            self._silence.check(what)
        waited(begin)

    def _drop_closed(self) -> None:
        """End the slots of streams that were closed, or dropped before they were closed."""
        if self._closed:
            self._schedule.drop_all()
            self._work.notify_all()
            self._news.notify_all()
        while self._abandoned:
            self._left.append(self._given.pop(self._abandoned.popleft()))
        while self._left:
            self._schedule.drop(self._left.popleft())
            self._dismiss()

    def _dismiss(self) -> None:
        """Wake idle threads once there is nothing left to do, so that they end."""
        if self._idle and self._exhausted and self._schedule.all_issued():
            self._work.notify_all()

    def _may_advance(self) -> bool:
        return not (self._exhausted or self._advancing) and self._schedule.has_room()

    def _advance(self) -> None:
        """Advance `sources`, without the lock: that can be a request too."""
        self._advancing = True
        self._lock.release()
        source, failure = None, None
        try:
            source = next(self._sources, None)
        except BaseException as error:  # noqa: BLE001 - raised where the reader asks for the stream
            failure = error
        finally:
            self._lock.acquire()
            self._advancing = False
        if source is None:
            self._exhausted = True
            self._failure = failure
            self._dismiss()
        elif self._closed:
            source.close()
        else:
            self._schedule.add(source)
        self._silence.begin()
        self._news.notify_all()

    def _start(self) -> None:
        """Make sure that a thread looks for work if there may be some. Further ones start each other."""
        self._started = True
        if self._closed or not (self._may_advance() or not self._schedule.all_issued()):
            return
        if self._idle:
            self._work.notify()
        elif self._threads < self._schedule.most_threads():
            prefetch_in_thread(self._run)
            self._threads += 1

    # In the threads

    def _advance_once(self) -> None:
        with self._lock:
            self._advance()

    def _run(self) -> None:
        with self._lock:
            try:
                while True:
                    self._drop_closed()
                    if self._closed:
                        return
                    fetch = self._schedule.next_fetch()
                    if fetch is not None:
                        self._dismiss()
                        self._start()
                        self._fetch(fetch)
                    elif self._may_advance():
                        self._advance()
                    elif self._exhausted and self._schedule.all_issued():
                        return
                    else:
                        self._idle += 1
                        self._work.wait(_LOOK_SECONDS)
                        self._idle -= 1
            finally:
                self._threads -= 1
                self._news.notify_all()

    def _fetch(self, fetch: Fetch) -> None:
        self._lock.release()
        piece: bytes | Exception
        try:
            piece = fetch.slot.source.fetch(fetch.start, fetch.size)
        except Exception as error:  # noqa: BLE001 - raised where the piece is read
            piece = error
        finally:
            self._lock.acquire()
        self._schedule.put(fetch, piece)
        self._silence.begin()
        if isinstance(piece, bytes):
            self._silence.bytes += len(piece)
        self._dismiss()
        if fetch.slot.given:
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


def end_all() -> list[ReadAhead]:
    """End every pipeline of this process, and return them."""
    pipelines = list(filter(None, (reference() for reference in tuple(_pipelines))))
    for pipeline in pipelines:
        pipeline.end()
    return pipelines


@atexit.register
def _close_at_exit() -> None:
    """Wait a moment for threads to end: none should be in a request while Python exits."""
    deadline = min(time.monotonic() + _QUIT_SECONDS, exit_deadline())
    for pipeline in end_all():
        pipeline.wait_for_threads(deadline)
