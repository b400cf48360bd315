"""The lines of a job's hosts, each once and in the order of their times.

A line becomes visible some seconds after it was printed, and later for one host than for another. So a line is held until it is
older than the settling time, and each read begins a while before the stream's newest line, without the lines that were returned
already. GetLogEvents has a higher quota than FilterLogEvents (10 to 25 calls a second by region, shared by all callers), and
AmazonSageMakerFullAccess allows it. A page may be empty although more follows: the end is where AWS returns the token sent.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge
from operator import attrgetter
from typing import Any, NamedTuple

from launcher.aws.session import Account, AwsError
from launcher.aws.threads import concurrently
from launcher.errors import RefusedError, did_you_mean
from launcher.request.view import machine_sets

SETTLING_SECONDS = 5.0
AGAIN = "trying again until it works"
PATIENCE_SECONDS = 60.0  # with errors of AWS that may pass, unless a job is followed
_GROUP = "/aws/sagemaker/TrainingJobs"
PACE = 0.1  # seconds between two calls
_LATE_MILLISECONDS = 20_000  # how much later than its neighbours a line may become visible and still be found
FORGET_EVERY = 100_000  # lines
_SEARCHED_CHARACTERS = 4096
_HOST = re.compile(r"^(?P<host>.+?)(-(?P<began>\d{6,}))?$")  # SageMaker's stream is <job>/algo-1-<epoch seconds>
# Of a host, and of all hosts: ranks print dozens of lines about one that died.
_END_EVENTS, END_CHARACTERS = 1_000, 4_000_000
_END_THREADS = 8


class Selection(NamedTuple):
    since: int | None = None  # milliseconds since 1970, inclusive
    until: int | None = None  # exclusive; without it, reading a running job's stream may never end
    host: str | None = None  # `algo-2`
    created: int = 0  # seconds since 1970: earlier streams are those of an older job of the same name


class Line(NamedTuple):
    timestamp: int  # milliseconds since 1970, UTC, as the host's log agent saw it
    host: str  # `algo-1`
    message: str


_time = attrgetter("timestamp")


def searchable(line: str) -> str:
    """Return the part of a line in which something is searched: an expression may take time by the square of the length."""
    return line[:_SEARCHED_CHARACTERS]


def last_of_each_host(lines: Sequence[Line], characters: int) -> list[Line]:
    """Return the last lines, as many of each host as fit into its share of so many characters."""
    hosts = {line.host for line in lines}
    left = dict.fromkeys(hosts, characters // max(1, len(hosts)))
    kept = []
    for line in reversed(lines):
        left[line.host] -= len(line.message)
        if left[line.host] >= 0:
            kept.append(line)
    return kept[::-1]


def host_of(stream_name: str) -> str:
    """Return `algo-1` for `job/algo-1-1690000000`."""
    found = _HOST.match(stream_name.rpartition("/")[2])
    return found["host"] if found else stream_name


def creation_of(description: Mapping[str, Any]) -> int:
    """Return when a described job was created, in seconds since 1970; 0 if the description does not have it."""
    created = description.get("CreationTime")
    return int(created.timestamp()) if created else 0


def host_names(description: Mapping[str, Any]) -> list[str]:
    """Return `["algo-1", "algo-2"]`; empty if the description has no number of hosts."""
    machines, *others = machine_sets(description.get("ResourceConfig") or {})
    count = 0 if others else sum(each.get("InstanceCount") or 0 for _, each in machines)
    return [f"algo-{number}" for number in range(1, count + 1)]


def check_host(host: str | None, description: Mapping[str, Any]) -> None:
    """Raise RefusedError if a described job has no such host; if its hosts are unknown, any may be one."""
    hosts = host_names(description)
    if host and hosts and host not in hosts:
        has = hosts[0] if len(hosts) == 1 else f"{hosts[0]} to {hosts[-1]}"
        raise RefusedError(f"--host {host}: {description['TrainingJobName']} has {has}{did_you_mean(host, hosts)}")


class _Stream:
    """One host's log stream, of which each line is returned once, also if a read was not finished."""

    def __init__(self, call: Callable[..., dict[str, Any]], name: str, selection: Selection) -> None:
        self.count = 0  # lines read
        self._newest = self._since = selection.since or 0  # the time of the newest line read
        until: dict[str, Any] = {"endTime": selection.until} if selection.until else {}
        self._call = partial(call, logGroupName=_GROUP, logStreamName=name, startFromHead=True, **until)
        self._host = host_of(name)
        self._seen: Counter[tuple[int, int]] = Counter()  # the latest lines: (time, hash of the message)

    def read(self) -> Iterator[Line]:
        """Yield the lines that have become visible since the last read. Raises AwsError."""
        asked: dict[str, Any] = {"startTime": self._forget()}
        again: Counter[tuple[int, int]] = Counter()
        while True:
            try:
                page = self._call(**asked)
            except AwsError as error:
                if error.code == "ResourceNotFoundException":
                    return  # there is no such stream yet
                raise
            for event in page["events"]:
                key = (event["timestamp"], hash(event["message"]))
                again[key] += 1
                if again[key] <= self._seen[key]:
                    continue
                yield Line(event["timestamp"], self._host, event["message"])
                # Only now, since a caller that stops before has not taken the line.
                self._seen[key] += 1
                self._newest, self.count = max(self._newest, event["timestamp"]), self.count + 1
                if self.count % FORGET_EVERY == 0:
                    self._forget()
            if page["nextForwardToken"] == asked.get("nextToken"):
                return
            asked = {"nextToken": page["nextForwardToken"]}

    def _forget(self) -> int:
        """Forget the lines before those that may still be followed by late ones, and return the time of these."""
        start = max(self._since, self._newest - _LATE_MILLISECONDS)
        self._seen = Counter({key: count for key, count in self._seen.items() if key[0] >= start})
        return start


class JobLines:
    """The lines of a job: each round of `new` reads all streams to their end. An AwsError in a round loses and repeats no line."""

    def __init__(self, account: Account, job: str, selection: Selection, settling: float = SETTLING_SECONDS) -> None:
        self.last_new = time.monotonic()  # when a line was last read
        self._account, self._job, self._selection, self._settling = account, job, selection, settling
        self._streams: dict[str, _Stream] = {}  # by name
        self._held: deque[Line] = deque()
        self._count = 0
        self._next_call = 0.0

    def new(self) -> Iterator[Line]:
        """Yield the lines that no other can precede, oldest first, and hold the others. Raises AwsError."""
        self._find_streams()
        bound = (time.time() - self._settling) * 1000 if self._settling else math.inf
        later: list[Line] = []
        try:
            reads = (stream.read() for stream in self._streams.values())
            for line in merge(self.remaining(), *reads, key=_time):
                if line.timestamp <= bound:
                    yield line
                else:
                    later.append(line)
        finally:
            self._held = deque(merge(self._held, later, key=_time))
            if self._count != (count := sum(stream.count for stream in self._streams.values())):
                self._count, self.last_new = count, time.monotonic()

    def remaining(self) -> Iterator[Line]:
        """Yield the held lines, oldest first; each is held until the next one is asked for."""
        while self._held:
            yield self._held[0]
            self._held.popleft()

    def _find_streams(self) -> None:
        host = self._selection.host
        prefix = f"{self._job}/{host}-" if host else f"{self._job}/"
        for name in _streams(self._account, prefix, self._selection.created):
            if name not in self._streams:
                self._streams[name] = _Stream(self._page, name, self._selection)

    def _page(self, **parameters: Any) -> dict[str, Any]:
        time.sleep(max(0.0, self._next_call - time.monotonic()))
        self._next_call = time.monotonic() + PACE
        return self._account.call("logs", "get_log_events", **parameters)


def _streams(account: Account, prefix: str, created: int) -> Iterator[str]:
    """Yield the names of a job's streams, without those that began before it was created, in seconds since 1970."""
    pages = account.pages("logs", "describe_log_streams", logGroupName=_GROUP, logStreamNamePrefix=prefix)
    try:
        for name in (found["logStreamName"] for page in pages for found in page["logStreams"]):
            found = _HOST.match(name.rpartition("/")[2])
            if not (found and found["began"] and int(found["began"]) < created):
                yield name
    except AwsError as error:
        if error.code != "ResourceNotFoundException":  # the account's first job has no log group yet
            raise


def lines_so_far(
    account: Account, description: Mapping[str, Any], selection: Selection, warn: Callable[[str], None]
) -> Iterator[Line]:
    """Yield the lines that a described job has written so far, oldest first. Raises AwsError if that cannot pass, or does not."""
    # A job may write faster than its lines are read, and this would never end.
    until = None if "TrainingEndTime" in description else int(time.time() * 1000) + 1
    selection = selection._replace(created=creation_of(description), until=until)
    lines = JobLines(account, description["TrainingJobName"], selection, settling=0.0)
    while True:
        try:
            yield from lines.new()
            return
        except AwsError as error:
            if not error.is_passing or time.monotonic() > lines.last_new + PATIENCE_SECONDS:
                raise
            warn(f"{error}; trying again")
            time.sleep(1)


def last_lines(account: Account, description: Mapping[str, Any]) -> tuple[Line, ...]:
    """Return the end of every host's log, oldest line first and with secrets masked; of hosts whose log can be read.

    A host that was started again has several logs, of which the last is read. With many hosts, the ends are shorter. Without
    startFromHead, pages are empty more often, since each is of a span of time (github.com/boto/boto3/issues/3718).
    """
    prefix, created = f"{description['TrainingJobName']}/", creation_of(description)

    def end_of(stream: str) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {"logGroupName": _GROUP, "logStreamName": stream, "limit": _END_EVENTS}
        events: list[dict[str, Any]] = []
        with suppress(AwsError):
            while len(events) < _END_EVENTS:
                page = account.call("logs", "get_log_events", **asked)
                events = page["events"] + events
                if page["nextBackwardToken"] == asked.get("nextToken"):
                    break
                asked["nextToken"] = page["nextBackwardToken"]
        return events

    streams: dict[str, str] = {}
    lines: list[Line] = []
    with suppress(AwsError):  # the job's status is still worth showing, and so are the other hosts' lines
        streams = {host_of(name): name for name in sorted(_streams(account, prefix, created))}
    for name, outcome in concurrently(end_of, list(streams.values()), _END_THREADS):
        for event in outcome.result():
            parts = account.mask.apply(event["message"]).splitlines()[-_END_EVENTS:]
            lines += [Line(event["timestamp"], host_of(name), part) for part in parts]
    lines.sort(key=_time)
    return tuple(last_of_each_host(lines, END_CHARACTERS))
