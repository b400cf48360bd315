"""Reading ahead: objects fetched by threads, some whole and some in pieces, and handed over in order as streams.

Whatever stands behind a channel answers after a while, and how many answers are waited for at the same time decides how
fast it is. So threads ask for the pieces that come next, as many as `Limits.held_bytes` allows, and whoever reads finds them
there. What is ahead is bounded in bytes and in objects, however slowly it is read; a piece is asked for only after all
before it have been, so the one that is read next can never wait behind later ones.

- An error is raised where its piece would have been, after everything before it.
- Nothing is fetched until the first read: a stream can be sought to where a resumed epoch goes on, and a generator that is
  only made costs nothing. Threads start then, in the process that reads, as many as there is work for.
- Closing ends the threads: at once where they wait, at the end of their request where one is under way.
- A process made by fork has no threads of its own: what its parent was reading cannot be read on in it, and says so.

This is one engine for S3 and for mounted file systems. S3 gives any range at any time; on a mount a file is read from
front to back by one thread at a time, because file systems (mount-s3, rclone, NFS) read ahead themselves and lose their way
when they are asked here and there.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress

from entrypoints.errors import ChannelError
from entrypoints.prefetch_slot import Limits, Slot, Source
from entrypoints.prefetch_stream import ReadStream

_QUIT_SECONDS = 10.0  # for a request that is under way; a thread that takes longer ends by itself later


class ReadAhead:
    """Iterates over the streams of `sources`, in their order; `sources` is advanced by one thread at a time.

    The last stream can be read after the iteration has come to its end; `close` ends everything before.
    """

    def __init__(self, sources: Iterator[Source], limits: Limits) -> None:
        self._sources = sources
        self._limits = limits
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # threads wait for something to fetch, or room for it
        self._news = threading.Condition(self._lock)  # the reader waits for a piece or a slot
        self._slots: deque[Slot] = deque()  # not given to the reader yet
        self._unissued: deque[Slot] = deque()  # those that want more, in order
        self._abandoned: deque[Slot] = deque()  # whose streams nobody has any more
        self._failure: BaseException | None = None  # of `sources`; its place is after all slots
        self._exhausted = False
        self._advancing = False  # somebody is asking `sources`
        self._held = 0  # bytes, of all slots
        self._idle = 0  # threads that wait
        self._threads: set[threading.Thread] = set()
        self._started = False
        self._closed = False

    def __iter__(self) -> Iterator[ReadStream[Slot]]:
        return self

    def __next__(self) -> ReadStream[Slot]:
        self._check_process()
        with self._lock:
            while not self._slots:
                if self._closed or (self._exhausted and self._failure is None):
                    raise StopIteration
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._advancing:
                    self._news.wait()
                else:
                    self._advance()
            slot = self._slots.popleft()
            slot.given = True
            if self._started and (slot.wants_more() or self._may_advance()):
                self._start()
        return ReadStream(slot.source.key, self, slot)

    def close(self) -> None:
        """Ends the threads and lets go of everything that was fetched."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
            self._exhausted = True
            for slot in (*self._slots, *self._unissued):
                self._drop(slot)
            self._slots.clear()
            self._unissued.clear()
            self._work.notify_all()
            self._news.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_QUIT_SECONDS)
        _live.discard(self)

    # What streams ask for

    def next_piece(self, slot: Slot) -> bytes | None:
        """The piece at the slot's place, waited for; None at the object's end. Raises what its fetch raised."""
        self._check_process()
        with self._lock:
            while True:
                piece = slot.pieces.pop(slot.place, None)
                if isinstance(piece, Exception):
                    slot.pieces[slot.place] = piece  # reading on raises it again
                    raise piece
                if piece:
                    slot.place += len(piece)
                    self._release(slot, len(piece))
                    return piece
                if slot.closed:
                    raise ChannelError(f"object {slot.source.key!r}: its reading was ended before its end")
                if slot.end is not None and slot.place >= slot.end and slot.issued:
                    return None
                self._start()
                self._news.wait()

    def seek(self, slot: Slot, place: int) -> None:
        """Lets the slot be read from `place` on. What has been fetched for other places is dropped."""
        self._check_process()
        with self._lock:
            if slot.closed or place == slot.place:
                return
            slot.generation += 1
            self._release(slot, slot.held)
            slot.pieces.clear()
            slot.failed = False
            slot.issued = slot.place = place
            if slot not in self._unissued and slot.wants_more():
                self._unissued.appendleft(slot)
            if self._started:
                self._start()

    def size(self, slot: Slot) -> int:
        """The object's size; asked for where it is not known yet."""
        return slot.source.length() if slot.end is None else slot.end

    def close_slot(self, slot: Slot) -> None:
        """Ends the reading of one object."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._drop(slot)

    def abandon(self, slot: Slot) -> None:
        """As `close_slot`, from a finalizer: that can run anywhere, even where this thread holds the lock."""
        self._abandoned.append(slot)
        if self._process == os.getpid() and self._lock.acquire(blocking=False):
            try:
                self._drop_abandoned()
            finally:
                self._lock.release()

    # With the lock held

    def _drop(self, slot: Slot) -> None:
        if not slot.closed:
            slot.closed = True
            slot.generation += 1
            slot.pieces.clear()
            self._release(slot, slot.held)
            self._all_issued(slot)
            if not slot.busy:
                slot.source.close()

    def _drop_abandoned(self) -> None:
        while self._abandoned:
            self._drop(self._abandoned.popleft())

    def _all_issued(self, slot: Slot) -> None:
        with suppress(ValueError):
            self._unissued.remove(slot)
        if self._exhausted and not self._unissued:
            self._work.notify_all()  # so that the threads end

    def _release(self, slot: Slot, count: int) -> None:
        slot.held -= count
        self._held -= count
        if self._idle and count:
            self._work.notify()

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
        if self._closed:
            if source is not None:
                source.close()
        elif source is None:
            self._exhausted = True
            self._failure = failure
            self._work.notify_all()
        else:
            slot = Slot(source)
            self._slots.append(slot)
            self._unissued.append(slot)
        self._news.notify_all()
        self._work.notify()

    def _start(self) -> None:
        """Sees to it that a thread fetches; further ones start each other."""
        self._started = True
        if self._idle:
            self._work.notify()
        elif len(self._threads) < self._limits.threads and not self._closed:
            thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
            self._threads.add(thread)
            _live.add(self)
            thread.start()

    def _choose(self) -> tuple[Slot, int, int, int] | None:
        """What is to be fetched next: slot, generation, start, count."""
        limits = self._limits
        for slot in self._unissued:
            if slot.busy and not slot.source.ranges:
                continue
            count = limits.piece_bytes if slot.end is None else min(limits.piece_bytes, slot.end - slot.issued)
            # The one that is being read goes on in any case: the others must not starve it.
            starved = slot.given and slot.held < 2 * limits.piece_bytes
            if self._held and self._held + count > limits.held_bytes and not starved:
                return None
            start = slot.issued
            slot.issued += max(count, 1)
            slot.held += count
            self._held += count
            slot.busy += 1
            if not slot.wants_more():
                self._all_issued(slot)
            return slot, slot.generation, start, count
        return None

    def _may_advance(self) -> bool:
        return (
            not (self._exhausted or self._advancing)
            and len(self._slots) < self._limits.objects
            and self._held < self._limits.held_bytes
        )

    # In the threads

    def _run(self) -> None:
        with self._lock:
            try:
                while not self._closed:
                    self._drop_abandoned()
                    chosen = self._choose()
                    if chosen is not None:
                        if self._unissued or self._may_advance():
                            self._start()
                        self._lock.release()
                        try:
                            piece = _fetch(chosen)
                        finally:
                            self._lock.acquire()
                        self._put(chosen, piece)
                        del piece
                    elif self._may_advance():
                        self._advance()
                    elif self._exhausted and not self._unissued:
                        return
                    else:
                        self._idle += 1
                        self._work.wait()
                        self._idle -= 1
            finally:
                self._threads.discard(threading.current_thread())
                if not self._threads:
                    _live.discard(self)

    def _put(self, chosen: tuple[Slot, int, int, int], piece: bytes | Exception) -> None:
        slot, generation, start, count = chosen
        slot.busy -= 1
        if slot.generation != generation:  # sought away from, or closed
            if slot.closed and not slot.busy:
                slot.source.close()
            return
        if isinstance(piece, Exception):
            slot.failed = True
            self._release(slot, count)
        elif len(piece) != count:
            self._release(slot, count - len(piece))
            if len(piece) < count:
                slot.end = start + len(piece)
        if not slot.wants_more():
            self._all_issued(slot)
        slot.pieces[start] = piece
        if slot.given:
            self._news.notify_all()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise ChannelError(
                "a stream was begun before this process was forked; begin to read in the process that reads"
            )


def read_ahead(sources: Iterator[Source], limits: Limits) -> Generator[ReadStream[Slot], None, None]:
    """The streams of sources in order, being read ahead; closing the generator ends that, and closes `sources`.

    The last stream can be read after the generator's end. Raises what `sources` raises, at its place.
    """
    pipeline = ReadAhead(sources, limits)
    try:
        yield from pipeline
    except BaseException:
        pipeline.close()
        if isinstance(sources, Generator):
            with suppress(ValueError):  # it is still at work, in a thread that did not end in time
                sources.close()
        raise


def _fetch(chosen: tuple[Slot, int, int, int]) -> bytes | Exception:
    slot, _, start, count = chosen
    try:
        return slot.source.fetch(start, count)
    except Exception as error:  # noqa: BLE001 - raised where the piece is read
        return error


_live: weakref.WeakSet[ReadAhead] = weakref.WeakSet()  # those with threads


@atexit.register
def _end_all() -> None:
    """Ends what was left open: a thread must not be in the middle of a request while Python is taken down."""
    for pipeline in list(_live):
        pipeline.close()
