"""Reading ahead: objects fetched by threads, some whole and some in pieces, and handed over in order as streams.

Whatever stands behind a channel answers after a while, and how many answers are waited for at the same time decides how
fast it is. So threads ask for the pieces that come next, as many as `Limits.held_bytes` allows, and whoever reads finds them
there. What is ahead is bounded in bytes and in objects, however slowly it is read; a piece is asked for only after all
before it have been, so the one that is read next can never wait behind later ones.

- An error is raised where its piece would have been, after everything before it.
- Nothing is fetched until the first read: a stream can be sought to where a resumed epoch goes on, and a generator that is
  only made costs nothing. Threads start then, in the process that reads, as many as there is work for.
- Whoever reads waits here, and not in a request: so Ctrl-C is heard, and where not one byte comes for a long time, over all
  requests, that is told of and at last an error (silence.py). Threads that are stuck in a request are left behind.
- Closing a stream or the pipeline waits for nothing, not even for the lock: it may run while Python finalizes a generator, where
  a Ctrl-C is lost, and in a thread that holds the lock already. Threads end as soon as they see it: immediately if they wait, else
  at the end of their request. Only the end of the program waits for them, for a moment.
- A process made by fork has no threads of its own: what its parent was reading cannot be read on in it, and says so.

This is one engine for S3 and for mounted file systems. S3 gives any range at any time; on a mount a file is read from
front to back by one thread at a time, because file systems (mount-s3, rclone, NFS) read ahead themselves and lose their way
when they are asked here and there.
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

from entrypoints.errors import ChannelError
from entrypoints.fetching.background import exit_deadline
from entrypoints.fetching.schedule import Fetch, Fetchable, Limits, Schedule, Slot
from entrypoints.fetching.silence import remote_silence
from entrypoints.fetching.stream import ReadStream

_LOOK_SECONDS = 1.0  # between looks of a thread without work for streams that were dropped
_QUIT_SECONDS = 1.0  # for requests that are under way, once, however many there are


class ReadAhead:
    """Iterates over the streams of `sources`, in their order; `sources` is advanced by one thread at a time.

    The last stream can be read after the iteration has come to its end; `close` ends everything before.
    """

    def __init__(self, sources: Iterator[Fetchable], limits: Limits, who: str) -> None:
        self._sources = sources
        self._silence = remote_silence(who)
        self._most_threads = limits.threads
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # threads wait for something to fetch, or room for it
        self._news = threading.Condition(self._lock)  # the reader waits for a piece or a slot
        self._schedule = Schedule(limits)
        self._given: dict[weakref.ref[ReadStream[Slot]], Slot] = {}
        self._abandoned: deque[weakref.ref[ReadStream[Slot]]] = deque()  # of those, to streams that are no more
        self._left: deque[Slot] = deque()  # of streams that were closed
        self._failure: BaseException | None = None  # of `sources`; its place is after all slots
        self._exhausted = False
        self._advancing = False  # somebody is asking `sources`
        self._idle = 0  # threads that wait
        self.threads: set[threading.Thread] = set()
        self._started = False
        self._closed = False
        _pipelines.add(weakref.ref(self, _pipelines.discard))

    def __iter__(self) -> Iterator[ReadStream[Slot]]:
        return self

    def __next__(self) -> ReadStream[Slot]:
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
            # No code in Python runs when a stream is dropped, since Python would lose a Ctrl-C that comes in it.
            self._given[weakref.ref(stream, self._abandoned.append)] = slot
        return stream

    def close(self) -> None:
        """End the threads and drop what was fetched, without waiting."""
        self._closed = self._exhausted = True
        self._tidy()

    def end(self) -> None:
        """Close the pipeline and the streams it has returned, so that no thread waits for their bytes any more."""
        self.close()
        if self._process == os.getpid():
            with self._lock:
                self._left.extend(self._given.values())
                self._drop_closed()

    # What streams ask for

    def next_piece(self, slot: Slot) -> bytes | None:
        """The piece at the slot's place, waited for; None at the object's end. Raises what its fetch raised."""
        self._check_process()
        with self._lock:
            self._drop_closed()
            self._silence.begin()
            while not (piece := self._schedule.take(slot)):
                if slot.closed:
                    raise ChannelError(f"object {slot.source.key!r}: its reading was ended before its end")
                if slot.at_end():
                    return None
                self._start()
                self._wait(f"object {slot.source.key!r}")
            self._start()
            return piece

    def seek(self, slot: Slot, place: int) -> None:
        """Lets the slot be read from `place` on. What has been fetched for other places is dropped."""
        self._check_process()
        size = self.size(slot)  # without it, nothing read at a place could be its end or anything after it
        with self._lock:
            if not slot.closed and place != slot.place:
                self._schedule.seek(slot, place, size)

    def size(self, slot: Slot) -> int:
        """The object's size; asked for where it is not known yet."""
        return slot.source.length() if slot.end is None else slot.end

    def close_slot(self, slot: Slot) -> None:
        """End the reading of one object, without waiting."""
        self._left.append(slot)
        self._tidy()

    def _tidy(self) -> None:
        """Drop what was closed, unless another thread has the lock: that one does it within a second."""
        if self._process == os.getpid() and self._lock.acquire(blocking=False):
            try:
                self._drop_closed()
            finally:
                self._lock.release()

    # With the lock held

    def _wait(self, what: str) -> None:
        """Until something has come, or a moment has passed. Raises ChannelError where nothing has come for too long."""
        if not self._news.wait(self._silence.patience):
            self._silence.check(what)

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
        """Wakes the threads that wait once there is nothing left to do, so that they end."""
        if self._idle and self._exhausted and self._schedule.all_issued():
            self._work.notify_all()

    def _may_advance(self) -> bool:
        return not (self._exhausted or self._advancing) and self._schedule.has_room()

    def _advance(self) -> None:
        """Asks `sources` for the next one. The lock is let go of meanwhile: that can be a request too."""
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
        """Sees to it that a thread looks for work, where there may be some. Further ones start each other."""
        self._started = True
        if self._closed or not (self._may_advance() or not self._schedule.all_issued()):
            return
        if self._idle:
            self._work.notify()
        elif len(self.threads) < self._most_threads:
            thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
            self.threads.add(thread)
            thread.start()

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
                self.threads.discard(threading.current_thread())

    def _fetch(self, fetch: Fetch) -> None:
        self._lock.release()
        try:
            piece = _fetch(fetch)
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
                "a stream was begun before the process was forked; begin to read in the process that reads"
            )


def read_ahead(sources: Iterator[Fetchable], limits: Limits, who: str) -> Generator[ReadStream[Slot], None, None]:
    """The streams of sources in order, being read ahead; closing the generator ends that, and closes `sources`.

    `who` gives them, for the ChannelError where nothing comes any more.

    The last stream can be read after the generator's end. Raises what `sources` raises, at its place.
    """
    pipeline = ReadAhead(sources, limits, who)
    try:
        yield from pipeline
    except BaseException:
        pipeline.close()
        if isinstance(sources, Generator):
            with suppress(ValueError):  # a thread is advancing it, and closes it with the last reference
                sources.close()
        raise


def _fetch(fetch: Fetch) -> bytes | Exception:
    try:
        return fetch.slot.source.fetch(fetch.start, fetch.size)
    except Exception as error:  # noqa: BLE001 - raised where the piece is read
        return error


_pipelines: set[weakref.ref[ReadAhead]] = set()  # all that exist


def end_all() -> list[ReadAhead]:
    """End every pipeline of this process, and return them."""
    pipelines = [pipeline for reference in tuple(_pipelines) if (pipeline := reference()) is not None]
    for pipeline in pipelines:
        pipeline.end()
    return pipelines


@atexit.register
def _close_at_exit() -> None:
    """Wait a moment for threads to end: none should be in the middle of a request while Python is taken down."""
    pipelines = end_all()
    deadline = min(time.monotonic() + _QUIT_SECONDS, exit_deadline())
    for thread in [thread for pipeline in pipelines for thread in tuple(pipeline.threads)]:
        if thread.is_alive():  # A Ctrl-C may have come before it was started.
            thread.join(max(0.0, deadline - time.monotonic()))
