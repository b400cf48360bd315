"""How long whoever should send bytes has sent none, and what follows from that.

A job that waits costs as much as one that works, so a long silence is told of on stderr, and given up at last: of a Pipe's
feeder, of S3, of a far mount. It is measured where bytes are waited for, and never where they are fetched: a thread that is
stuck in a request cannot say so.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from functools import cache

from entrypoints import contract
from entrypoints.errors import ChannelError

TELL_SECONDS = 60.0  # of silence until it is told of; then after twice as long, and so on
READ_WAIT_SECONDS = (
    300.0  # for any byte at all of S3 or a far mount, over all requests: one that is well answers in one
)


class Silence:
    """How long somebody has sent nothing, and what follows from that."""

    def __init__(
        self,
        who: str,
        seconds: float,
        remedy: str = "look whether it is alive",
        variable: str = contract.FIFO_WAIT_VARIABLE,
    ) -> None:
        self.bytes = 0  # that have come so far
        self.patience = min(1.0, seconds / 4)  # seconds between two checks
        self.who = who
        self._seconds, self._remedy, self._variable = seconds, remedy, variable
        self.begin()

    def begin(self) -> None:
        """They are waited for from now on."""
        self._since = time.monotonic()
        self._tell_at = TELL_SECONDS

    def check(self, waiting_for: str = "") -> None:
        """Tells of a long silence on stderr, and raises ChannelError where it is too long."""
        silent = time.monotonic() - self._since
        text = f"{self.who} has sent nothing for {silent:.0f} s, after {self.bytes:,} bytes"
        if waiting_for:
            text += f", and {waiting_for} is waited for"
        if silent >= self._seconds:
            raise ChannelError(f"{text}; {self._remedy} (or wait longer: {self._variable}={self._seconds:g})")
        if silent >= self._tell_at:
            self._tell_at *= 2
            tell(text)


def silence_of_far(who: str) -> Silence:
    """That of a store or file system elsewhere. It has a variable of its own: a Pipe's first byte may take far longer."""
    seconds = float(os.environ.get(contract.READ_WAIT_VARIABLE) or READ_WAIT_SECONDS)
    remedy = "look whether it is alive and this machine's network reaches it"
    return Silence(who, seconds, remedy, contract.READ_WAIT_VARIABLE)


@cache
def tell_once(text: str) -> None:
    """As `tell`, once in a process."""
    tell(text)


def tell(text: str) -> None:
    """A line for the job's log, which nobody has to read."""
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
