"""One Pipe for several readers of a host: each gets the whole stream, whatever the others do."""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from forked import next_line, printed
from patience import PATIENCE, in_threads, wait_for
from pipe_feeder import Feeder
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources import pipe_record, ring, tee
from sagemaker_channels.sources.background import in_background
from tee_readers import (
    DATA,
    bytes_of,
    content,
    digest,
    opened,
    pipe,
    side_by_side,
    started,
    wait_for_requests,
    whole,
)


@pytest.fixture
def channel(root: Path) -> Channel:
    return pipe(root)


@pytest.fixture
def feeder(root: Path, channel: Channel) -> Iterator[Feeder]:
    feeder = Feeder(root, "lines", content, piece=300_000)
    yield feeder
    feeder.stop()


@pytest.mark.parametrize("readers", [2, 5])
def test_every_reader_gets_the_whole_stream(root: Path, feeder: Feeder, readers: int) -> None:
    processes = [started(root, readers, number, "reads", 0, 1) for number in range(readers)]
    assert [printed(process) for process in processes] == [[whole(0), whole(1)]] * readers
    wait_for(lambda: 1 in feeder.ended)


def test_only_reader_reads_the_fifo_itself(channel: Channel, feeder: Feeder) -> None:
    assert bytes_of(channel, 0, 1, 0) == content(0)
    assert tee.open_stream(channel, 1, 1, reader=0, finished=True) is None


def test_changed_number_of_readers_gets_the_next_epoch_whole(channel: Channel, feeder: Feeder) -> None:
    for epoch, readers in enumerate((2, 3, 1, 2)):
        assert side_by_side(channel, epoch, readers) == [whole(epoch)] * readers


def test_small_reads_and_large_ones_are_the_same_bytes(channel: Channel, feeder: Feeder) -> None:
    def read(number: int) -> bytes:
        stream: Any = tee.open_stream(channel, 0, 2, reader=number)
        with closing(stream):
            if number:
                return b"".join(iter(lambda: stream.read(77_777), b""))
            buffer, parts = bytearray(9_000_001), []
            while count := stream.readinto(memoryview(buffer)):
                parts.append(buffer[:count])
            return b"".join(parts)

    assert in_threads(read, 2) == [content(0)] * 2


def test_readers_that_leave_early_get_the_next_epoch(root: Path, channel: Channel, feeder: Feeder) -> None:
    for process in [started(root, 2, number, "leaves", 0, 1) for number in range(2)]:
        assert printed(process)[1] == whole(1)


def test_reader_that_stops_or_dies_does_not_block_the_others(root: Path, channel: Channel, feeder: Feeder) -> None:
    killed, left = started(root, 3, 0, "begins", 0), started(root, 3, 1, "leaves", 0)
    stream: Any = tee.open_stream(channel, 0, 3, reader=2)
    with closing(stream), killed:
        assert next_line(killed) == "begun"
        printed(left)
        killed.kill()
        assert stream.read() == content(0)


def test_reader_that_is_killed_before_it_opens_the_ring_is_not_waited_for(
    root: Path, channel: Channel, feeder: Feeder
) -> None:
    read = in_background(partial(bytes_of, channel, 0, 2, 1), "test")
    wait_for_requests(channel, 1)  # So it makes the ring.
    with started(root, 2, 0, "comes too late", 0):
        assert read.result(PATIENCE) == content(0)


def test_reader_interrupted_while_others_open_the_ring_is_told_that_the_epoch_was_read(
    channel: Channel, feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = ring.RingStream.wait_for_others

    def interrupted(stream: ring.RingStream) -> None:
        wait(stream)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    read = in_background(partial(bytes_of, channel, 0, 2, 1), "test")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ring.RingStream, "wait_for_others", interrupted)
        tee.open_stream(channel, 0, 2, reader=0)
    with pytest.raises(ChannelError, match="epoch 0 was read already"):
        tee.open_stream(channel, 0, 2, reader=0)
    assert read.result(PATIENCE) == content(0)


def test_stream_left_open_is_ended_by_its_readers_next_epoch(channel: Channel, feeder: Feeder) -> None:
    old: Any = opened(channel, 0, 2)
    for stream in old:
        assert stream.read(10) == content(0)[:10]
    assert side_by_side(channel, 1, 2) == [whole(1)] * 2
    for stream in old:
        found = b""
        with (
            closing(stream),
            pytest.raises(ChannelError, match="epoch 0: this reader asked for epoch 1, and gets no more"),
        ):
            while True:
                found += stream.read(1 << 16)
        assert content(0)[10:].startswith(found)  # and no bytes that were written over them


def test_stream_that_is_finalized_where_the_record_is_locked_leaves_afterwards(
    channel: Channel, feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python may collect a stream in any thread, also in one that has the lock; it waited for itself then."""
    streams, flock = opened(channel, 0, 3), fcntl.flock

    def finalizing(folder: int, how: int) -> None:
        if how == fcntl.LOCK_UN:
            streams[2].close()
        flock(folder, how)
        if how == fcntl.LOCK_EX:
            streams[0].close()

    def finalize() -> list[bool]:
        with pipe_record.locked(channel):
            streams[1].close()
        return [each.left for each in pipe_record.table_of(channel).values()]

    monkeypatch.setattr(fcntl, "flock", finalizing)
    assert in_background(finalize, "test").result(PATIENCE) == [True] * 3


def test_forked_process_neither_ends_a_stream_nor_keeps_it(channel: Channel, feeder: Feeder) -> None:
    streams: list[Any] = opened(channel, 0, 3)
    for stream in streams:
        stream.read(1)
    if (child := os.fork()) == 0:
        streams[1].close()
        signal.alarm(int(PATIENCE))
        signal.pause()
    try:
        streams[0].close()  # The child keeps it open.
        found = in_threads(lambda number: streams[1 + number].read(), 2)
        assert found == [content(0)[1:]] * 2
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for stream in streams:
        stream.close()


def test_channels_have_their_own_rings(root: Path, channel: Channel, feeder: Feeder) -> None:
    other = pipe(root, "tar")
    feeder = Feeder(root, "tar", lambda number: b"tar" * 1000)
    found = in_threads(lambda number: side_by_side((channel, other)[number], 0, 2), 2)
    assert found == [[whole(0)] * 2, [digest(b"tar" * 1000)] * 2]
    feeder.stop()


def test_empty_stream_yields_nothing_and_warns(root: Path, channel: Channel, capfd: pytest.CaptureFixture[str]) -> None:
    feeder = Feeder(root, "lines", lambda number: b"")
    assert side_by_side(channel, 0, 2) == [digest(b"")] * 2
    feeder.stop()
    assert "lines_0 ended without a byte: this host has no samples in this epoch" in capfd.readouterr().err


def test_reader_that_dies_while_it_reads_the_fifo_is_an_error_of_the_others(
    root: Path, channel: Channel, feeder: Feeder
) -> None:
    """Whether the kernel has copied bytes is unknown then. A reader that dies at any other moment is not missed."""
    dying = started(root, 2, 0, "dies", 0)
    stream: Any = tee.open_stream(channel, 0, 2, reader=1)
    with (
        closing(stream),
        pytest.raises(
            ChannelError,
            match=r"^channel 'lines': the feeder of .*lines_0: a reader was killed while it read the Pipe .* bytes of epoch 0; see",
        ),
    ):
        dying.wait(PATIENCE)
        stream.read()
    dying.communicate()
    assert side_by_side(channel, 1, 2) == [whole(1)] * 2


def test_reader_that_takes_the_place_of_a_killed_one_is_waited_for(
    root: Path, channel: Channel, feeder: Feeder
) -> None:
    """The other one gave up at once, and it waited for the other one for ten minutes."""
    killed = started(root, 2, 0, "begins", 0)
    stream: Any = tee.open_stream(channel, 0, 2, reader=1)
    with closing(stream), killed:
        assert next_line(killed) == "begun"
        killed.kill()
        assert stream.read() == content(0)
    second = ThreadPoolExecutor(1).submit(bytes_of, channel, 1, 2, 1)
    wait_for(lambda: pipe_record.table_of(channel)["1"].epoch == 1)
    assert not wait([second], 0.3).done
    assert bytes_of(channel, 1, 2, 0) == second.result() == content(1)


def test_lent_bytes_stay_until_the_next_call(channel: Channel, feeder: Feeder) -> None:
    lender, other = opened(channel, 0, 2)
    with closing(lender), closing(other):
        lent, read = lender.lend(1 << 20), b""
        while missing := ring.RING_BYTES - len(read):
            read += other.read(missing)
        rest = ThreadPoolExecutor(1).submit(other.read)
        assert not wait([rest], 0.2).done  # It would write over the lent bytes.
        pieces = [bytes(lent), *(bytes(piece) for piece in iter(lambda: lender.lend(77_777), b""))]
        assert b"".join(pieces) == read + rest.result(PATIENCE) == content(0)


@pytest.mark.parametrize("may_grow", [True, False])
def test_reader_that_may_need_more_than_another_gets_it(
    channel: Channel, feeder: Feeder, monkeypatch: pytest.MonkeyPatch, may_grow: bool
) -> None:
    monkeypatch.setattr(ring, "GROW_SECONDS", 0.1)
    streams: list[Any] = in_threads(
        lambda number: tee.open_stream(channel, 0, 2, reader=number, may_grow=lambda: may_grow), 2
    )
    assert streams[1].read(10) == content(0)[:10]
    found: list[bytes] = []

    def read() -> None:
        with closing(streams[0]) as stream:
            found.extend(iter(lambda: stream.read(1 << 20), b""))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(PATIENCE if may_grow else 2)
    assert thread.is_alive() is not may_grow
    assert (b"".join(found) == content(0)) is may_grow
    with closing(streams[1]) as stream:
        assert stream.read() == content(0)[10:]
    thread.join(PATIENCE)
    assert b"".join(found) == content(0)


def test_reader_for_which_another_fills_the_ring_reads_on(
    root: Path, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a reader begins to wait for the slowest one, that one may read on and fill the ring; it waited for itself then."""
    feeder = Feeder(root, "lines", lambda _: bytes(3 * ring.RING_BYTES), piece=300_000)
    with ThreadPoolExecutor(2) as threads:
        streams: list[Any] = list(threads.map(lambda number: tee.open_stream(channel, 0, 2, reader=number), range(2)))
        quick, slow = streams
        give_way = quick.give_way

        def be_late() -> None:
            assert read(slow, 2 * ring.RING_BYTES) == 2 * ring.RING_BYTES
            give_way()

        monkeypatch.setattr(quick, "give_way", be_late)
        assert read(quick, ring.RING_BYTES) == ring.RING_BYTES
        try:
            assert threads.submit(read, quick, 100).result(timeout=PATIENCE) == 100
        finally:
            for stream in streams:
                stream.close()
    feeder.stop()


def read(stream: Any, size: int) -> int:
    count = 0
    while count < size:
        count += len(stream.read(min(size - count, 1 << 20)))
    return count


def test_second_request_for_an_epoch_is_refused(channel: Channel, feeder: Feeder) -> None:
    assert side_by_side(channel, 0, 2) == [whole(0)] * 2
    for number, error in enumerate(side_by_side(channel, 0, 2)):
        assert f"epoch 0 was read already (this host's reader {number} has asked for epoch 0)" in error


def test_missing_readers_are_reported_during_and_after_the_wait(
    channel: Channel, feeder: Feeder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "0.5")
    monkeypatch.setattr(tee, "WARN_SECONDS", 0.2)
    with pytest.raises(
        ChannelError, match=r"'lines', epoch 0: only 1 of this host's 3 readers connected within 0\.5 s"
    ):
        tee.open_stream(channel, 0, 3, reader=0)
    said = r"channel 'lines', epoch 0: only 1 of this host's 3 readers connected within 0\.2 s \(process \d+\)\n"
    assert re.match(said, capfd.readouterr().err)
    assert feeder.started == []  # Nothing is lost,
    assert side_by_side(channel, 0, 3) == [whole(0)] * 3


def test_readers_that_contradict_each_other_are_refused(channel: Channel, feeder: Feeder) -> None:
    streams = opened(channel, 0, 2)
    with pytest.raises(
        ChannelError, match=r"expects 3 readers on this host, another 2; use the same num_workers on eve"
    ):
        bytes_of(channel, 0, 3, 1)
    with pytest.raises(
        ChannelError, match=r"'lines', epoch 0: all 2 readers have asked for it already; read the channel"
    ):
        bytes_of(channel, 0, 2, 2)
    assert in_threads(lambda number: streams[number].read(), 2) == [content(0)] * 2
    for stream in streams:
        stream.close()


def test_second_process_of_a_reader_is_refused(root: Path, channel: Channel, feeder: Feeder) -> None:
    streams = opened(channel, 0, 2)
    with started(root, 2, 0, "reads", 0) as other:
        _, errors = other.communicate(timeout=PATIENCE)
    assert "'lines', epoch 0: reader 0 has asked for it already; read the channel once" in errors
    for stream in streams:
        stream.close()


def test_fifo_that_does_not_appear_raises_in_every_reader(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "0.4")
    for error in side_by_side(channel, 0, 2):
        assert "lines_0 did not appear within 0.4 s; an epoch's FIFO can be read once" in error


def test_silent_feeder_raises_in_every_reader_after_its_bytes(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "1")
    path = channel.path.with_name("lines_0")
    os.mkfifo(path)
    done = threading.Event()

    def stall() -> None:
        with path.open("wb", buffering=0) as stream:
            stream.write(b"0 1\n0 2\n")
            done.wait(PATIENCE)

    threading.Thread(target=stall, daemon=True).start()

    def read(number: int) -> str:
        stream: Any = tee.open_stream(channel, 0, 2, reader=number)
        with closing(stream):
            assert stream.read(100) == b"0 1\n0 2\n"
            with pytest.raises(ChannelError) as raised:
                stream.read()
            return str(raised.value)

    found = in_threads(read, 2)
    done.set()
    for error in found:
        assert "channel 'lines': the feeder of " in error
        assert "lines_0 has sent nothing for 1 s, after 8 bytes; check that it runs" in error


def test_readers_that_overtake_each_other_while_a_third_makes_room_lose_nothing(
    channel: Channel, feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "RING_BYTES", 1 << 16)
    choice = random.Random(0)
    for epoch in range(4):
        for data in overtaking(opened(channel, epoch, 3), choice):
            assert data == content(epoch)[: len(data)]


def overtaking(streams: list[Any], choice: random.Random) -> list[bytearray]:
    """What two readers read if the one behind reads past the other at any instruction of a third, which finds the ring full."""
    third, *others = streams
    found, count = [bytearray(), bytearray()], 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes = frame.f_code.co_filename == ring.__file__
        if event in ("opcode", "line") and choice.random() < 0.02:  # Python 3.12.1 has only lines
            behind = min(range(2), key=lambda each: len(found[each]))
            size = min(7_000, count - len(found[behind]))  # no more than there is, since it must not wait
            sys.settrace(None)
            found[behind] += others[behind].read(size) if size else b""
            sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        while count < len(DATA):
            count += len(third.read(10_000))
    finally:
        sys.settrace(before)
    for stream in streams:
        stream.close()
    return found
