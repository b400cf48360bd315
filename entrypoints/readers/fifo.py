"""Pipe mode: SageMaker writes a channel's objects, one after the other, into a FIFO per epoch.

`<channel>_0` is read to its end or closed early; then `<channel>_1` is there at some moment, and so on: SageMaker makes the
next one only after the last one has been closed, so the reader waits for it. A FIFO can have one reader: two would
tear each other's bytes apart. So the bytes are read by one process of a host, and where several hosts get the same
objects (FullyReplicated) each reads all and keeps its share of the samples.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from entrypoints import contract
from entrypoints.environment import Channel
from entrypoints.errors import ChannelError
from entrypoints.sample import ByteStream
from entrypoints.sharding import Share

JOINED = True

WAIT_SECONDS = 600.0  # for the FIFO and its first bytes: whoever feeds it may have a million objects to list first
PIPE_BYTES = 1 << 20  # what Linux lets anyone ask for; 64 KiB is the default


def open_streams(channel: Channel, epoch: int, share: Share) -> Iterator[tuple[str | None, ByteStream]]:
    """The one stream of a channel's epoch, all of it: `share` cannot apply before the records are told apart."""
    path = channel.path.with_name(contract.fifo_name(channel.name, epoch))
    seconds = float(os.environ.get(contract.FIFO_WAIT_VARIABLE) or WAIT_SECONDS)
    yield None, open_fifo(path, channel.name, seconds)


def open_fifo(path: Path, channel: str, seconds: float) -> ByteStream:
    """Opens a FIFO for reading once it exists and its writer is there; ChannelError if that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not path.exists():
        if time.monotonic() > deadline:
            raise ChannelError(
                f"channel {channel!r}: the FIFO {path} did not appear within {seconds:g} s; each epoch has its own and "
                f"can be read once: count epochs from 0, one up each time (or wait longer: {contract.FIFO_WAIT_VARIABLE})"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    if not stat.S_ISFIFO(path.stat().st_mode):
        raise ChannelError(f"channel {channel!r}: {path} is not a FIFO, which input mode Pipe needs; remove it")
    # On Linux, opening without blocking leaves the deadline to poll, which reports nothing until a writer has been there.
    on_linux = sys.platform == "linux"
    descriptor = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if on_linux else 0))
    try:
        if on_linux:
            _enlarge(descriptor)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise ChannelError(
                f"channel {channel!r}: nothing was written to the FIFO {path} within {seconds:g} s; look whether its "
                f"feeder is alive (or wait longer: {contract.FIFO_WAIT_VARIABLE})"
            )
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def _enlarge(descriptor: int) -> None:
    """Asks for a bigger pipe, which saves most of the switches between writer and reader."""
    # Refused where the user's pipes hold too much already: the pipe then works as it is.
    with suppress(OSError, AttributeError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
