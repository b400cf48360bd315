"""Comparing the listings of a job's hosts: shards of different lists would repeat some objects and leave others out.

Each process publishes checksums of its first thousand objects, of the next thousand, of the next two thousand and so on, as it
lists them, unless another one has published its own, which it then compares. So nothing waits for another host, and reading
begins before the end is listed. Where processes cannot reach each other, nothing is compared.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources.items import Items

FIRST = 1000  # objects

# Stores a text under a name unless there is one, and returns the one that is stored; None if that is impossible.
Exchange = Callable[[str, str], str | None]

_exchange: Exchange | None = None  # of this process


def compare_by(exchange: Exchange) -> None:
    """Compare the listings of this process with those of others."""
    global _exchange
    _exchange = exchange


class Agreement:
    """How far a listing was compared. Those of other epochs may differ; `epoch` is None for one that holds for the whole job.

    So may those of a prefix or folder that was named again; `named` is the Channel's.
    """

    def __init__(self, name: str, epoch: int | None, named: int) -> None:
        self._name, self._epoch, self._named, self._start, self._end = name, epoch, named, 0, FIRST

    def check(self, objects: Items[Any], count: int, *, is_complete: bool) -> None:
        """Compare what can be, if `count` objects are listed. Raises ChannelError if another host lists others."""
        while _exchange is not None and (count >= self._end or (is_complete and self._start <= count)):
            start, end, last = self._start, min(count, self._end), is_complete and count < self._end
            step = max(1, start // 100)
            mine = {
                "host": f"{os.environ.get('SM_CURRENT_HOST') or platform.node()}, rank {os.environ.get('RANK', '0')}",
                "objects": f"{'' if last else 'at least '}{end:,}",
                "digests": [objects.digest(min(number, end)) for number in range(start + step, end + step, step)],
            }
            which = f"{self._name} from {start} in epoch {self._epoch or 0}, {self._named}"
            stored = _exchange(which, json.dumps(mine))
            theirs = mine if stored is None else json.loads(stored)
            is_other = theirs["host"] != mine["host"]
            if is_other and (differs := _difference(objects, (start, step, end), mine, theirs)):
                remedy = "do not add, remove or rename objects while a job runs, and start it again"
                if self._epoch is not None:
                    remedy = f"change no files within an epoch, here {self._epoch}, and begin each by set_epoch"
                raise ChannelError(f"{self._name}: {differs}", remedy=remedy)
            self._start, self._end = self._end, 2 * self._end


def _difference(
    objects: Items[Any], counts: tuple[int, int, int], mine: dict[str, Any], theirs: dict[str, Any]
) -> str | None:
    """Return, in words, how two hosts' objects differ; None if they do not."""
    if (theirs["digests"], theirs["objects"]) == (mine["digests"], mine["objects"]):
        return None
    start, step, end = counts
    pairs = zip(mine["digests"], theirs["digests"], strict=False)
    equal = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
    first = start + step * (min(len(mine["digests"]), len(theirs["digests"])) if equal is None else equal)
    key = repr(getattr(objects[first], "key", objects[first]))[:200] if first < end else "the end"
    return (
        f"the hosts do not list the same objects: {theirs['objects']} on {theirs['host']}, and {mine['objects']} on"
        f" {mine['host']}; the first that differs is number {first + 1:,}{f' to {first + step:,}' if step > 1 else ''},"
        f" {key} on {mine['host']}"
    )
