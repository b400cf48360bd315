"""The readers' end: finds the channel's broker or starts it, asks for a share of an epoch and yields its samples.

Whoever finds no broker takes a lock (on the folder of the channels, so that no file is needed) and starts one, unless
another has done so meanwhile. Starting forks once it listens, and the new process belongs to nobody who would have to wait
for it: a DataLoader worker that started it can end, and the broker stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from entrypoints.broker import wire
from entrypoints.broker.framing import decoder_of
from entrypoints.errors import ChannelError
from entrypoints.job.environment import Channel
from entrypoints.job.process_identity import owner_process
from entrypoints.order.sampling import Mark, Reading
from entrypoints.order.sharding import Share
from entrypoints.readers.fifo import wait_seconds
from entrypoints.records import Format
from entrypoints.sample import Sample

# The path is the starter's: the same modules, whatever variables say.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from entrypoints.broker.serve import main
main(*sys.argv[2:])
"""
_START_SECONDS = 60
_LAUNCH_VARIABLES = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def read_share(
    channel: Channel, epoch: int, form: Format, share: Share, mark: Mark, reading: Reading | None
) -> Generator[Sample, None, None]:
    """The share's samples of an epoch, from the host's broker. Errors are those of reading the channel directly.

    Where a block of `reading` ends, for all who read the Pipe, the mark is `cut`. Without it there are no blocks.
    Raises ChannelError, too, where the host's readers do not agree with each other, or the broker has died.
    """
    request = _request(channel, epoch, form, share, reading, finished=False)
    decode = decoder_of(form) if request.record_wrapper != "RecordIO" else None
    count = 0
    with closing(_ask(channel, request)) as connection:
        try:
            while True:
                kind, content, fields = wire.receive_frame(connection)
                if kind == wire.END:
                    return
                if kind == wire.ERROR:
                    raise wire.error_of(content)
                samples = pickle.loads(content, buffers=fields)
                count += len(samples)
                last = samples.pop() if kind == wire.BLOCK else None
                mark.cut = False
                yield from samples if decode is None else map(decode, samples)
                if last is not None:
                    mark.cut = True
                    yield last if decode is None else decode(last)
        except (EOFError, ConnectionError) as error:
            raise ChannelError(
                f"channel {channel.name!r}: the process that reads the Pipe for this host has died, after {count:,} samples "
                f"of this reader's share of epoch {epoch}; see the log for why, and start the job again"
            ) from error


def leave_share(channel: Channel, epoch: int, form: Format, share: Share, reading: Reading | None) -> None:
    """Report that nothing of the share is left, so that the epoch's other readers do not wait for it.

    Returns as soon as the broker knows. This process may end then: the broker remembers the share until all other readers
    have come. Raises as read_share.
    """
    _ask(channel, _request(channel, epoch, form, share, reading, finished=True)).close()


def _request(
    channel: Channel, epoch: int, form: Format, share: Share, reading: Reading | None, *, finished: bool
) -> wire.Request:
    return wire.Request(
        channel.name,
        str(channel.path.absolute()),
        channel.record_wrapper,
        wire.format_reference(form),
        epoch,
        share.index,
        share.count,
        share.readers,
        share.workers,
        wait_seconds(),
        block=reading.block if reading else 0,
        block_bytes=reading.block_bytes if reading else 0,
        owner=owner_process(),
        launch=" ".join(os.environ.get(name, "") for name in _LAUNCH_VARIABLES).strip(),
        finished=finished,
    )


def has_broker(channel: Channel) -> bool:
    """Whether a broker has the channel: then nobody else may open its FIFO."""
    connection = _connect(channel)
    if connection is None:
        return False
    connection.close()
    return True


def _ask(channel: Channel, request: wire.Request) -> socket.socket:
    """A connection on which the samples will come."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        connection = _connect(channel) or _start(channel)
        if connection is None:
            continue
        try:
            connection.sendall(request.encode())
            kind, content, _ = wire.receive_frame(connection)
        except (EOFError, ConnectionError):  # it was about to end: on to the next one
            connection.close()
            continue
        if kind == wire.ERROR:
            connection.close()
            raise wire.error_of(content)
        return connection
    raise ChannelError(
        f"channel {channel.name!r}: the process that should read the Pipe for this host does not answer; see the log for why"
    )


def _connect(channel: Channel) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(wire.address(channel))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    if not wire.is_ours(connection):
        connection.close()
        raise ChannelError(f"channel {channel.name!r}: a process of another user poses as the reader of its Pipe")
    return connection


def _start(channel: Channel) -> socket.socket | None:
    """A connection to a broker that we started, or another reader before us; None where it ended at once."""
    folder = os.open(channel.path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        connection = _connect(channel)
        if connection is not None:
            return connection
        command = [sys.executable, "-S", "-c", _PROGRAM, json.dumps([str(Path(each).absolute()) for each in sys.path])]
        started = subprocess.run(
            [*command, wire.address(channel).replace("\0", "@"), str(channel.path.parent.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is the training's affair; the broker ends with it
            timeout=_START_SECONDS,
            check=False,
        )
        connection = _connect(channel)
        if started.returncode and connection is None:  # else another, whose starter was killed, has come between
            raise ChannelError(
                f"channel {channel.name!r}: the process that reads the Pipe for this host could not be started (exit code "
                f"{started.returncode}); see the log for why, or use num_workers 0 or 1 and one rank per host"
            )
        return connection
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # a worker that was forked meanwhile has the descriptor, too
        os.close(folder)
