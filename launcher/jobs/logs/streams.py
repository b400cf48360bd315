"""One host's log stream, of which each line is returned once.

GetLogEvents has a higher quota than FilterLogEvents, AmazonSageMakerFullAccess allows it, and its forward token marks a
position, which a time cannot, since many lines share a millisecond. About the token:

* A page may be empty although more follows: the end is where AWS returns the token that was sent.
* It expires after 24 hours, and a host may be silent for longer.
* It skips lines that become visible late, with times before the token's. So a stream can be rewound: it is read again
  from some time before its newest line, without the lines that were returned already.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from launcher.aws.account import Account, AwsError
from launcher.errors import RefusedError, did_you_mean

GROUP = "/aws/sagemaker/TrainingJobs"
_NO_TOKEN = "InvalidParameterException"
_NOT_THERE = "ResourceNotFoundException"
_REMEMBERED_MILLISECONDS = 60_000  # how much later than its neighbours a line may become visible and still be found
REMEMBERED_LINES = 20_000  # per stream, to bound memory
_SEARCHED_CHARACTERS = 4096
_HOST = re.compile(r"^(?P<host>.+?)(-(?P<began>\d{6,}))?$")  # SageMaker's stream is <job>/algo-1-<epoch seconds>


class Selection(NamedTuple):
    """Which of a job's lines are shown."""

    since: int | None = None  # milliseconds since 1970, inclusive
    until: int | None = None  # exclusive; without it, reading a running job's stream may never end
    host: str | None = None  # `algo-2`
    created: int = (
        0  # seconds since 1970: the time of the job's creation; earlier streams are an older job's of its name
    )


class Line(NamedTuple):
    """One line of a host's output."""

    timestamp: int  # milliseconds since 1970, UTC, as the host's log agent saw it
    host: str  # `algo-1`
    message: str


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


def is_older(stream_name: str, created: int) -> bool:
    """Return whether a stream began before its job was created: it is that of a deleted job of the same name."""
    found = _HOST.match(stream_name.rpartition("/")[2])
    return bool(found and found["began"] and int(found["began"]) < created)


def creation_of(description: Mapping[str, Any]) -> int:
    """Return when a described job was created, in seconds since 1970; 0 if the description does not have it."""
    created = description.get("CreationTime")
    return int(created.timestamp()) if created else 0


def hosts_of(description: Mapping[str, Any]) -> list[str]:
    """Return `["algo-1", "algo-2"]`; empty if the description has no number of hosts."""
    resources = description.get("ResourceConfig") or {}
    groups = resources.get("InstanceGroups") or ()
    count = sum(group["InstanceCount"] for group in groups) or resources.get("InstanceCount", 0)
    return [f"algo-{number}" for number in range(1, count + 1)]


def check_host(host: str | None, description: Mapping[str, Any]) -> None:
    """Raise RefusedError if a described job has no such host."""
    hosts = hosts_of(description)
    if host and hosts and host not in hosts:
        has = hosts[0] if len(hosts) == 1 else f"{hosts[0]} to {hosts[-1]}"
        raise RefusedError(f"--host {host}: {description['TrainingJobName']} has {has}{did_you_mean(host, hosts)}")


class Stream:
    """A position in one stream, which each `read` advances."""

    def __init__(self, account: Account, name: str, selection: Selection, remembered: int = REMEMBERED_LINES) -> None:
        since = selection.since or 0
        self.host = host_of(name)
        self.newest = since  # the time of the newest line read
        self.at_end = False  # whether the last page was the end
        self.retried = False  # whether the last answer took more than one attempt
        self._account, self._name, self._since = account, name, since
        self._until: dict[str, Any] = {"endTime": selection.until} if selection.until else {}
        self._token: str | None = None
        self._seen: Counter[int] = Counter()  # the returned lines, from `_horizon` on
        self._order: deque[tuple[int, int]] = deque()  # their (time, key), by which they are forgotten
        self._remembered = remembered
        self._oldest = 0  # older lines need not be remembered
        self._horizon = self._since  # from here on, all lines are remembered
        self._again: Counter[int] | None = None  # while rewound: the lines read a second time

    def read(self) -> list[Line]:
        """Return the next page's new lines, and set `at_end`. Raises AwsError."""
        start = self._since if self._again is None else self._horizon
        asked: dict[str, Any] = {"nextToken": self._token} if self._token else {"startTime": start}
        asked |= self._until
        try:
            page = self._account.call(
                "logs", "get_log_events", logGroupName=GROUP, logStreamName=self._name, startFromHead=True, **asked
            )
        except AwsError as error:
            if error.code == _NO_TOKEN and self._token:
                self.rewind()
                return []
            if error.code == _NOT_THERE:
                self.at_end = True
                return []
            raise
        self.retried = page.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
        token: str = page["nextForwardToken"]
        self.at_end = token == self._token and not page["events"]
        self._token = token
        lines = [line for event in page["events"] if (line := self._new(event))]
        if self.at_end and self._again is not None:  # everything up to shortly before here is known again
            self._again, self._oldest = None, self.newest - _REMEMBERED_MILLISECONDS
        self._forget()
        return lines

    def rewind(self) -> None:
        """Go back to find lines that became visible late; those returned before are not returned again."""
        self._token, self._again, self.at_end = None, Counter(), False

    def _new(self, event: dict[str, Any]) -> Line | None:
        """Return the line, or None if it was returned before; equal lines of one millisecond are counted."""
        timestamp, message = event["timestamp"], event["message"]
        key = hash((timestamp, message))
        if self._again is not None:
            self._again[key] += 1
            if self._again[key] <= self._seen[key]:
                return None
        self._seen[key] += 1
        self._order.append((timestamp, key))
        self.newest = max(self.newest, timestamp)
        return Line(timestamp, self.host, message)

    def _forget(self) -> None:
        """Forget lines that no rewinding reaches; while rewound, all of them may still be read again."""
        if self._again is not None:
            return
        while self._order and (self._order[0][0] < self._oldest or len(self._order) > self._remembered):
            timestamp, key = self._order.popleft()
            self._horizon = max(self._horizon, timestamp + 1)
            self._seen[key] -= 1
            if not self._seen[key]:
                del self._seen[key]
