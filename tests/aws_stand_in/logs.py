"""CloudWatch Logs of training jobs: the group `/aws/sagemaker/TrainingJobs`; moto answers for every other group.

Sources: CloudWatch Logs' API reference. GetLogEvents: up to 10,000 events or 1 MB (a message's bytes and 26 for each), `startTime`
inclusive, `endTime` exclusive, the last page unless `startFromHead`; at the end of a stream the forward token is the one that was
sent. FilterLogEvents: streams interleaved in time, `endTime` inclusive, a token as long as there is more. Pages of both can be
empty although there is more. Both tokens are places in time: an event that arrives late, with an earlier time than the token's,
is not returned after it. The group and a stream exist from the first line on, and are not found before.

Differences: tokens never expire; a filter pattern is a list of words that all must occur, and any other is refused; a group cannot
be encrypted, or expire.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.wire import Call

GROUP = "/aws/sagemaker/TrainingJobs"
_PAGE_EVENTS, _PAGE_BYTES, _EVENT_BYTES = 10_000, 1_048_576, 26
_ID = "{:014d}{:042d}"  # an event's ID: its time, then its number, in 56 digits


class Event(NamedTuple):
    """One line; sorted by time, then by arrival."""

    timestamp: int  # ms
    number: int
    arrived: float  # seconds
    message: str
    stream: str

    @property
    def id(self) -> str:
        """eventId: 56 digits."""
        return _ID.format(self.timestamp, self.number)


@dataclass
class Stream:
    """The lines of one host."""

    name: str
    created: float
    events: list[Event] = field(default_factory=list)
    delay: float = 0.0  # seconds from a line's arrival until it can be read

    def between(self, first: tuple[int, int], last: tuple[int, int], now: float) -> Iterator[Event]:
        """Return the events that can be read, from `first` until before `last`, each a (time, number)."""
        start, end = bisect_left(self.events, first), bisect_left(self.events, last)
        for event in islice(self.events, start, end):
            if event.arrived + self.delay <= now:
                yield event


class Logs:
    """The group's streams."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.clear()

    def clear(self) -> None:
        """Remove the group and its streams."""
        self._streams: dict[str, Stream] = {}
        self._delays: dict[str, float] = {}
        self._number = self._pages = self._empty_every = 0

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Do an order: `append` adds lines to a stream, `delay` delays its lines, `empty_every` empties each n-th page."""
        if name == "append":
            return self._append(parameters["stream"], parameters["lines"], parameters.get("timestamps"))
        if name == "delay":
            self._delays[parameters["stream"]] = float(parameters["seconds"])
            if parameters["stream"] in self._streams:
                self._streams[parameters["stream"]].delay = float(parameters["seconds"])
        elif name == "empty_every":
            self._empty_every = int(parameters["pages"])
        else:
            raise Refusal("NoSuchControl", f"logs/{name} is nothing that can be ordered", 404)
        return {}

    def _append(self, name: str, lines: list[str], timestamps: list[int] | None) -> dict[str, Any]:
        now = self._now()
        times = timestamps or [int(now * 1000)] * len(lines)
        if len(times) != len(lines):
            raise Refusal("BadControl", f"{len(lines)} lines have {len(times)} timestamps")
        stream = self._streams.setdefault(name, Stream(name, now, delay=self._delays.get(name, 0.0)))
        for timestamp, line in zip(times, lines, strict=True):
            self._number += 1
            insort(stream.events, Event(timestamp, self._number, now, line, name))
        return {"events": len(stream.events)}

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return the answer for SageMaker's group; None leaves the call to moto. Raises Refusal."""
        parameters = call.parameters
        identifier = parameters.get("logGroupName") or parameters.get(
            "logGroupIdentifier", ""
        )  # the latter can be an ARN
        group = identifier.rpartition(":log-group:")[2].removesuffix(":*")
        asked = {"DescribeLogStreams": self._describe, "GetLogEvents": self._get, "FilterLogEvents": self._filter}
        if group != GROUP or call.operation not in asked:
            return None
        if not self._streams:
            raise Refusal("ResourceNotFoundException", "The specified log group does not exist.")
        return asked[call.operation](parameters)

    def _describe(self, parameters: dict[str, Any]) -> dict[str, Any]:
        prefix, order = parameters.get("logStreamNamePrefix", ""), parameters.get("orderBy", "LogStreamName")
        if prefix and order == "LastEventTime":
            raise Refusal("InvalidParameterException", "Cannot order by LastEventTime with a logStreamNamePrefix.")
        found = [self._entry(stream) for name, stream in sorted(self._streams.items()) if name.startswith(prefix)]
        if order == "LastEventTime":
            found.sort(key=lambda entry: entry.get("lastEventTimestamp", 0))
        if parameters.get("descending"):
            found.reverse()
        start, size = _number(parameters.get("nextToken") or "0"), int(parameters.get("limit") or 50)
        if not 1 <= size <= 50:
            raise Refusal("InvalidParameterException", "1 validation error detected: limit must be from 1 to 50")
        answer: dict[str, Any] = {"logStreams": found[start : start + size]}
        if start + size < len(found):
            answer["nextToken"] = str(start + size)
        return answer

    def _entry(self, stream: Stream) -> dict[str, Any]:
        seen = [event for event in stream.events if event.arrived + stream.delay <= self._now()]
        entry = {
            "logStreamName": stream.name,
            "creationTime": int(stream.created * 1000),
            "arn": f"arn:aws:logs:us-east-1:123456789012:log-group:{GROUP}:log-stream:{stream.name}",
            "storedBytes": 0,
        }
        if seen:
            times = {"firstEventTimestamp": seen[0].timestamp, "lastEventTimestamp": seen[-1].timestamp}
            entry |= times | {"lastIngestionTime": int(max(event.arrived for event in seen) * 1000)}
        return entry

    def _get(self, parameters: dict[str, Any]) -> dict[str, Any]:
        stream = self._streams.get(parameters.get("logStreamName", ""))
        if stream is None:
            raise Refusal("ResourceNotFoundException", "The specified log stream does not exist.")
        token, limit = parameters.get("nextToken"), _limit(parameters)
        first = (int(parameters.get("startTime", 0)), 0)
        last = (int(parameters.get("endTime", 10**14 - 1)), 0)
        backward = token.startswith("b/") if token else not parameters.get("startFromHead")
        if token:
            place = _place(token)
            first, last = (first, min(last, place)) if backward else (max(first, place), last)
        self._pages += 1
        is_due = bool(self._empty_every) and self._pages % self._empty_every == 0
        is_gap = is_due and any(stream.between(first, last, self._now()))
        events = iter(()) if is_gap else stream.between(first, last, self._now())
        page, _ = _page(reversed(list(events)) if backward else events, limit)
        if backward:
            page.reverse()
        # Tokens are places: forward continues after the last event returned, backward before the first.
        here = _place(token) if token else (last if backward and not page and last[0] < 10**14 - 1 else first)
        before = page[0][:2] if page else last if is_gap and backward else here
        after = (page[-1].timestamp, page[-1].number + 1) if page else here
        return {
            "events": [
                {
                    "timestamp": one.timestamp,
                    "message": one.message,
                    "ingestionTime": int((one.arrived + stream.delay) * 1000),
                }
                for one in page
            ],
            "nextForwardToken": "f/" + _ID.format(*after) + f"/{self._pages}" * is_gap,
            "nextBackwardToken": "b/" + _ID.format(*before) + f"/{self._pages}" * is_gap,
        }

    def _filter(self, parameters: dict[str, Any]) -> dict[str, Any]:
        now, names = self._now(), parameters.get("logStreamNames")
        if names and "logStreamNamePrefix" in parameters:
            raise Refusal("InvalidParameterException", "logStreamNames and logStreamNamePrefix exclude each other.")
        if names is None:
            prefix = parameters.get("logStreamNamePrefix", "")
            names = [name for name in self._streams if name.startswith(prefix)]
        elif not 1 <= len(names) <= 100 or any(name not in self._streams for name in names):
            raise Refusal("ResourceNotFoundException", "The specified log stream does not exist.")
        first, last = (int(parameters.get("startTime", 0)), 0), (int(parameters.get("endTime", 10**14 - 2)) + 1, 0)
        if parameters.get("nextToken"):
            first = max(first, _place(parameters["nextToken"]))
        self._pages += 1
        if self._empty_every and self._pages % self._empty_every == 0:
            return {"events": [], "searchedLogStreams": [], "nextToken": f"t/{_ID.format(*first)}/{self._pages}"}
        words = _words(parameters.get("filterPattern", ""))
        events = heapq.merge(*(self._streams[name].between(first, last, now) for name in names))
        matching = (event for event in events if all(word in event.message for word in words))
        page, more = _page(matching, _limit(parameters))
        answer: dict[str, Any] = {"events": [self._filtered(event) for event in page], "searchedLogStreams": []}
        if more:
            answer["nextToken"] = "t/" + _ID.format(page[-1].timestamp, page[-1].number + 1)
        return answer

    def _filtered(self, event: Event) -> dict[str, Any]:
        return {
            "logStreamName": event.stream,
            "timestamp": event.timestamp,
            "message": event.message,
            "ingestionTime": int((event.arrived + self._streams[event.stream].delay) * 1000),
            "eventId": event.id,
        }


def _page(events: Iterator[Event], limit: int) -> tuple[list[Event], bool]:
    """Return the first events, as many as fit on a page, and whether there are more."""
    page: list[Event] = []
    size = 0
    for event in events:
        size += len(event.message.encode()) + _EVENT_BYTES
        if len(page) == limit or (page and size > _PAGE_BYTES):
            return page, True
        page.append(event)
    return page, False


def _limit(parameters: dict[str, Any]) -> int:
    limit = int(parameters.get("limit") or _PAGE_EVENTS)
    if not 1 <= limit <= _PAGE_EVENTS:
        raise Refusal("InvalidParameterException", f"limit must be from 1 to {_PAGE_EVENTS}")
    return limit


def _place(token: str) -> tuple[int, int]:
    digits = token[2:].partition("/")[0]  # the rest makes two tokens of the same place differ
    if len(digits) != 56 or not digits.isdecimal():
        raise Refusal("InvalidParameterException", "The specified nextToken is invalid.")
    return int(digits[:14]), int(digits[14:])


def _number(token: str) -> int:
    if not token.isdecimal():
        raise Refusal("InvalidParameterException", "The specified nextToken is invalid.")
    return int(token)


def _words(pattern: str) -> list[str]:
    if any(mark in pattern for mark in "{}[]?%-"):
        raise Refusal("InvalidParameterException", f"the stand-in reads words only, not the pattern {pattern!r}")
    return [pattern.strip('"')] if pattern.startswith('"') else pattern.split()
