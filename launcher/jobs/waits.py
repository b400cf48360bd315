"""What a job's training loops wait for, from the lines that entrypoints/sagemaker_channels/waits.py writes into the log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from launcher.jobs.lines import searchable

_LINE = re.compile(r"\bwaits (channel=\S+ mode=\S+ .*)")
_PARTS = ("source", "parse", "transform", "handover")
_CAUSES = {"parse": "parsing", "transform": "the transform", "handover": "the hand-over between processes"}
_SOURCES = {"S3Connector": "S3", "File": "the disk", "Pipe": "the Pipe's feeder"}  # by input mode; others are their own
_LEAST_SHARE = 0.05  # of a step, to be worth a word
_LEAST_BUSY = 0.75  # of the workers of a loop that is not timed
_SHOWN = 3  # channels
_FIRST_WORKERS = 4  # for a loop without any
_CLIENT_THREADS = 2  # threads that use all connections of their process's S3 client


@dataclass
class ChannelWaits:
    """The waits for one channel, over all hosts, ranks and epochs."""

    channel: str
    mode: str
    workers: int  # processes
    threads: int
    cores: int
    seconds: float = 0.0  # of all steps
    own: float = 0.0  # of the loops' own work
    waited: float = 0.0  # for this channel; a mixture's loop waits for others, too
    measured: float = 0.0  # the part of `seconds` for which it is known how many processors were busy
    used: float = 0.0  # seconds of all processors in it
    busy: list[float] = field(default_factory=list)  # shares of the time of workers whose loop is not timed
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PARTS, 0.0))  # seconds

    @property
    def share(self) -> float:
        return self.waited / self.seconds if self.seconds else 0.0

    @property
    def is_notable(self) -> bool:
        return self.share >= _LEAST_SHARE or (bool(self.busy) and fmean(self.busy) >= _LEAST_BUSY)

    @property
    def _part(self) -> str | None:
        """The part that is waited for most; None if the loader's records do not say."""
        part = max(self.parts, key=self.parts.__getitem__)
        return part if self.parts[part] else None

    @property
    def cause(self) -> str | None:
        return _SOURCES.get(self.mode, self.mode) if self._part == "source" else _CAUSES.get(self._part or "")

    @property
    def removable(self) -> float:
        """The part of a step that twice the workers would remove, or the first ones; an estimate by the part waited for most.

        Workers wait for S3 or a mount in parallel, but a Pipe has one feeder, and threads share an S3 client and the interpreter.
        A transform may compute or, if it asks a service, wait: so parsing and transforms gain what idle processors can do.
        While a loop waits for its workers, all are busy, so their samples take as long as its steps.
        """
        has_makers = bool(self.workers or self.threads)
        now = self.workers or self.threads or 1
        more = float(2 * now if has_makers else _FIRST_WORKERS)
        if self._part == "source":
            most = (
                0 if self.mode == "Pipe" else _CLIENT_THREADS if self.threads and self.mode == "S3Connector" else more
            )
        else:
            most = now + self.cores - self.used / self.measured if self.measured and not self.threads else 0
        more = max(now, min(more, most))
        making = self.seconds if has_makers else self.seconds - self.own
        left = max(0.0, making * now / more - self.own)
        return max(0.0, 1 - left / (self.seconds - self.own)) * self.share if self.waited else 0.0

    def __str__(self) -> str:
        """The sentence of a report: `41 % of each step waits for channel train (S3); more workers would remove ...`."""
        cause = self.cause
        if not self.seconds:
            busy = f"are busy {100 * fmean(self.busy):.0f} % of the time ({cause}), so the loop may wait for them"
            return f"the workers of channel {self.channel} {busy}; sagemaker_channels.timed(loader) records how long"
        text = f"{100 * self.share:.0f} % of each step waits for channel {self.channel}"
        if not self.is_notable or cause is None:
            return text
        if self._part == "handover":
            return f"{text} ({cause}); a ThreadLoader sends nothing between processes"
        if self._part != "source" and not self.measured:
            return f"{text} ({cause})"
        removable = min(5 * round(20 * self.removable), round(100 * self.share))
        would = f"would remove about {removable} %" if removable else "would not help"
        return f"{text} ({cause}); more {'threads' if self.threads else 'workers'} {would}"

    def as_data(self) -> dict[str, Any]:
        if not self.seconds:
            return {"Busy": round(fmean(self.busy), 4), "Report": str(self)}
        parts = {name: round(spent / self.seconds, 4) for name, spent in self.parts.items()}
        return {"Share": round(self.share, 4), **parts, "Removable": round(self.removable, 4), "Report": str(self)}


class LoopWaits:
    def __init__(self) -> None:
        self._channels: dict[str, ChannelWaits] = {}

    def note(self, text: str) -> None:
        """Lines that are no record are ignored."""
        # The pattern costs a chatty job 10 times as much.
        if "waits channel=" not in text or (found := _LINE.search(searchable(text))) is None:
            return
        fields = dict(item.split("=", 1) for item in found[1].split() if "=" in item)
        if not fields.keys() & {"wait_share", "busy_share"}:
            return
        try:
            seconds = float(fields.get("steps", 0)) * float(fields.get("step_s", 0))
            shares = {name: float(fields.get(f"{name}_share", 0)) for name in ("own", "wait", "busy", *_PARTS)}
            workers, threads, cores = (int(fields[name]) for name in ("workers", "threads", "cores"))
            busy_cores = float(fields.get("busy_cores", "nan"))
        except (KeyError, ValueError):  # The line was cut, or is the script's own.
            return
        name = fields["channel"]
        waits = self._channels.setdefault(name, ChannelWaits(name, fields["mode"], workers, threads, cores))
        if shares["busy"]:
            waits.busy.append(shares["busy"])
        waits.seconds += seconds
        if busy_cores >= 0:  # otherwise unknown
            waits.measured += seconds
            waits.used += seconds * busy_cores
        waits.own += seconds * shares["own"]
        waits.waited += seconds * shares["wait"]
        for part in _PARTS:
            waits.parts[part] += (seconds or 1.0) * shares[part]

    def channels(self) -> list[ChannelWaits]:
        return list(self._channels.values())

    def worst(self) -> tuple[ChannelWaits, ...]:
        """Return the channels that are worth a word, the longest waits first."""
        found = [each for each in self._channels.values() if each.is_notable]
        return tuple(sorted(found, key=lambda each: -each.waited)[:_SHOWN])


def in_words(line: str) -> str:
    """Return a line, or if it is a record of waits, its sentence."""
    waits = LoopWaits()
    if line.startswith("waits channel="):
        waits.note(line)
    return next((f"waits: {each}" for each in waits.channels()), line)


def as_data(waits: tuple[ChannelWaits, ...]) -> Mapping[str, Any]:
    return {"Waits": {each.channel: each.as_data() for each in waits}} if waits else {}
