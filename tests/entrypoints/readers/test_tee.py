"""One Pipe for several readers of a host: each gets the whole stream, whatever the others do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE, wait_for
from pipe_feeder import Feeder, make_root
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.readers import tee
from tee_readers import (
    bytes_of,
    content,
    digest,
    in_threads,
    kill_tees,
    next_line,
    pipe,
    printed,
    side_by_side,
    started,
    tees,
    whole,
)

pytestmark = [pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    make_root(tmp_path)
    yield tmp_path
    kill_tees(pipe(tmp_path), pipe(tmp_path, "tar"))


@pytest.fixture
def channel(root: Path) -> Channel:
    return pipe(root)


@pytest.fixture
def feeder(root: Path, channel: Channel) -> Iterator[Feeder]:
    feeder = Feeder(root, "lines", content, piece=300_000)
    yield feeder
    kill_tees(channel)
    feeder.stop()


@pytest.mark.parametrize("readers", [2, 5])
def test_every_reader_gets_the_whole_stream(root: Path, feeder: Feeder, readers: int) -> None:
    processes = [started(root, readers, number, "reads", 0, 1) for number in range(readers)]
    assert [printed(process) for process in processes] == [[whole(0), whole(1)]] * readers
    wait_for(lambda: not tees(pipe(root)))  # It ends by itself, and the feeder is not left waiting.
    wait_for(lambda: feeder.started[-1] > 2 or 2 in feeder.ended or 2 not in feeder.started)


def test_only_reader_needs_no_tee(channel: Channel, feeder: Feeder) -> None:
    assert bytes_of(channel, 0, 1) == content(0)
    assert tee.open_stream(channel, 1, 1, finished=True) is None
    assert tees(channel) == []


def test_consecutive_epochs_are_read_ahead_by_one_tee(channel: Channel, feeder: Feeder) -> None:
    [first] = [(side_by_side(channel, 0, 3), tees(channel))[1]]
    for epoch in range(1, 4):
        wait_for(lambda epoch=epoch: epoch in feeder.started)  # before anybody has asked for it
        assert side_by_side(channel, epoch, 3) == [whole(epoch)] * 3
        assert tees(channel) == first
    wait_for(lambda: 4 in feeder.started)
    assert max(feeder.started) == 4  # and not more than the next one


def test_next_epoch_is_read_while_the_slowest_reader_has_the_rest_of_the_last(root: Path, channel: Channel) -> None:
    feeder = Feeder(root, "lines", lambda number: b"%d" % number * 1_000_000)
    streams: list[Any] = [tee.open_stream(channel, 0, 2, reader=number) for number in range(2)]
    assert len(streams[0].read()) == 1_000_000
    streams[0].close()
    wait_for(lambda: 1 in feeder.started)
    assert streams[1].read() == b"0" * 1_000_000
    streams[1].close()
    assert side_by_side(channel, 1, 2) == [digest(b"1" * 1_000_000)] * 2
    kill_tees(channel)
    feeder.stop()


def test_changed_number_of_readers_gets_the_next_epoch_whole(channel: Channel, feeder: Feeder) -> None:
    for epoch, readers in enumerate((2, 3, 1, 2)):
        assert side_by_side(channel, epoch, readers) == [whole(epoch)] * readers


def test_small_reads_and_large_ones_are_the_same_bytes(channel: Channel, feeder: Feeder) -> None:
    def read(number: int) -> bytes:
        stream: Any = tee.open_stream(channel, 0, 2)
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


def test_stream_left_open_is_ended_by_its_readers_next_epoch(channel: Channel, feeder: Feeder) -> None:
    old: Any = [tee.open_stream(channel, 0, 2, reader=number) for number in range(2)]
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


def test_forked_process_neither_ends_a_stream_nor_keeps_it(channel: Channel, feeder: Feeder) -> None:
    streams: list[Any] = [tee.open_stream(channel, 0, 3, reader=number) for number in range(3)]
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


def test_epoch_that_no_reader_wants_is_closed_for_the_next(channel: Channel, feeder: Feeder) -> None:
    assert side_by_side(channel, 0, 2) == [whole(0)] * 2
    wait_for(lambda: 1 in feeder.started)
    assert side_by_side(channel, 2, 2) == [whole(2)] * 2


def test_channels_have_their_own_tees(root: Path, channel: Channel, feeder: Feeder) -> None:
    other = pipe(root, "tar")
    feeder = Feeder(root, "tar", lambda number: b"tar" * 1000)
    found = in_threads(lambda number: side_by_side((channel, other)[number], 0, 2), 2)
    assert found == [[whole(0)] * 2, [digest(b"tar" * 1000)] * 2]
    assert len(tees(channel, other)) == 2
    kill_tees(other)
    feeder.stop()


def test_folder_made_again_at_the_same_path_gets_its_own_tee(root: Path) -> None:
    """A file system gives a deleted folder's inode to the next one, and a tee lives as long as the process it reads for."""
    job, old = root / "job", []
    for _ in range(3):
        job.mkdir()
        make_root(job)
        feeder = Feeder(job, "lines", lambda number: b"%d" % number)
        assert side_by_side(pipe(job), 0, 2) == [digest(b"0")] * 2
        old += tees(pipe(job))
        feeder.stop()
        shutil.rmtree(job)
    assert len(old) == 3
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in old))


def test_empty_stream_yields_nothing_and_warns(root: Path, channel: Channel, capfd: pytest.CaptureFixture[str]) -> None:
    feeder = Feeder(root, "lines", lambda number: b"")
    assert side_by_side(channel, 0, 2) == [digest(b"")] * 2
    kill_tees(channel)
    feeder.stop()
    assert "lines_0 ended without a byte: this host has no samples in this epoch" in capfd.readouterr().err


def test_killed_tee_raises_instead_of_a_short_epoch(channel: Channel, feeder: Feeder) -> None:
    streams: list[Any] = [tee.open_stream(channel, 0, 2, reader=number) for number in range(2)]
    for stream in streams:
        stream.read(1)
    [pid] = tees(channel)
    os.kill(pid, signal.SIGKILL)
    for stream in streams:
        with (
            closing(stream),
            pytest.raises(ChannelError, match=r"has died, after [0-9,]+ bytes of epoch 0; see the log"),
        ):
            stream.read()
    wait_for(lambda: not tees(channel))
    assert side_by_side(channel, 1, 2) == [whole(1)] * 2  # a new one


def test_second_request_for_an_epoch_is_refused(channel: Channel, feeder: Feeder) -> None:
    assert side_by_side(channel, 0, 2) == [whole(0)] * 2
    wait_for(lambda: 1 in feeder.started)
    for error in side_by_side(channel, 0, 2):
        assert "epoch 0 was read already (this host's reader is at epoch 1)" in error


def test_missing_readers_are_reported_after_the_wait(
    channel: Channel, feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "0.5")
    stream: Any = tee.open_stream(channel, 0, 3, reader=0)
    with (
        closing(stream),
        pytest.raises(ChannelError, match=r"'lines', epoch 0: only 1 of this host's 3 readers connected within 0\.5 s"),
    ):
        stream.read()
    assert feeder.started == []  # Nothing is lost,
    assert side_by_side(channel, 0, 3) == [whole(0)] * 3


def test_readers_that_contradict_each_other_are_refused(channel: Channel, feeder: Feeder) -> None:
    first: Any = tee.open_stream(channel, 0, 2, reader=0)
    with pytest.raises(
        ChannelError, match=r"expects 3 readers on this host, another 2; use the same num_workers on eve"
    ):
        bytes_of(channel, 0, 3, 1)
    with pytest.raises(
        ChannelError, match=r"'lines', epoch 0: reader 0 has asked for it already; read the channel once"
    ):
        bytes_of(channel, 0, 2, 0)
    second: Any = tee.open_stream(channel, 0, 2, reader=1)
    with pytest.raises(
        ChannelError, match=r"'lines', epoch 0: all 2 readers have asked for it already; read the channel"
    ):
        bytes_of(channel, 0, 2, 2)
    assert in_threads(lambda number: (first, second)[number].read(), 2) == [content(0)] * 2
    first.close()
    second.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("end", ["tee", "reader"])
def test_process_of_another_user_is_refused(channel: Channel, feeder: Feeder, end: str) -> None:
    script = """
        import os, socket, sys
        os.setuid(65534)
        other = socket.socket(socket.AF_UNIX)
        if sys.argv[1] == "tee":
            other.bind(sys.argv[2].replace("@", "\\0"))
            other.listen()
        else:
            other.connect(sys.argv[2].replace("@", "\\0"))
            assert other.recv(1) == b""
        print(flush=True)
        sys.stdin.read()
    """
    streams: list[Any] = []
    if end == "reader":
        streams = [tee.open_stream(channel, 0, 2, reader=number) for number in range(2)]
    command = [sys.executable, "-c", textwrap.dedent(script), end, tee.address(channel).replace("\0", "@")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"\n"
        if end == "tee":
            with pytest.raises(
                ChannelError, match=r"^channel 'lines': another user's process reads this Pipe; end that "
            ):
                tee.open_stream(channel, 0, 1)
        other.communicate()
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
