"""One Pipe for all ranks and workers of a host: who gets what, early ends, deaths, errors, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from entrypoints import contract
from entrypoints.broker.epochs import Epoch
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.job.environment import Environment, load_environment
from entrypoints.order.sharding import Share
from entrypoints.records import image_recordio, recordio, tar_write
from entrypoints.samples.channel import open_channel
from entrypoints.torch_data.dataset import ChannelDataset
from pipe_feeder import PATIENCE, Feeder, brokers, in_threads, make_root, wait_for

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]

REPOSITORY = Path(__file__).parents[3]
LINES = [b"%06d" % number for number in range(5000)]
Feed = Callable[..., "Feeder"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An /opt/ml with Pipes `lines`, `tar`, `images` (image RecordIO) and `wrapped`; its brokers are gone at the end."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    make_root(tmp_path)
    yield tmp_path
    for pid in brokers(tmp_path):
        os.kill(pid, signal.SIGKILL)  # they would live as long as this process, for which they work


@pytest.fixture
def feed(root: Path) -> Iterator[Feed]:
    feeders: list[Feeder] = []

    def start(name: str, content: Callable[[int], bytes], epochs: int = 1000) -> Feeder:
        feeders.append(Feeder(root, name, content, epochs))
        return feeders[-1]

    yield start
    for pid in brokers(root):
        os.kill(pid, signal.SIGKILL)
    for feeder in feeders:
        feeder.stop()


@pytest.fixture
def environment(root: Path) -> Environment:
    return load_environment(root, {})


def lines_of(epoch: int) -> bytes:
    return b"".join(b"%d %b\n" % (epoch, line) for line in LINES)


def numbers(samples: Any, epoch: int = 0) -> list[int]:
    """The numbers of lines, all of which must be of the epoch."""
    words = [sample["data"].split() for sample in samples]
    assert {int(found) for found, _ in words} <= {epoch}
    return [int(number) for _, number in words]


def loaded(environment: Environment, workers: int, **options: Any) -> DataLoader[Any]:
    dataset = ChannelDataset("lines", environment=environment)
    return DataLoader(dataset, batch_size=50, num_workers=workers, collate_fn=list, **options)


def side_by_side(environment: Environment, name: str, readers: int, **options: Any) -> list[Any]:
    """What each of several readers gets, or its error, each read in a thread."""
    found: list[Any] = [None] * readers

    def read(index: int) -> None:
        share = Share(index, readers, readers)
        try:
            with closing(open_channel(name, environment=environment, share=share, **options)) as samples:
                found[index] = list(samples)
        except ChannelError as error:
            found[index] = error

    in_threads(read, readers)
    return found


@pytest.mark.parametrize(("workers", "start"), [(2, "fork"), (5, "fork"), (2, "spawn")])
def test_every_sample_once_whatever_the_workers(environment: Environment, feed: Feed, workers: int, start: str) -> None:
    feed("lines", lines_of)
    batches = list(loaded(environment, workers, multiprocessing_context=start))
    assert sorted(numbers(sample for batch in batches for sample in batch)) == list(range(5000))
    # Worker w has every workers-th sample: the assignment does not depend on who is fast.
    assert all(len({number % workers for number in numbers(batch)}) == 1 for batch in batches)


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs(environment: Environment, root: Path, feed: Feed, persistent: bool) -> None:
    feeder = feed("lines", lines_of)
    loader = loaded(environment, 2, persistent_workers=persistent, multiprocessing_context="fork")
    dataset: Any = loader.dataset
    for epoch in range(3):
        dataset.set_epoch(epoch)
        found = numbers((sample for batch in loader for sample in batch), epoch)
        assert sorted(found) == list(range(5000))
        assert len(brokers(root)) == 1
        wait_for(lambda epoch=epoch: epoch + 1 in feeder.started)  # before anybody has asked for it
    assert max(feeder.started) == 3  # and not more than the next one


def test_number_of_workers_may_change_between_epochs(environment: Environment, feed: Feed) -> None:
    feed("lines", lines_of)
    for epoch, workers in enumerate((2, 3, 0, 1, 2)):
        loader = loaded(environment, workers, multiprocessing_context="fork" if workers else None)
        dataset: Any = loader.dataset
        dataset.set_epoch(epoch)
        assert sorted(numbers((sample for batch in loader for sample in batch), epoch)) == list(range(5000))


@pytest.mark.parametrize("persistent", [False, True])
def test_early_break_goes_on_to_the_next_epoch(environment: Environment, feed: Feed, persistent: bool) -> None:
    feed(
        "lines",
        lambda epoch: lines_of(epoch) * 40,
    )
    loader = loaded(environment, 2, persistent_workers=persistent, multiprocessing_context="fork")
    dataset: Any = loader.dataset
    for epoch in range(3):
        dataset.set_epoch(epoch)
        for batch in loader:
            assert len(numbers(batch, epoch)) == 50
            break


def test_formats_come_out_as_one_reader_would_have_them(environment: Environment, feed: Feed) -> None:
    stream = BytesIO()
    tar_write.write(stream, ({"__key__": f"{n:03d}", "bin": os.urandom(n * 900), "cls": b"%d" % n} for n in range(60)))
    records = BytesIO()
    recordio.write(records, [image_recordio.encode(os.urandom(30_000 * (n % 2) + 5), float(n)) for n in range(41)])
    for name, data, form in (("tar", stream, None), ("images", records, "image-recordio"), ("wrapped", records, None)):
        feed(name, lambda epoch, data=data: data.getvalue())
        parts = side_by_side(environment, name, 3, format=form)
        whole = list(open_channel(name, 1, form, environment=environment, share=Share()))
        assert [whole[index::3] for index in range(3)] == parts
        assert len(whole) in (60, 41)


def test_shares_of_other_hosts_are_not_dealt(environment: Environment, feed: Feed) -> None:
    feed("lines", lines_of)
    found: list[Any] = []
    shares = [Share(index, 6, readers=2) for index in (1, 4)]  # numbered as some launchers number ranks
    threads = [
        threading.Thread(
            target=lambda share=share: found.extend(
                numbers(open_channel("lines", environment=environment, share=share))
            )
        )
        for share in shares
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(found) == sorted([*range(1, 5000, 6), *range(4, 5000, 6)])


def test_a_reader_that_stops_early_does_not_hold_up_the_others(environment: Environment, feed: Feed) -> None:
    feed("lines", lambda epoch: lines_of(epoch) * 300)  # more than is kept in memory
    first = open_channel("lines", environment=environment, share=Share(0, 2, 2))
    second = open_channel("lines", environment=environment, share=Share(1, 2, 2))
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(next(first)))
    thread.start()
    with closing(second):
        next(second)
        thread.join()
        first.close()
        assert sum(1 for _ in second) == 5000 * 150 - 1


def test_a_killed_reader_does_not_hold_up_the_others(environment: Environment, root: Path, feed: Feed) -> None:
    feed("lines", lambda epoch: lines_of(epoch) * 300)
    script = f"""
        import sys, time
        from pathlib import Path
        from entrypoints.samples.channel import open_channel
        from entrypoints.job.environment import load_environment
        from entrypoints.order.sharding import Share
        samples = open_channel("lines", environment=load_environment(Path({str(root)!r})), share=Share(0, 2, 2))
        next(samples)
        print("one", flush=True)
        sys.stdin.read()
    """
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with (
        subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        closing(open_channel("lines", environment=environment, share=Share(1, 2, 2))) as samples,
    ):
        next(samples)
        assert other.stdout is not None and other.stdout.readline() == b"one\n"
        other.kill()
        assert sum(1 for _ in samples) == 5000 * 150 - 1


def test_a_killed_broker_is_an_error_and_not_a_short_epoch(environment: Environment, root: Path, feed: Feed) -> None:
    feed("lines", lambda epoch: lines_of(epoch) * 300)
    loader = loaded(environment, 2, multiprocessing_context="fork")
    with pytest.raises(ChannelError, match="the process that reads the Pipe for this host has died, after"):
        for count, _ in enumerate(loader):
            if count == 10:
                [pid] = brokers(root)
                os.kill(pid, signal.SIGKILL)
    assert brokers(root) == []
    dataset: Any = loader.dataset
    dataset.set_epoch(1)
    assert len(next(iter(loader))) == 50  # a new one


def test_damage_reaches_every_reader_after_what_came_before(environment: Environment, feed: Feed) -> None:
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


def test_several_channels_at_once(environment: Environment, root: Path, feed: Feed) -> None:
    feed("lines", lines_of)
    records = BytesIO()
    recordio.write(records, LINES)
    feed("images", lambda epoch: records.getvalue())
    pairs = zip(
        *(open_channel(name, environment=environment, share=Share(0, 2)) for name in ("lines", "images")), strict=True
    )
    assert sum(1 for _ in pairs) == 2500  # one reader each, without a broker
    assert brokers(root) == []
    found: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: side_by_side(environment, name, 2, epoch=1)}))
        for name in ("lines", "images")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(brokers(root)) == 2
    assert {name: [len(part) for part in parts] for name, parts in found.items()} == {
        "lines": [2500, 2500],
        "images": [2500, 2500],
    }


def test_an_epoch_is_not_read_twice(environment: Environment, feed: Feed) -> None:
    feeder = feed("lines", lines_of)
    assert [len(part) for part in side_by_side(environment, "lines", 2)] == [2500, 2500]
    for error in side_by_side(environment, "lines", 2):
        assert "epoch 0 was read already (this host's reader is at epoch 1)" in str(error)
    # Without a broker, by the FIFOs that are there.
    assert len(numbers(open_channel("lines", 1, environment=environment), 1)) == 5000
    wait_for(lambda: 1 in feeder.ended)
    begin = time.monotonic()
    with pytest.raises(ChannelError, match="epoch 0 was read already"):
        next(open_channel("lines", environment=environment))
    assert time.monotonic() - begin < 10


def test_readers_that_do_not_come_are_named(
    environment: Environment, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "0.5")
    feed("lines", lines_of)
    samples = open_channel("lines", environment=environment, share=Share(1, 3, 3))
    with pytest.raises(
        ChannelError, match=r"'lines', epoch 0: only 1 of this host's 3 readers connected within 0.5 s \(shard 1 "
    ):
        next(samples)


def test_readers_that_do_not_agree_are_told(environment: Environment, feed: Feed) -> None:
    feed("lines", lines_of)

    def read(share: Share, form: str | None = None) -> list[int]:
        return numbers(open_channel("lines", 0, form, environment=environment, share=share))

    found: list[Any] = []

    def first() -> None:
        try:
            found.append(read(Share(0, 2, 2)))
        except ChannelError as error:
            found.append(str(error))

    threads = [threading.Thread(target=first, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: found)
    assert "shard 0 of 2 is already assigned to another reader" in found[0]
    with pytest.raises(ChannelError, match="use the same num_workers on every rank"):
        read(Share(1, 3, 3))
    with pytest.raises(ChannelError, match="is being read as 'lines', not as '"):
        read(Share(1, 2, 2), "recordio")
    assert read(Share(1, 2, 2)) == list(range(1, 5000, 2))
    for thread in threads:
        thread.join(PATIENCE)
    assert found[1] == list(range(0, 5000, 2))


@pytest.mark.parametrize("readers", [1, 2])
def test_a_silent_feeder_is_named(
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
        assert "lines_0 has sent nothing for 0 s, after 8 bytes; look whether it is alive" in str(error)
    done.set()


def test_ranks_of_torchrun_with_workers_and_nothing_left(root: Path, feed: Feed, tmp_path: Path) -> None:
    feed("lines", lines_of)
    script = textwrap.dedent(
        """
        import json, os, sys
        from pathlib import Path
        from torch.utils.data import DataLoader
        from entrypoints.torch_data.dataset import ChannelDataset

        dataset = ChannelDataset("lines")
        found = []
        for epoch in range(2):
            dataset.set_epoch(epoch)
            batches = DataLoader(dataset, 50, num_workers=2, collate_fn=list)
            found.append([sample["data"].decode() for batch in batches for sample in batch])
        Path(f"found-{os.environ['RANK']}.json").write_text(json.dumps(found))
        """
    )
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "script.py"]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "SAGEMAKER_BASE_DIR": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(2)]
    for epoch in range(2):
        for rank in range(2):
            wanted = [f"{epoch} {line.decode()}" for line in LINES[rank::2]]
            assert sorted(ranks[rank][epoch]) == wanted
    wait_for(lambda: not brokers(root))  # they end by themselves, a moment after the training


def test_a_format_with_parameters_and_one_that_gives_arrays(environment: Environment, feed: Feed) -> None:
    feed("lines", lambda epoch: b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(10)))
    parts = side_by_side(environment, "lines", 2, format="csv; header=present")
    assert [[sample["a"] for sample in part] for part in parts] == [list("02468"), list("13579")]
    records = BytesIO()
    recordio.write(records, [image_recordio.encode(b"image", [float(n)] * 9000) for n in range(4)])
    feed("wrapped", lambda epoch: records.getvalue())
    parts = side_by_side(environment, "wrapped", 2)
    assert [len(sample["data"]) for part in parts for sample in part] == [24 + 36_000 + 5] * 4


@pytest.mark.parametrize(("piece", "readers"), [(b"x\n", 2), (b"x\n" * 1000, 2), (b"x" * 99_999 + b"\n", 1)])
def test_a_reader_that_takes_nothing_holds_up_the_feeder_and_not_the_memory(
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
    readings = [open_channel("lines", environment=environment, share=Share(n, 2, 2)) for n in range(2)]
    threads = [threading.Thread(target=next, args=(each,)) for each in readings]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    if readers == 1:
        readings[1].close()
    [pid] = brokers(root)
    end = time.monotonic() + 3  # or as soon as nothing goes in any more
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
    assert peak < 200_000  # KB


def test_parts_that_are_left_before_anybody_has_come() -> None:
    epoch = Epoch(0)
    epoch.assign([{"data": b"x"}], 1)
    epoch.leave(Share(0, 2, 2))
    epoch.leave(Share(0, 2, 2))
    assert not epoch.is_abandoned
    epoch.leave(Share(1, 2, 2))
    assert epoch.is_abandoned
