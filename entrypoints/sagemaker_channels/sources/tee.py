"""One Pipe for all readers of a host: each of them gets the whole byte stream of an epoch.

A FIFO can be read once, and a host has many readers: torchrun's ranks, and DataLoader workers. An only reader reads the FIFO
itself (fifo.py). Several share a ring of memory (ring.py): a reader that has used up its bytes reads more of the FIFO into it, for
all, and each copies its samples from there. No process serves the readers, so none has to be started, found, watched or ended.

    feeder -> FIFO -> whichever reader is first -> ring -> rank 0, which keeps its samples of the stream
                                                        -> rank 1, which keeps its own

Nothing is read before all readers have asked for the epoch (pipe_record.py). Then one of them opens the FIFO and makes the ring.
The others open both through its /proc folder, since a feeder may have removed the FIFO of a short epoch by then.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.meter import waited
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources import fifo, pipe_record, ring
from sagemaker_channels.sources.background import in_background
from sagemaker_channels.sources.pipe_record import Request, Table, wait_seconds
from sagemaker_channels.sources.silence import WARN_SECONDS, Silence, check_exit, warn

_PAUSE_SECONDS = 0.02  # between two checks for other readers or the FIFO, at most
_WATCH_SECONDS = 1.0  # between two checks of whether another process reads the next epoch in this one's place
Stream: TypeAlias = fifo.FifoStream | ring.RingStream
_streams: weakref.WeakValueDictionary[tuple[str, str], Stream] = weakref.WeakValueDictionary()


def open_stream(
    channel: Channel,
    epoch: int,
    readers: int,
    *,
    reader: int,
    finished: bool = False,
    may_grow: Callable[[], bool] = lambda: False,
) -> ByteStream | None:
    """Wait for the readers of this host and the FIFO, and open the bytes of an epoch.

    `readers` is the number of processes or threads of this host that read the epoch, and `reader` which of them this is, the same
    one in every epoch. One that is `finished` needs nothing of the epoch and gets None: the others must not wait for it, and the
    process may end afterwards. For one that `may_grow`, since it may need much more, the ring grows if others do not read.

    Raises ChannelError if there is no FIFO, or readers are missing or contradict each other. Reading raises it, too: the feeder is
    silent, or a reader was killed while it read the FIFO.
    """
    if readers > 1 and sys.platform != "linux":
        raise ChannelError(
            "several readers of a Pipe on one host need Linux", channel=channel.name, remedy="use one reader"
        )
    begin, key = time.perf_counter(), (str(channel.path), str(reader))
    own = pipe_record.request(str(reader), epoch, readers, finished=finished)
    pipe_record.ask(channel, own)
    if old := _streams.pop(key, None):
        old.end_for(epoch)
    if finished:
        return None
    stream = None
    try:
        _streams[key] = stream = _opened(channel, own, may_grow)
        if isinstance(stream, ring.RingStream):
            stream.wait_for_others()
    except BaseException:
        pipe_record.leave(channel, own, lost=bool(own.files) or stream is not None)  # Its feeder has begun.
        if stream is not None:
            stream.close()
        raise
    waited(begin)
    in_background(partial(_watch, weakref.ref(stream), channel, own), "pipe")
    return stream


def _watch(reference: Callable[[], Stream | None], channel: Channel, own: Request) -> None:
    """End a stream if another process has asked for a later epoch of it, such as a worker of the next loop.

    Otherwise a worker of a loop that was left early, and still runs, would hold the FIFO, and its feeder would not continue.
    """
    while (stream := reference()) is not None and stream.is_open:
        latest = pipe_record.table_of(channel).get(own.name)
        if latest is not None and latest.owner == own.owner and latest.epoch > own.epoch:
            stream.end_for(latest.epoch)
        del stream
        time.sleep(_WATCH_SECONDS)


def _opened(channel: Channel, own: Request, may_grow: Callable[[], bool]) -> Stream:
    """Wait until all readers have asked and the FIFO has a writer, and open the FIFO, or the ring, or make that."""
    pending: fifo.PendingFifo | None = None
    since, pause, most, warn_at = time.monotonic(), 0.001, 0, WARN_SECONDS
    try:
        while True:
            check_exit()
            with pipe_record.locked(channel):
                table = pipe_record.table_of(channel)
                most = max(most, pipe_record.asked(table, own))  # Others that give up, too, remove their requests.
                if pending is None and pipe_record.asked(table, own) >= own.readers:
                    pending, since = fifo.PendingFifo(channel, own.epoch), time.monotonic()
                if pending is not None and own.readers == 1:
                    if (descriptor := pending.try_open()) is not None:
                        silence = Silence(f"channel {channel.name!r}: the feeder of {pending.path}", wait_seconds())
                        return fifo.FifoStream(descriptor, silence)
                elif pending is not None and (about := _open_ring(channel, own, table, pending)):
                    pipe_record.store_table(channel, {**table, own.name: own})
                    return ring.RingStream(channel, own, about, may_grow)
            seconds = time.monotonic() - since
            if pending is not None:
                if seconds > wait_seconds():
                    raise pending.timeout_error(wait_seconds())
            elif pipe_record.are_behind(table, own):
                since = time.monotonic()
            elif reason := pipe_record.why_given_up(table, own, most, seconds):
                raise ChannelError(f"channel {channel.name!r}, epoch {own.epoch}: {reason}")
            if time.monotonic() - since > warn_at:
                what = pending.lacking(warn_at) if pending else pipe_record.lacking(table, own, most, warn_at)
                warn_at *= 2
                warn(f"channel {channel.name!r}, epoch {own.epoch}: {what}")
            if pending is None:
                time.sleep(pause)
            else:
                pending.wait(pause)
            pause = min(2 * pause, _PAUSE_SECONDS)
    finally:
        if pending is not None:
            pending.close()


def _open_ring(channel: Channel, own: Request, table: Table, pending: fifo.PendingFifo) -> dict[str, Any] | None:
    """Open memory and FIFO, or make the memory, and return what the record has about them; None if there is no FIFO yet."""
    for each in table.values():
        if each.files and each.is_reading(own.epoch):
            memory, pipe = (f"/proc/{each.process[0]}/fd/{file}" for file in each.files)
            own.files = os.open(memory, os.O_RDWR), os.open(pipe, fifo.READING)
            return dict(pipe_record.load(channel)["ring"])
    readers = [[each.name, each.rank, each.process] for each in table.values() if each.is_reading(own.epoch)]
    # One of them looks for the FIFO: its feeder may end and remove it as soon as it is open.
    if readers[0][0] != own.name or (descriptor := pending.try_open()) is None:
        return None
    own.files = ring.memory(), descriptor
    about = {"fifo": str(pending.path), "readers": readers}
    pipe_record.store(channel, ring=about)
    return about


def _drop_in_child() -> None:
    """Let a forked process hold no FIFO open: its feeder would not notice that the readers have left."""
    for stream in _streams.values():
        stream.drop()


os.register_at_fork(after_in_child=_drop_in_child)
