"""Readers of one Pipe that stop, die, are missing or contradict each other; damaged and silent streams; a killed broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE, wait_for
from pipe_feeder import Feed, brokers, lines_of, loaded, numbers, side_by_side
from sagemaker_channels import contract
from sagemaker_channels.broker import protocol
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.records.archives import tar_write
from sagemaker_channels.records.recordio import image_recordio, recordio
from sagemaker_channels.samples.channel import open_channel

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]

REPOSITORY = Path(__file__).parents[3]


def test_reader_that_stops_early_does_not_block_the_others(environment: Environment, feed: Feed) -> None:
    feed("lines", lambda epoch: lines_of(epoch) * 300)  # more than is kept in memory
    first = open_channel("lines", environment=environment, shard=Shard(0, 2, 2))
    second = open_channel("lines", environment=environment, shard=Shard(1, 2, 2))
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(next(first)))
    thread.start()
    with closing(second):
        next(second)
        thread.join()
        first.close()
        assert sum(1 for _ in second) == 5000 * 150 - 1


def test_killed_reader_does_not_block_the_others(environment: Environment, root: Path, feed: Feed) -> None:
    feed("lines", lambda epoch: lines_of(epoch) * 300)
    script = f"""
        import sys, time
        from pathlib import Path
        from sagemaker_channels.samples.channel import open_channel
        from sagemaker_channels.job.environment import load_environment
        from sagemaker_channels.order.sharding import Shard
        samples = open_channel("lines", environment=load_environment(Path({str(root)!r})), shard=Shard(0, 2, 2))
        next(samples)
        print("one", flush=True)
        sys.stdin.read()
    """
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY / "entrypoints")}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with (
        subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        closing(open_channel("lines", environment=environment, shard=Shard(1, 2, 2))) as samples,
    ):
        next(samples)
        assert other.stdout is not None and other.stdout.readline() == b"one\n"
        other.kill()
        assert sum(1 for _ in samples) == 5000 * 150 - 1


def test_killed_broker_raises_instead_of_a_short_epoch(environment: Environment, root: Path, feed: Feed) -> None:
    feed("lines", lambda epoch: lines_of(epoch) * 300)
    loader = loaded(environment, 2, multiprocessing_context="fork")
    with pytest.raises(ChannelError, match="the process that reads the Pipe for this host has died, after") as raised:
        for count, _ in enumerate(loader):
            if count == 10:
                [pid] = brokers(root)
                os.kill(pid, signal.SIGKILL)
    traceback.clear_frames(raised.tb)  # frees torch's iterator; see test_transform_error_names_the_sample
    assert brokers(root) == []
    dataset: Any = loader.dataset
    dataset.set_epoch(1)
    assert len(next(iter(loader))) == 50  # a new one


def test_damaged_stream_raises_in_every_reader_after_its_good_samples(environment: Environment, feed: Feed) -> None:
    stream = BytesIO()
    tar_write.write(stream, ({"__key__": f"{n:03d}", "bin": bytes(100)} for n in range(10)))
    feed("tar", lambda epoch: stream.getvalue()[: 6 * 1024 + 700])
    for error in side_by_side(environment, "tar", 3):
        assert isinstance(error, CorruptError)
        assert str(error).startswith("channel 'tar': byte 6144: the stream ends at byte 6844")
    records = BytesIO()
    recordio.write(records, [image_recordio.encode(b"image"), b"short"])
    feed("images", lambda epoch: records.getvalue())
    good, bad = side_by_side(environment, "images", 2, format="image-recordio")
    assert len(good) == 1
    assert isinstance(bad, CorruptError) and str(bad).startswith("channel 'images': byte 40: ")


def test_second_request_for_an_epoch_is_refused(environment: Environment, feed: Feed) -> None:
    feeder = feed("lines", lines_of)
    assert [len(part) for part in side_by_side(environment, "lines", 2)] == [2500, 2500]
    for error in side_by_side(environment, "lines", 2):
        assert "epoch 0 was read already (this host's reader is at epoch 1)" in str(error)
    # Without a broker, by the FIFOs that are there.
    assert len(numbers(open_channel("lines", 1, environment=environment), 1)) == 5000
    wait_for(lambda: 1 in feeder.ended)
    with pytest.raises(ChannelError, match="epoch 0 was read already"):
        next(open_channel("lines", environment=environment))


def test_missing_readers_are_reported_after_the_wait(
    environment: Environment, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "0.5")
    feed("lines", lines_of)
    samples = open_channel("lines", environment=environment, shard=Shard(1, 3, 3))
    with pytest.raises(
        ChannelError, match=r"'lines', epoch 0: only 1 of this host's 3 readers connected within 0.5 s \(shard 1 "
    ):
        next(samples)


def test_readers_that_contradict_each_other_are_refused(environment: Environment, feed: Feed) -> None:
    feed("lines", lines_of)

    def read(shard: Shard, form: str | None = None) -> list[int]:
        return numbers(open_channel("lines", 0, form, environment=environment, shard=shard))

    found: list[Any] = []

    def first() -> None:
        try:
            found.append(read(Shard(0, 2, 2)))
        except ChannelError as error:
            found.append(str(error))

    threads = [threading.Thread(target=first, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: found)
    assert "shard 0 of 2 is already assigned to another reader" in found[0]
    with pytest.raises(ChannelError, match="use the same num_workers on every rank"):
        read(Shard(1, 3, 3))
    with pytest.raises(ChannelError, match="is being read as 'lines', not as '"):
        read(Shard(1, 2, 2), "recordio")
    assert read(Shard(1, 2, 2)) == list(range(1, 5000, 2))
    for thread in threads:
        thread.join(PATIENCE)
    assert found[1] == list(range(0, 5000, 2))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_process_of_another_user_is_refused(environment: Environment) -> None:
    """It could send pickles, which run code."""
    address = protocol.address(environment.channels["lines"])
    script = """
        import os, socket, sys
        os.setuid(65534)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1].replace("@", "\\0"))
        listener.listen()
        print(flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), address.replace("\0", "@")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"\n"
        [error] = side_by_side(environment, "lines", 1)
        assert str(error) == "channel 'lines': another user's process reads this Pipe; end that process"
        other.communicate()


@pytest.mark.parametrize("readers", [1, 2])
def test_silent_feeder_raises_with_its_fifo(
    environment: Environment, root: Path, monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "0.4")
    fifo = root / contract.DATA_DIR / "lines_0"
    os.mkfifo(fifo)
    done = threading.Event()

    def stall() -> None:
        with fifo.open("wb", buffering=0) as stream:
            stream.write(b"0 1\n0 2\n")
            done.wait(PATIENCE)

    threading.Thread(target=stall, daemon=True).start()
    for error in side_by_side(environment, "lines", readers):
        assert "channel 'lines': the feeder of " in str(error)
        assert "lines_0 has sent nothing for 0 s, after 8 bytes; check that it runs" in str(error)
    done.set()


@pytest.mark.parametrize(("piece", "readers"), [(b"x\n", 2), (b"x\n" * 1000, 2), (b"x" * 99_999 + b"\n", 1)])
def test_reader_that_reads_nothing_blocks_the_feeder_within_bounded_memory(
    environment: Environment, root: Path, piece: bytes, readers: int
) -> None:
    fifo = root / contract.DATA_DIR / "lines_0"
    os.mkfifo(fifo)
    stop, written = threading.Event(), [0]

    def flood() -> None:
        descriptor = os.open(fifo, os.O_WRONLY)
        os.set_blocking(descriptor, False)
        while not stop.is_set():
            try:
                written[0] += os.write(descriptor, piece)
            except BlockingIOError:
                stop.wait(0.001)
            except BrokenPipeError:
                break
        os.close(descriptor)

    thread = threading.Thread(target=flood)
    thread.start()
    readings = [open_channel("lines", environment=environment, shard=Shard(n, 2, 2)) for n in range(2)]
    threads = [threading.Thread(target=next, args=(each,)) for each in readings]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    if readers == 1:
        readings[1].close()
    [pid] = brokers(root)
    end = time.monotonic() + PATIENCE  # or as soon as nothing goes in any more
    while time.monotonic() < end:
        before = written[0]
        time.sleep(0.3)
        if written[0] == before:
            break
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    for each in readings:
        each.close()
    stop.set()
    thread.join(PATIENCE)
    assert peak < 256_000  # KB; the most that was seen is 218,000
