"""`skip_damaged`: a budget of damaged samples that a reader skips instead of raising an error.

A sample is damaged if its format says so (CorruptError), or if the transform raises an error that may be due to the data: any
error but those that say that the program or the machine is at fault. Decoders raise nearly everything: Pillow raises OSError
without a number, SyntaxError without a file and ZeroDivisionError, others have classes of their own.

Each skipped sample is a line on stderr and in `skipped-<host>-<rank>.jsonl` among the job's outputs.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.job.process_identity import rank_variable
from sagemaker_channels.waits import RecordWriter

_FIRST = 3  # damaged samples in the error of an exhausted budget
_REASON_CHARACTERS = 500
_FAULTS = (
    *(ImportError, NameError, AttributeError, TypeError, NotImplementedError, StopIteration),
    *(MemoryError, RecursionError, ReferenceError, SystemError),
)


class Damage:
    """What one reader skips of a channel in one epoch: `most` damaged samples at most. The output in `root` gets the records."""

    def __init__(self, most: int, channel: str, epoch: int, root: Path, host: str | None = None) -> None:
        self.most, self._channel, self._epoch = most, channel, epoch
        self._write = RecordWriter(root, host, "skipped", seconds=0.0)
        self._count, self._lock = 0, threading.Lock()  # A ThreadLoader's threads transform at the same time.
        self._first: list[str] = []

    def skip(self, error: Exception, key: str | None = None, place: str = "", *, loses: str = "") -> None:
        """Count, log and record a damaged sample, and what else is skipped; `key` and `place` are for an error without them.

        Raises ChannelError, with the first ones, if it is one too many.
        """
        with self._lock:
            self._count += 1
            reason = f"{'' if isinstance(error, CorruptError) else type(error).__name__ + ': '}{error}"
            reason = " ".join(re.sub(r"<[\w.]+ object at 0x\w+>", "", reason).split())  # that of Pillow's errors
            lost = loses if self._count <= self.most else ""
            reason = "; ".join(filter(None, (reason[:_REASON_CHARACTERS], place, lost)))
            self._first += [reason] if self._count <= _FIRST else []
            about = {"channel": self._channel, "epoch": self._epoch, "rank": int(rank_variable("RANK") or 0)}
            at = error if isinstance(error, ChannelError) else None  # a UnicodeError has an `object`, too
            found = {"object": (at and at.object) or key, "byte": at and at.position}
            self._write({**about, "count": self._count, "budget": self.most, **found, "reason": reason})
            if self._count > self.most:
                raise ChannelError(
                    f"{self._count:,} damaged samples in epoch {self._epoch}, but skip_damaged is"
                    f" {self.most:,}: {'; '.join(self._first)}{'; ...' if self._count > _FIRST else ''}",
                    channel=self._channel,
                    remedy="the job's output skipped-*.jsonl lists all of them: repair the data, or raise skip_damaged",
                ) from error

    @property
    def has_skipped(self) -> bool:
        return self._count > 0

    def allows(self, error: Exception) -> bool:
        """Return whether an error of a transform counts as a damaged sample."""
        if self.most == 0:
            return False
        if isinstance(error, ChannelError):
            return isinstance(error, CorruptError)
        if isinstance(error, OSError):
            return error.errno is None
        if isinstance(error, SyntaxError):
            return error.lineno is None
        return not isinstance(error, _FAULTS) and type(error).__name__ != "OutOfMemoryError"  # CUDA's, which is torch's
