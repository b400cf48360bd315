"""The readers' end of a broker: finds or starts the channel's broker, requests a shard of an epoch and yields its samples.

A reader that finds no broker locks the channels' folder (so that no lock file is needed) and starts one, unless another reader has
done so meanwhile. The new process forks once it listens, so that its starter need not wait for its end: a DataLoader worker that
started it can end, and the broker stays.
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
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from sagemaker_channels.broker import protocol
from sagemaker_channels.errors import ChannelError, corrupt
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import owner_process
from sagemaker_channels.meter import received, waited
from sagemaker_channels.order.sampling import Reading, ShardCursor
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.readers.fifo import wait_seconds
from sagemaker_channels.records import Format
from sagemaker_channels.sample import DATA, Sample

# The broker gets the path of its starter, and so the same modules, whatever environment variables say.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from sagemaker_channels.broker.serve import main
main(*sys.argv[2:])
"""
_START_SECONDS = 60
_LAUNCH_VARIABLES = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def read_shard(
    channel: Channel, epoch: int, form: Format, shard: Shard, cursor: ShardCursor, reading: Reading
) -> Generator[Sample, None, None]:
    """Yield the samples of a shard in one epoch, from the host's broker.

    Args:
        channel: The Pipe channel.
        epoch: The epoch, counted as the job counts them.
        form: The channel's format.
        shard: Which shard.
        cursor: Where reading begins. Its `cut` is set with the last sample of each block.
        reading: How blocks are shuffled, and how much damage is skipped.

    Raises:
        CorruptError: The data is damaged.
        ChannelError: The epoch cannot be read, the host's readers contradict each other, or the broker has died.
    """
    request = _request(channel, epoch, form, shard, cursor, reading)
    decode = _decoder(form, cursor) if request.record_wrapper != "RecordIO" else None
    count, begin = 0, time.perf_counter()
    with closing(_ask(channel, request)) as connection:
        try:
            while True:
                kind, content, fields = protocol.receive_frame(connection)
                waited(begin)
                received(len(content) + sum(map(len, fields)))
                if kind == protocol.END:
                    return
                if kind == protocol.ERROR:
                    raise protocol.error_of(content)
                samples = pickle.loads(content, buffers=fields)
                count += len(samples)
                last = samples.pop() if kind == protocol.BLOCK else None
                cursor.cut = False
                yield from samples if decode is None else decode(samples)
                if last is not None:
                    cursor.cut = True
                    yield from [last] if decode is None else decode([last])
                begin = time.perf_counter()
        except (EOFError, ConnectionError) as error:
            raise ChannelError(
                f"channel {channel.name!r}: the process that reads the Pipe for this host has died, after {count:,} samples "
                f"of this reader's shard of epoch {epoch}; see the log for why, and start the job again"
            ) from error


def _decoder(form: Format, cursor: ShardCursor) -> Callable[[list[Sample]], Iterator[Sample]] | None:
    """Return the function that makes samples of records; None if the broker sends samples."""
    decode = form.decode
    if decode is None:
        return None

    def decoded(records: list[Sample]) -> Iterator[Sample]:
        for record in records:
            try:
                sample = decode(record[DATA])
            except ValueError as error:
                damage = corrupt(None, record[protocol.OFFSET], f"this record cannot be decoded: {error}")
                damage.__cause__ = error
                cursor.skip(damage)
                continue
            yield sample

    return decoded


def finish_shard(
    channel: Channel, epoch: int, form: Format, shard: Shard, cursor: ShardCursor, reading: Reading
) -> None:
    """Report that nothing of the shard is left, so that the epoch's other readers do not wait for it.

    Returns as soon as the broker knows, and this process may end then: the broker remembers the shard until all other readers have
    connected. Arguments and errors are those of `read_shard`.
    """
    _ask(channel, _request(channel, epoch, form, shard, cursor, reading)).close()


def _request(
    channel: Channel, epoch: int, form: Format, shard: Shard, cursor: ShardCursor, reading: Reading
) -> protocol.Request:
    is_shuffled = reading.seed is not None and shard.readers > 1
    return protocol.Request(
        channel.name,
        str(channel.path.absolute()),
        channel.record_wrapper,
        str(form),
        epoch,
        shard,
        wait_seconds(),
        block=reading.block if is_shuffled else 0,
        block_bytes=reading.block_bytes if is_shuffled else 0,
        skip_damaged=reading.skip_damaged,
        owner=owner_process(),
        launch=" ".join(os.environ.get(name, "") for name in _LAUNCH_VARIABLES).strip(),
        finished=cursor.finished,
        left=cursor.resumption.left,
    )


def has_broker(channel: Channel) -> bool:
    """Return whether a broker reads the channel; no other process may open its FIFO then."""
    connection = _connect(channel)
    if connection is not None:
        connection.close()
    return connection is not None


def _ask(channel: Channel, request: protocol.Request) -> socket.socket:
    """Request a shard and return the connection on which its samples are sent."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        connection = _connect(channel) or _start(channel)
        if connection is None:
            continue
        try:
            connection.sendall(request.encode())
            kind, content, _ = protocol.receive_frame(connection)
        except (EOFError, ConnectionError):  # That broker was about to end; the next one answers.
            connection.close()
            continue
        if kind == protocol.ERROR:
            connection.close()
            raise protocol.error_of(content)
        return connection
    raise ChannelError(
        f"channel {channel.name!r}: the process that reads the Pipe for this host does not answer; see the log for why"
    )


def _connect(channel: Channel) -> socket.socket | None:
    with ExitStack() as opened, suppress(FileNotFoundError, ConnectionRefusedError):
        connection = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.connect(protocol.address(channel))
        if not protocol.is_same_user(connection):
            raise ChannelError(f"channel {channel.name!r}: another user's process reads this Pipe; end that process")
        opened.pop_all()
        return connection
    return None


def _start(channel: Channel) -> socket.socket | None:
    """Start a broker, unless another reader just did, and connect to it; return None if it ended immediately."""
    folder = os.open(channel.path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        connection = _connect(channel)
        if connection is not None:
            return connection
        command = [sys.executable, "-S", "-c", _PROGRAM, json.dumps([str(Path(each).absolute()) for each in sys.path])]
        started = subprocess.run(
            [*command, protocol.address(channel).replace("\0", "@"), str(channel.path.parent.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C stops the training, and the broker ends with it.
            timeout=_START_SECONDS,
            check=False,
        )
        connection = _connect(channel)
        # If a connection exists, a broker whose starter was killed took the address first.
        if started.returncode and connection is None:
            raise ChannelError(
                f"channel {channel.name!r}: the process that reads the Pipe for this host could not be started (exit code "
                f"{started.returncode}); see the log for why, or use num_workers 0 or 1 and one rank per host"
            )
        return connection
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # A worker forked meanwhile holds the descriptor, too.
        os.close(folder)
