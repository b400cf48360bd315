"""The lines of all of a job's hosts in the order of their times, while they are still being written.

A line becomes visible some seconds after it was printed, and later on one host than on another. So lines are held until the
hosts agree: a line is given when each stream has been read beyond its time, and it has lain here for the settling time.
Streams are asked one after the other by one thread, at a pace that finds its place under the account's quota (10 to 25
GetLogEvents a second, by region, for all who ask); what is held is bounded by reading the stream that lags first.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from launcher.aws.account import Account, AwsError
from launcher.jobs.logs.streams import GROUP, REMEMBERED_LINES, Line, Selection, Stream, host_of

SETTLING_SECONDS = 4.0
_PACE = 0.1  # seconds between two questions, to begin with
_QUICKEST_PACE, _SLOWEST_PACE = 0.05, 2.0  # it doubles when AWS throttles, and shrinks by a tenth while it does not
_OLD_MILLISECONDS = 120_000  # lines of that age are all there, so there is nothing to wait for
_RECENT_MILLISECONDS = 15_000
_HELD_LINES = 100_000  # with so many held, only the streams that hold them back are read on
_LOOK_SECONDS = (1.5, 30.0)  # how often new streams are looked for: while hosts are missing, and after
_REWIND_SECONDS = 30.0  # how often a stream with new lines is looked through for late ones, with up to ten of them
_RESTLESS_SECONDS = 120.0  # after a change of the job's status: a restart brings new streams
_REMEMBERED_LINES = 200_000  # of all streams
_OTHERS = 8
_FOREVER = 1 << 62
_EXPLAINING_STREAMS = 8


@dataclass
class _Place:
    """How far one stream has been read."""

    stream: Stream
    number: int  # tells equal times of several hosts apart
    bound: int = -1  # nothing older than this is to come from it
    asked: float = 0.0  # when it was last read
    rewound: float = field(default_factory=time.monotonic)  # when it was last looked through for late lines
    rewound_at: int = 0  # its newest time then

    def lags(self) -> bool:
        """Whether it is read further back than where its host is writing now."""
        return not self.stream.at_end and self.stream.newest < time.time() * 1000 - _RECENT_MILLISECONDS


class JobLogs:
    """The lines of a job: `read` fetches, `ripe` gives what is in order."""

    def __init__(
        self, account: Account, job: str, selection: Selection, *, hosts: int = 1, settling: float = SETTLING_SECONDS
    ) -> None:
        self.trouble: AwsError | None = None  # why the last round could not be finished; the next tries again
        self._account, self._job, self._selection = account, job, selection
        self._hosts = 1 if selection.host else hosts  # so many are expected to speak
        self._restless_until = 0.0
        self._settling = settling
        self._places: dict[str, _Place] = {}  # by the stream's name
        self._heap: list[tuple[int, int, int, Line]] = []  # (time, stream's number, line's number, line)
        self._count = 0
        self._marks: deque[tuple[float, int]] = deque()  # (when, the newest time fetched by then)
        self._settled = -1
        self._pace, self._next_call, self._next_look = _PACE, 0.0, 0.0
        self._look_bound = -1  # nothing older than this is to come from hosts that are missing
        self.last_new = time.monotonic()  # when a line was last fetched

    @property
    def at_end(self) -> bool:
        """Whether each stream was at its end when it was last asked."""
        return self.trouble is None and all(place.stream.at_end for place in self._places.values())

    @property
    def held(self) -> int:
        """How many lines have been fetched and not given."""
        return len(self._heap)

    @property
    def behind(self) -> bool:
        """Whether there is more to fetch than what is being written now, so that the next round should not wait."""
        return any(place.lags() for place in self._places.values())

    def read(self) -> None:
        """One round over the streams. AWS's passing troubles are noted in `trouble`; raises AwsError for the others."""
        self.trouble = None
        try:
            self._look_for_streams()
            for place in self._to_read():
                self._read(place)
        except AwsError as error:
            if not error.is_passing:
                raise
            self.trouble = error
            self._pace = min(self._pace * 2, _SLOWEST_PACE)

    def ripe(self) -> Iterator[Line]:
        """The lines that no other will precede, oldest first."""
        bound = min((place.bound for place in self._places.values()), default=-1)
        bound = min(bound, self._look_bound)
        while self._heap and self._heap[0][0] <= bound:
            yield heapq.heappop(self._heap)[-1]

    def rest(self) -> Iterator[Line]:
        """All lines that are held, oldest first: when nothing more will come."""
        while self._heap:
            yield heapq.heappop(self._heap)[-1]

    def rewind(self) -> None:
        """Look once more for lines that became visible late, in every stream, and for streams."""
        self._next_look = 0.0
        for place in self._places.values():
            place.stream.rewind()

    def expect_streams(self) -> None:
        """The job's status has changed, so its hosts may begin new streams, as after a spot interruption."""
        self._next_look, self._restless_until = 0.0, time.monotonic() + _RESTLESS_SECONDS

    def _look_for_streams(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._settle()
        settled, host = self._settled, self._selection.host
        remembered = min(REMEMBERED_LINES, max(1_000, _REMEMBERED_LINES // self._hosts))
        prefix = f"{self._job}/{host}-" if host else f"{self._job}/"
        try:
            for page in self._account.pages(
                "logs", "describe_log_streams", logGroupName=GROUP, logStreamNamePrefix=prefix
            ):
                for name in (found["logStreamName"] for found in page["logStreams"]):
                    if name not in self._places:
                        stream = Stream(self._account, name, self._selection, remembered=remembered)
                        self._places[name] = _Place(stream, len(self._places))
        except AwsError as error:
            if error.code != "ResourceNotFoundException":  # the account's first job has no log group yet
                raise
        missing = len({place.stream.host for place in self._places.values()}) < self._hosts
        soon = self._settling and (missing or time.monotonic() < self._restless_until)
        self._next_look = time.monotonic() + (
            _LOOK_SECONDS[0] * max(1.0, self._hosts / 50) if soon else _LOOK_SECONDS[1]
        )
        self._look_bound = settled if soon else _FOREVER

    def _to_read(self) -> list[_Place]:
        """The streams, those that lag first; while some lag, few of the others, so that they catch up."""
        behind = sorted(
            (place for place in self._places.values() if not place.stream.at_end), key=lambda one: one.bound
        )
        others = sorted((place for place in self._places.values() if place.stream.at_end), key=lambda one: one.asked)
        if not self._settling:
            others = []  # what has been read to its end is done with
        elif self.behind:
            others = others[:_OTHERS]
        return behind[: 1 if self.held >= _HELD_LINES else None] + others

    def _read(self, place: _Place) -> None:
        stream, now = place.stream, time.monotonic()
        pause = _REWIND_SECONDS * max(1.0, len(self._places) / 10)
        if stream.at_end and stream.newest > place.rewound_at and now - place.rewound > pause:
            place.rewound, place.rewound_at = now, stream.newest
            stream.rewind()
        self._wait()
        self._settle()  # before the question: its answer is no younger
        settled, lines = self._settled, stream.read()
        place.asked = time.monotonic()
        self._pace = min(self._pace * 2, _SLOWEST_PACE) if stream.retried else max(self._pace * 0.9, _QUICKEST_PACE)
        for line in lines:
            self._count += 1
            heapq.heappush(self._heap, (line.timestamp, place.number, self._count, line))
        if lines:
            self.last_new = place.asked
            self._marks.append((place.asked, max(stream.newest, self._marks[-1][1] if self._marks else -1)))
        place.bound = max(place.bound, settled if stream.at_end else min(stream.newest, settled))

    def _settle(self) -> None:
        if not self._settling:
            self._settled = _FOREVER
            return
        until = time.monotonic() - self._settling
        while self._marks and self._marks[0][0] <= until:
            self._settled = max(self._settled, self._marks.popleft()[1])
        self._settled = max(self._settled, int(time.time() * 1000) - _OLD_MILLISECONDS)

    def _wait(self) -> None:
        time.sleep(max(0.0, self._next_call - time.monotonic()))
        self._next_call = time.monotonic() + self._pace


def lines_so_far(
    account: Account, job: str, selection: Selection, *, on_trouble: Callable[[AwsError], None]
) -> Iterator[Line]:
    """What a job has said, oldest line first, without waiting for more; with a job that runs, select `until`.

    Raises AwsError.
    """
    logs = JobLogs(account, job, selection, settling=0.0)
    while True:
        logs.read()
        if logs.trouble:
            on_trouble(logs.trouble)
            time.sleep(1)
            continue
        yield from logs.ripe()
        if logs.at_end:
            yield from logs.rest()
            return


def last_lines(account: Account, job: str, count: int = 100) -> tuple[str, ...]:
    """The last `count` lines of a job that has ended, oldest first; empty where they cannot be read.

    Of many hosts, only some are asked: it serves to explain a failure, not to show the log.
    """
    lines: list[Line] = []
    try:
        page = account.call("logs", "describe_log_streams", logGroupName=GROUP, logStreamNamePrefix=f"{job}/")
        for name in [stream["logStreamName"] for stream in page["logStreams"]][:_EXPLAINING_STREAMS]:
            events = account.call("logs", "get_log_events", logGroupName=GROUP, logStreamName=name, limit=count)[
                "events"
            ]
            lines += [Line(event["timestamp"], host_of(name), event["message"]) for event in events]
    except AwsError:
        return ()
    lines.sort(key=lambda line: line.timestamp)
    return tuple(line.message for line in lines[-count:])
