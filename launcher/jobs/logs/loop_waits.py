"""What a job's training loops wait for, from the lines that entrypoints/waits.py writes into the log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LINE = re.compile(r"\bwaits (channel=\S+ mode=\S+ .*\bwait_share=.*)")
_PARTS = ("source", "parse", "transform", "handover")
_CAUSES = {"parse": "parsing", "transform": "the transform", "handover": "the hand-over between processes"}
_SOURCES = {"S3Connector": "S3", "File": "the disk", "Pipe": "the Pipe's feeder"}  # by input mode; others are their own
_LEAST_SHARE = 0.05  # of a step, to be worth a word
_SHOWN = 3  # channels
_FIRST_WORKERS = 4  # for a loop without any


@dataclass
class ChannelWaits:
    """The waits for one channel, over all hosts, ranks and epochs."""

    channel: str
    mode: str
    workers: int
    cores: int
    seconds: float = 0.0  # of all steps
    waited: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PARTS, 0.0))  # seconds

    @property
    def share(self) -> float:
        """The part of a step that is waiting."""
        return self.waited / self.seconds if self.seconds else 0.0

    @property
    def cause(self) -> str | None:
        """What is waited for most; None if the loader's records do not say."""
        part = max(self.parts, key=self.parts.__getitem__)
        if not self.parts[part]:
            return None
        return _SOURCES.get(self.mode, self.mode) if part == "source" else _CAUSES[part]

    @property
    def removable(self) -> float:
        """The part of a step that twice the workers would remove, or the first ones; an estimate.

        Workers wait for S3 or a mount in parallel, but a Pipe has one feeder, and a core parses for one worker at a time. While a
        loop waits for its workers, all of them are busy, so their samples take as long as the loop's steps.
        """
        known = sum(self.parts.values())
        if not known:
            return 0.0
        own, now = self.seconds - self.waited, max(1, self.workers)
        more = 2 * self.workers or _FIRST_WORKERS
        source = self.parts["source"] / known
        waiting = source if self.mode == "Pipe" else source * now / more
        working = (1 - source) * now / min(more, max(now, self.cores))
        making = self.seconds if self.workers else self.waited
        left = max(0.0, making * (waiting + working) - own)
        return max(0.0, self.waited - left) / self.seconds

    def __str__(self) -> str:
        """The sentence of a report: `41 % of each step waits for channel train (S3); more workers would remove ...`."""
        cause, removable = self.cause, 5 * round(20 * self.removable)
        text = f"{100 * self.share:.0f} % of each step waits for channel {self.channel}" + f" ({cause})" * bool(cause)
        if cause == _CAUSES["handover"]:
            return f"{text}; a ThreadLoader sends nothing between processes"
        if removable:
            return f"{text}; more workers would remove about {min(removable, round(100 * self.share))} %"
        return f"{text}; more workers would not help" if cause else text

    def as_data(self) -> dict[str, Any]:
        parts = {name: round(spent / self.seconds, 4) for name, spent in self.parts.items()}
        return {"Share": round(self.share, 4), **parts, "Removable": round(self.removable, 4), "Report": str(self)}


class LoopWaits:
    """The waits of a job's channels, collected line by line."""

    def __init__(self) -> None:
        self._channels: dict[str, ChannelWaits] = {}

    def note(self, text: str) -> None:
        """Add a line of the log; lines that are no record are ignored."""
        if (
            "wait_share=" not in text or (found := _LINE.search(text)) is None
        ):  # the pattern costs a chatty job 10 times as much
            return
        fields = dict(item.split("=", 1) for item in found[1].split() if "=" in item)
        try:
            seconds = float(fields["steps"]) * float(fields["step_s"])
            shares = {name: float(fields[f"{name}_share"]) for name in ("wait", *_PARTS)}
            workers, cores = int(fields["workers"]), int(fields["cores"])
        except (KeyError, ValueError):  # The line was cut, or is the script's own.
            return
        name = fields["channel"]
        waits = self._channels.setdefault(name, ChannelWaits(name, fields["mode"], workers, cores))
        waits.seconds += seconds
        waits.waited += seconds * shares["wait"]
        for part in _PARTS:
            waits.parts[part] += seconds * shares[part]

    def worst(self) -> tuple[ChannelWaits, ...]:
        """Return the channels that are worth a word, the longest waits first."""
        found = [each for each in self._channels.values() if each.share >= _LEAST_SHARE]
        return tuple(sorted(found, key=lambda each: -each.waited)[:_SHOWN])


def waits_in(lines: Any) -> tuple[ChannelWaits, ...]:
    """Return the channels that these lines report waits for."""
    waits = LoopWaits()
    for line in lines:
        waits.note(line)
    return waits.worst()


def as_data(waits: tuple[ChannelWaits, ...]) -> Mapping[str, Any]:
    """Return the member of a JSON report; empty without waits."""
    return {"Waits": {each.channel: each.as_data() for each in waits}} if waits else {}
