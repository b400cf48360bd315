"""How long a sender of bytes has been silent: a Pipe's feeder, S3 or a remote file system.

A waiting job costs as much as a working one, so a long silence is reported on stderr and at last an error. It is measured where
bytes are waited for, not where they are fetched: a thread that is stuck in a request cannot report it.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from functools import cache

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources.background import leaving

WARN_SECONDS = 60.0  # of silence until the first report; the next one follows after twice as long, and so on
READ_WAIT_SECONDS = 300.0  # for any byte of S3 or a remote mount, over all requests; a healthy one takes about a second


class Silence:
    """How long a sender has sent nothing; `seconds` of silence are an error, with a remedy and the variable that sets them."""

    def __init__(
        self,
        who: str,
        seconds: float,
        remedy: str = "check that it runs",
        variable: str = contract.FIFO_WAIT_VARIABLE,
    ) -> None:
        self.bytes = 0  # received so far
        self.patience = min(1.0, seconds / 4)  # seconds between two checks
        self.who = who
        self._seconds, self._remedy, self._variable = seconds, remedy, variable
        self.begin()

    def begin(self) -> None:
        self._since = time.monotonic()
        self._warn_at = WARN_SECONDS

    def check(self, waiting_for: str = "") -> None:
        """Report a long silence on stderr; the message has what the reader is waiting for.

        Raises ChannelError if it has lasted too long, or what `check_exit` does.
        """
        check_exit()
        silent = time.monotonic() - self._since
        text = f"{self.who} has sent nothing for {silent:.0f} s, after {self.bytes:,} bytes"
        if waiting_for:
            text += f", and the reader waits for {waiting_for}"
        if silent >= self._seconds:
            raise ChannelError(text, remedy=f"{self._remedy} (or wait longer: {self._variable}={self._seconds:g})")
        if silent >= self._warn_at:
            self._warn_at *= 2
            warn(text)


def check_exit() -> None:
    """Raise SystemExit if Python is exiting, so that a thread of the library ends instead of waiting."""
    if leaving.is_set():
        raise SystemExit


def remote_silence(who: str) -> Silence:
    """Return the Silence of a store or remote file system, which should answer much sooner than a Pipe's feeder."""
    seconds = float(os.environ.get(contract.READ_WAIT_VARIABLE) or READ_WAIT_SECONDS)
    remedy = "check that it runs and that this machine's network reaches it"
    return Silence(who, seconds, remedy, contract.READ_WAIT_VARIABLE)


@cache
def warn_once(text: str) -> None:
    warn(text)


def warn(text: str) -> None:
    """Write a line to stderr, which is the job's log; a log that no process reads any more is no error."""
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class Progress:
    """How far long work is: a line on stderr after two seconds, four, eight and so on."""

    def __init__(self, what: str) -> None:
        self._what, self._begun, self._next = what, 0.0, 2.0

    def report(self, count: int) -> None:
        now = time.monotonic()
        self._begun = self._begun or now
        if now - self._begun >= self._next:
            self._next *= 2
            warn(f"{count:,} {self._what} after {now - self._begun:.0f} s")
