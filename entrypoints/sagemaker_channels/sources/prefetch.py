"""Prefetching: threads fetch objects, whole or in pieces, and the reader gets them in order as streams.

It serves S3, which sends any range at any time, and mounts, whose files are read from front to back by one thread at a time:
mount-s3, rclone and NFS prefetch themselves and slow down if reads jump.

- Pieces are requested in the order in which they are read, and count against the limit from their request until they are read.
  One that takes unusually long is requested again (pace.py): the first answer counts, and an error only if no other one follows.
- An error is raised in place of its piece. Nothing is fetched, and no thread started, before the first read.
- The reader waits here, not in a request, so Ctrl-C works, and a silent store is reported and at last an error (silence.py).
- Closing never waits, not even for the lock: Python finalizes generators in any thread, also in one that holds it.
- A forked process has no threads and cannot continue its parent's streams; reading them raises ChannelError.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.meter import received, waited
from sagemaker_channels.sources.background import run_in_thread
from sagemaker_channels.sources.pace import LOOK_SECONDS, Requests
from sagemaker_channels.sources.silence import remote_silence
from sagemaker_channels.sources.stream import Fetchable, Limits, Piece, ReadStream


class Prefetch:
    """The objects of `sources`, of which the reader has one at a time."""

    def __init__(self, sources: Iterator[Fetchable], limits: Limits, who: str) -> None:
        self._sources, self._limits = sources, limits
        self._silence, self._process, self._lock = remote_silence(who), os.getpid(), threading.Lock()
        self._news = threading.Condition(self._lock)  # a piece for the reader, or an object
        self._waiting: deque[ReadStream] = deque()  # that the reader does not have yet
        self._unissued: deque[ReadStream] = deque()  # of which something is left to request, in order
        self._current: ReadStream | None = None  # that the reader has
        self._held = 0  # bytes
        self._requests = Requests(who)  # of objects with ranges
        self._failure: BaseException | None = None  # raised by `sources`, after all objects
        self._listing = self._exhausted = False  # whether a thread is advancing `sources`, or has come to their end
        self._fetching = 0  # threads that fetch, or are about to
        self._started = self._closed = False

    def next_stream(self) -> ReadStream | None:
        """End the stream before and return the next object's; None after the last one."""
        self._check_process()
        with self._lock:
            self._silence.begin()
            while not self._waiting:
                if self._failure is not None:
                    raise self._failure
                if self._exhausted:
                    return None
                self._start()
                self._wait("the next object's name")
            self._drop(self._current)
            self._current = self._waiting.popleft()
            self._start()
            return self._current

    def next_piece(self, stream: ReadStream) -> bytes:
        """Wait for the stream's next piece and return it, nothing at the end. Raises what its fetch raised."""
        self._check_process()
        with self._lock:
            self._silence.begin()
            self._started = True
            while (piece := self._taken(stream)) is None:
                self._start()
                self._wait(f"object {stream.key!r}")
            self._start()
            received(len(piece))
            return piece

    def seek(self, stream: ReadStream, place: int) -> None:
        """Continue the stream at a byte, and drop pieces fetched for other positions."""
        size = stream.source.length() if stream.end is None else stream.end  # needed to recognize the end
        with self._lock:
            if not stream.dropped and place != stream.place:
                self._forget(stream)
                stream.end, stream.window, stream.failed = size, self._limits.piece_bytes, False
                stream.place = stream.issued = place
                self._settle(stream)
                if place < size and stream not in self._unissued:
                    self._unissued.appendleft(stream)

    def close(self) -> None:
        """End the threads and drop all streams, without waiting."""
        self._closed = self._exhausted = True
        self.tidy()

    def tidy(self) -> None:
        """Drop what was closed, unless another thread holds the lock: that one does so, or the next that reads or answers."""
        if self._process == os.getpid() and self._lock.acquire(blocking=False):
            try:
                self._drop_closed()
            finally:
                self._lock.release()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise ChannelError(
                "a stream was opened before the process was forked",
                remedy="open the channel in the process that reads it",
            )

    # The following have the lock, except for a request.

    def _wait(self, what: str) -> None:
        """Wait for news, for a moment at most. Raises ChannelError if the store has been silent for too long."""
        begin = time.perf_counter()
        if not self._news.wait(LOOK_SECONDS):
            self._silence.check(what)
            self._requests.look()
        waited(begin)

    def _taken(self, stream: ReadStream) -> bytes | None:
        """Take the stream's next bytes, nothing at its end; None if they are not there yet. Raises what their request raised."""
        self._drop_closed()
        while stream.pieces:
            piece = stream.pieces[0]
            if piece.answer is None:
                return None
            if isinstance(piece.answer, Exception):
                if isinstance(piece.answer, ChannelError):
                    piece.answer.object = stream.key
                raise piece.answer
            stream.pieces.popleft()
            stream.place += piece.size
            self._held -= piece.size
            if piece.size:
                if stream.window is not None:
                    stream.window = 2 * stream.window if stream.window < self._limits.held_bytes else None
                return piece.answer
        if stream.dropped:
            raise ChannelError(f"object {stream.key!r}: its stream was closed before its end")
        return b"" if stream.end is not None and stream.issued >= stream.end else None

    def _start(self) -> None:
        """Start a thread for each kind of work that there may be. A thread that fetches starts the next one."""
        if self._closed:
            return
        if not (self._exhausted or self._listing) and len(self._waiting) <= self._most_waiting() * 7 // 8:
            run_in_thread(self._list, "prefetch")
            self._listing = True
        has_more = self._started and (self._unissued or self._requests.late)
        if has_more and self._fetching < self._requests.most(self._limits):
            run_in_thread(self._fetch_all, "prefetch")
            self._fetching += 1

    def _most_waiting(self) -> int:
        return self._limits.objects if self._started else 1

    def _next_request(self) -> Piece | None:
        """Return the next piece to request, or to request again; None if there is none, or no room for it."""
        if (late := self._requests.next_late()) is not None:
            return late
        limits, is_full, most = self._limits, False, self._limits.most_bytes(self._requests.delay())
        for stream in self._unissued:
            ahead = stream.issued - stream.place
            if (stream.busy and not stream.source.ranges) or (stream.window is not None and ahead >= stream.window):
                continue
            size = limits.next_size(stream)
            is_full = is_full or bool(self._held and self._held + size > most)
            if is_full and stream is not self._current:
                return None
            if is_full and ahead >= 2 * limits.piece_bytes:  # The one that is read always continues.
                continue
            piece = Piece(stream, stream.issued, size, time.monotonic())
            stream.pieces.append(piece)
            stream.issued += size
            stream.busy += 1
            self._held += size
            if stream.source.ranges:
                self._requests.add(piece)
            self._settle(stream)
            return piece
        return None

    def _settle(self, stream: ReadStream) -> None:
        """Request no more of a stream if nothing is left of it."""
        is_issued = stream.end is not None and stream.issued >= stream.end
        if (is_issued or stream.failed or stream.dropped) and stream in self._unissued:
            self._unissued.remove(stream)

    def _drop_closed(self) -> None:
        if self._closed:
            for stream in (*self._waiting, *self._unissued):
                self._drop(stream)
            self._waiting.clear()
            self._sources = iter(())
            self._news.notify_all()
        if self._current is not None and (self._closed or self._current.closed):
            self._drop(self._current)
            self._current = None

    def _drop(self, stream: ReadStream | None) -> None:
        if stream is not None:
            stream.dropped = True
            self._forget(stream)
            self._settle(stream)

    def _forget(self, stream: ReadStream) -> None:
        for piece in stream.pieces:
            piece.dropped = True
            self._held -= piece.size
            self._requests.drop(piece)
        stream.pieces.clear()

    def _list(self) -> None:
        """Advance `sources` as far as it may be ahead of the reader."""
        with self._lock:
            while not self._exhausted and len(self._waiting) < self._most_waiting():
                source, failure = None, None
                self._lock.release()
                try:
                    source = next(self._sources, None)
                except BaseException as error:  # noqa: BLE001 - raised where the reader asks for the stream
                    failure = error
                finally:
                    self._lock.acquire()
                if source is None:
                    self._exhausted, self._failure = True, failure
                elif not self._closed:
                    stream = ReadStream(source, self)
                    self._waiting.append(stream)
                    self._unissued.append(stream)
                    self._settle(stream)
                    self._start()
                self._silence.begin()
                if len(self._waiting) <= 1:
                    self._news.notify_all()  # The reader may wait for it, or for the end.
            self._listing = False
            self._drop_closed()

    def _fetch_all(self) -> None:
        with self._lock:
            while not self._closed and (piece := self._next_request()) is not None:
                self._start()
                self._fetch(piece)
            self._fetching -= 1
            self._drop_closed()

    def _fetch(self, piece: Piece) -> None:
        self._lock.release()
        answer: bytes | Exception
        try:
            answer = piece.stream.source.fetch(piece.start, piece.size)
        except Exception as error:  # noqa: BLE001 - raised where the piece is read
            answer = error
        finally:
            self._lock.acquire()
        stream, size = piece.stream, piece.size
        if stream.source.ranges and not self._requests.answered(piece, answer):
            return
        piece.answer = answer
        stream.busy -= 1
        self._silence.begin()
        if isinstance(answer, bytes):
            self._silence.bytes += len(answer)
        if not piece.dropped:
            if isinstance(answer, Exception):
                stream.failed, piece.size = True, 0
            elif len(answer) < size:
                stream.end = stream.issued = piece.start + len(answer)
                piece.size = len(answer)
            self._held -= size - piece.size
            self._settle(stream)
        self._drop_closed()
        if stream is self._current:
            self._news.notify_all()


def read_ahead(sources: Iterator[Fetchable], limits: Limits, who: str) -> Generator[ReadStream, None, None]:
    """Yield the streams of `sources` in order, with prefetch; each ends when the next is requested.

    Closing the generator ends all. What `sources` raise, advanced by one thread at a time, is raised in place of the next stream.
    Raises ChannelError if the store, `who` in messages, has been silent for too long.
    """
    pipeline = Prefetch(sources, limits, who)
    try:
        yield from iter(pipeline.next_stream, None)
    except BaseException:
        pipeline.close()
        raise
