"""The lines of all hosts of a job, ordered by time while they are still being written.

A line becomes visible some seconds after it was printed, and later for one host than for another. So a line is held until
every stream has been read beyond its time and the settling time has passed. One thread reads the streams in turn, at a pace
that adapts to the account's quota (10 to 25 GetLogEvents a second by region, shared by all callers). Reading the stream that
lags most bounds the number of held lines.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from launcher.aws.account import Account, AwsError
from launcher.aws.threads import concurrently
from launcher.jobs.logs.streams import (
    GROUP,
    REMEMBERED_LINES,
    Line,
    Selection,
    Stream,
    host_of,
    is_older,
    last_of_each_host,
)

SETTLING_SECONDS = 4.0
_PACE = 0.1  # seconds between two calls, at first
_QUICKEST_PACE, _SLOWEST_PACE = 0.05, 2.0  # it doubles when AWS throttles, and shrinks by a tenth while it does not
_OLD_MILLISECONDS = 120_000  # all lines of that age are visible
_RECENT_MILLISECONDS = 15_000
_HELD_LINES = 100_000  # with so many held, read only the streams that delay them
_MISSING_LOOK_SECONDS, _LOOK_SECONDS = 1.5, 30.0  # between looks for new streams: while hosts are missing, and after
_REWIND_SECONDS = 30.0  # between looks for late lines in a stream with new ones, for up to ten streams
_EXPECTING_SECONDS = 120.0  # after a change of the job's status: a restart starts new streams
_REMEMBERED_LINES = 200_000  # of all streams
_OTHERS = 8
_FOREVER = 1 << 62
_END_EVENTS, _END_CHARACTERS = (
    1_000,
    4_000_000,
)  # of a host, of all hosts: ranks print dozens of lines about one that died
_END_THREADS = 8


@dataclass
class _Cursor:
    """The position in one stream."""

    stream: Stream
    number: int  # orders equal times of several hosts
    bound: int = -1  # every line up to this time has been read
    asked: float = 0.0  # time of the last read
    rewound: float = field(default_factory=time.monotonic)  # time of the last look for late lines
    rewound_at: int = 0  # its newest line's time then

    def lags(self) -> bool:
        """Return whether it is behind what its host is writing now."""
        return not self.stream.at_end and self.stream.newest < time.time() * 1000 - _RECENT_MILLISECONDS


class JobLogs:
    """The lines of a job: `read` fetches them, `ordered` yields those that no other can precede."""

    def __init__(
        self, account: Account, job: str, selection: Selection, hosts: int = 1, settling: float = SETTLING_SECONDS
    ) -> None:
        self.trouble: AwsError | None = None  # the error that ended the last round; the next round tries again
        self._account, self._job, self._selection = account, job, selection
        self._hosts = 1 if selection.host else hosts or 1  # the number of hosts whose streams are expected
        self._expecting_until = 0.0
        self._settling = settling
        self._cursors: dict[str, _Cursor] = {}  # by the stream's name
        self._heap: list[tuple[int, int, int, Line]] = []  # (time, stream's number, line's number, line)
        self._count = 0
        self._marks: deque[tuple[float, int]] = deque()  # (when, the newest time fetched by then)
        self._settled = -1
        self._pace, self._next_call, self._next_look = _PACE, 0.0, 0.0
        self._look_bound = -1  # missing hosts have no lines up to this time
        self.last_new = time.monotonic()  # when the last line was fetched

    @property
    def at_end(self) -> bool:
        """Whether each stream was at its end when it was last read."""
        return self.trouble is None and all(cursor.stream.at_end for cursor in self._cursors.values())

    @property
    def held(self) -> int:
        """The number of lines that have been fetched but not yielded."""
        return len(self._heap)

    @property
    def behind(self) -> bool:
        """Whether there are older lines to fetch than those being written, so that the next round should not wait."""
        return any(cursor.lags() for cursor in self._cursors.values())

    def read(self) -> None:
        """Read each stream once. Keeps a temporary error in `trouble`, and raises AwsError for others."""
        self.trouble = None
        try:
            self._find_streams()
            for cursor in self._to_read():
                self._read(cursor)
        except AwsError as error:
            if not error.is_passing:
                raise
            self.trouble = error
            self._pace = min(self._pace * 2, _SLOWEST_PACE)

    def ordered(self) -> Iterator[Line]:
        """Yield the lines that no other can precede, oldest first."""
        bound = min((cursor.bound for cursor in self._cursors.values()), default=-1)
        bound = min(bound, self._look_bound)
        while self._heap and self._heap[0][0] <= bound:
            yield heapq.heappop(self._heap)[-1]

    def remaining(self) -> Iterator[Line]:
        """Yield all held lines, oldest first, when there are no more to fetch."""
        while self._heap:
            yield heapq.heappop(self._heap)[-1]

    def rewind(self) -> None:
        """Look again for new streams, and in every stream for lines that became visible late."""
        self._next_look = 0.0
        for cursor in self._cursors.values():
            cursor.stream.rewind()

    def expect_streams(self) -> None:
        """Look for new streams, as after a change of the job's status: a spot interruption starts some."""
        self._next_look, self._expecting_until = 0.0, time.monotonic() + _EXPECTING_SECONDS

    def _find_streams(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._settle()
        settled, host = self._settled, self._selection.host
        remembered = min(REMEMBERED_LINES, max(1_000, _REMEMBERED_LINES // self._hosts))
        prefix = f"{self._job}/{host}-" if host else f"{self._job}/"
        pages = self._account.pages("logs", "describe_log_streams", logGroupName=GROUP, logStreamNamePrefix=prefix)
        try:
            for name in (found["logStreamName"] for page in pages for found in page["logStreams"]):
                if name not in self._cursors and not is_older(name, self._selection.created):
                    stream = Stream(self._account, name, self._selection, remembered=remembered)
                    self._cursors[name] = _Cursor(stream, len(self._cursors))
        except AwsError as error:
            if error.code != "ResourceNotFoundException":  # the account's first job has no log group yet
                raise
        missing = len({cursor.stream.host for cursor in self._cursors.values()}) < self._hosts
        soon = self._settling and (missing or time.monotonic() < self._expecting_until)
        pause = _MISSING_LOOK_SECONDS * max(1.0, self._hosts / 50) if soon else _LOOK_SECONDS
        self._next_look = time.monotonic() + pause
        self._look_bound = settled if soon else _FOREVER

    def _to_read(self) -> list[_Cursor]:
        """Return the streams to read, lagging ones first; while some lag, few of the others, so that they catch up."""
        cursors = self._cursors.values()
        behind = sorted((each for each in cursors if not each.stream.at_end), key=lambda one: one.bound)
        others = sorted((each for each in cursors if each.stream.at_end), key=lambda one: one.asked)
        if not self._settling:
            others = []  # streams read to their end are finished
        elif self.behind:
            others = others[:_OTHERS]
        return behind[: 1 if self.held >= _HELD_LINES else None] + others

    def _read(self, cursor: _Cursor) -> None:
        stream, now = cursor.stream, time.monotonic()
        pause = _REWIND_SECONDS * max(1.0, len(self._cursors) / 10)
        if stream.at_end and stream.newest > cursor.rewound_at and now - cursor.rewound > pause:
            cursor.rewound, cursor.rewound_at = now, stream.newest
            stream.rewind()
        time.sleep(max(0.0, self._next_call - time.monotonic()))
        self._next_call = time.monotonic() + self._pace
        self._settle()  # before the call: its answer is not older
        settled, lines = self._settled, stream.read()
        cursor.asked = time.monotonic()
        self._pace = min(self._pace * 2, _SLOWEST_PACE) if stream.retried else max(self._pace * 0.9, _QUICKEST_PACE)
        for line in lines:
            self._count += 1
            heapq.heappush(self._heap, (line.timestamp, cursor.number, self._count, line))
        if lines:
            self.last_new = cursor.asked
            self._marks.append((cursor.asked, max(stream.newest, self._marks[-1][1] if self._marks else -1)))
        cursor.bound = max(cursor.bound, settled if stream.at_end else min(stream.newest, settled))

    def _settle(self) -> None:
        if not self._settling:
            self._settled = _FOREVER
            return
        until = time.monotonic() - self._settling
        while self._marks and self._marks[0][0] <= until:
            self._settled = max(self._settled, self._marks.popleft()[1])
        self._settled = max(self._settled, int(time.time() * 1000) - _OLD_MILLISECONDS)


def lines_so_far(
    account: Account, job: str, selection: Selection, *, on_trouble: Callable[[AwsError], None]
) -> Iterator[Line]:
    """Yield the lines that a job has written so far, oldest first. Raises AwsError.

    For a running job, `selection` should have `until`, or this may never end. `on_trouble` is called with each temporary error,
    after which the call is repeated.
    """
    logs = JobLogs(account, job, selection, settling=0.0)
    while True:
        logs.read()
        if logs.trouble:
            on_trouble(logs.trouble)
            time.sleep(1)
            continue
        yield from logs.ordered()
        if logs.at_end:
            yield from logs.remaining()
            return


def last_lines(account: Account, job: str, created: int = 0) -> tuple[Line, ...]:
    """Return the end of every host's log, oldest line first and with secrets masked; of hosts whose log can be read.

    A host that was started again has several logs, of which the last is read. With many hosts, the ends are shorter. Logs that
    began before `created`, in seconds since 1970, are left out.
    """

    def end_of(stream: str) -> list[dict[str, Any]]:
        answer = account.call("logs", "get_log_events", logGroupName=GROUP, logStreamName=stream, limit=_END_EVENTS)
        return list(answer["events"])

    streams: dict[str, str] = {}
    lines: list[Line] = []
    with suppress(AwsError):  # the job's status is still worth showing, and so are the other hosts' lines
        pages = account.pages("logs", "describe_log_streams", logGroupName=GROUP, logStreamNamePrefix=f"{job}/")
        for name in sorted(found["logStreamName"] for page in pages for found in page["logStreams"]):
            if not is_older(name, created):
                streams[host_of(name)] = name
    for name, outcome in concurrently(end_of, list(streams.values()), _END_THREADS):
        with suppress(AwsError):
            for event in outcome.result():
                parts = account.mask.apply(event["message"]).splitlines()[-_END_EVENTS:]
                lines += [Line(event["timestamp"], host_of(name), part) for part in parts]
    lines.sort(key=lambda line: line.timestamp)
    return tuple(last_of_each_host(lines, _END_CHARACTERS))
