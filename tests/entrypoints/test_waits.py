"""How long training loops wait: the records' numbers against a fake clock, what was waited for, lines and files."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.utils.data import DataLoader

from delivered_channels import job
from sagemaker_channels import ChannelDataset, ChannelMapDataset, MixedDataset, ThreadLoader, timed
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.meter import Meter, Work, read_block, total
from sagemaker_channels.waits import Waits, about, line_of

SLOW = 0.02  # seconds; far more than anything else that a step of these tests does
Record = dict[str, Any]


class Clock:
    """Time that passes when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def batches(self, waits: list[float]) -> Iterator[int]:
        for number, wait in enumerate(waits):
            self.now += wait
            yield number


def recorded(waits: list[float], work: float = 1.0) -> list[Record]:
    records: list[Record] = []
    clock = Clock()
    waits_of = Waits([about("train", "File", 0)], records.append, lambda: [Work()], clock=clock)
    for _ in waits_of.meter.over(clock.batches([*waits, 0.0])):
        clock.now += work
    return records


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A job with the channel `train` of 40 objects and `extra` of 8."""
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    entry = {"TrainingInputMode": "File"}
    environment = job(tmp_path, train=entry, extra=entry)
    for channel, objects in (("train", 40), ("extra", 8)):
        (tmp_path / "input/data" / channel).mkdir()
        for number in range(objects):
            (tmp_path / "input/data" / channel / f"{number:02}").write_bytes(bytes(10_000))
    return environment


def written(environment: Environment) -> list[Record]:
    file = environment.output_data_dir / "waits-algo-1-0.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def slow(sample: dict[str, Any]) -> torch.Tensor:
    time.sleep(SLOW)
    return torch.zeros(1)


def counted(spent: list[float]) -> Callable[[dict[str, Any]], torch.Tensor]:
    """A slow transform that appends how long it took, since a sleep may be much longer on a busy machine."""

    def transform(sample: dict[str, Any]) -> torch.Tensor:
        begin = time.perf_counter()
        result = slow(sample)
        spent.append(time.perf_counter() - begin)
        return result

    return transform


def seconds_of(record: Record, share: str) -> float:
    return float(record[share] * record["step_s"] * record["steps"])


def test_some_steps_of_microseconds_are_recorded_and_stand_for_all() -> None:
    *_, record = records = recorded([1e-6] * 99_999, work=1e-6)
    assert sum(each["steps"] for each in records) == pytest.approx(100_000, rel=0.05)
    assert (record["wait_s"], record["wait_share"]) == pytest.approx((1e-6, 0.5), rel=0.05)


@given(some.lists(some.floats(0, 10), min_size=1, max_size=400), some.floats(0.01, 5))
def test_records_hold_the_mean_and_share_of_all_waits(waits: list[float], work: float) -> None:
    records = recorded(waits, work)
    assert sum(record["steps"] for record in records) == len(waits) + 1
    share = sum(record["wait_s"] * record["steps"] for record in records) / sum(
        record["step_s"] * record["steps"] for record in records
    )
    assert share == pytest.approx(sum(waits) / (sum(waits) + work * (len(waits) + 1)), rel=1e-6, abs=1e-9)


def test_a_record_is_written_per_100_steps_of_a_tenth_of_a_second() -> None:
    assert [record["steps"] for record in recorded([0.1] * 349, work=0.1)] == [100, 100, 100, 50]


def test_loops_of_short_steps_write_a_record_per_10_seconds() -> None:
    records = recorded([0.001] * 49_999, work=0.001)
    assert records[0]["steps"] == pytest.approx(500, abs=25)  # a second
    assert 1 < len(records) < 20


def test_the_line_has_each_number_in_the_form_that_metric_definitions_match() -> None:
    [record] = recorded([3.0] * 9, work=1.0)
    line = line_of(record)
    for name in ("step_s", "wait_s", "wait_share", "source_share", "bytes_per_s"):
        found = re.search(rf"channel=train .*\b{name}=([0-9.e+-]+)", line)
        assert found and float(found[1]) == pytest.approx(record[name], rel=1e-3)


LOADERS: dict[str, Callable[[Environment], Any]] = {
    "dataset": lambda job: ChannelDataset("train", transform=slow, environment=job),
    "threads": lambda job: ThreadLoader(ChannelDataset("train", transform=slow, environment=job), 4, num_workers=2),
    "mixture": lambda job: MixedDataset([ChannelDataset("train", transform=slow, environment=job)]),
    "process": lambda job: timed(DataLoader(ChannelDataset("train", transform=slow, environment=job), 4)),
    "workers": lambda job: timed(
        DataLoader(ChannelDataset("train", transform=slow, environment=job), 4, num_workers=2)
    ),
    "map": lambda job: timed(DataLoader(ChannelMapDataset("train", slow, environment=job), 4)),
    "map workers": lambda job: timed(DataLoader(ChannelMapDataset("train", slow, environment=job), 4, num_workers=2)),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_a_slow_transform_is_what_the_loop_waits_for(
    environment: Environment, capfd: pytest.CaptureFixture[str], loader: str
) -> None:
    batches = sum(1 for _ in LOADERS[loader](environment))
    records = written(environment)
    assert sum(record["steps"] for record in records) == batches
    [record] = records
    assert (record["channel"], record["mode"]) == ("train", "File")
    assert record["wait_share"] > 0.5
    assert record["transform_share"] > (record["source_share"] + record["parse_share"]) / 3  # each read may be held up
    assert 0 < record["samples_per_s"] < 2 / SLOW + 1
    assert record["bytes_per_s"] == pytest.approx(10_000 * record["samples_per_s"], rel=0.3)
    assert line_of(record) in capfd.readouterr().err.splitlines()


def test_blocks_of_small_files_are_counted_whole(environment: Environment) -> None:
    for number in range(3000):
        (environment.input_dir / "data/extra" / f"{number:04}.bin").write_bytes(bytes(10_000))
    dataset = ChannelDataset("extra", environment=environment, seed=1, block=1000)
    assert sum(1 for _ in dataset) == 3008
    records = written(environment)
    assert sum(record["steps"] for record in records) == 3008
    read = sum(record["bytes_per_s"] * record["step_s"] * record["steps"] for record in records)
    assert read == pytest.approx(3000 * 10_000 + 8 * 10_000)


def test_reading_of_a_block_is_counted_once() -> None:
    """Not for the rest of the meter, too, if it happens in a stretch of items; and not left out if it happens in a rest."""
    clock, published = Clock(), list[Work]()
    meter = Meter(published.extend, clock=clock)

    def block() -> range:
        clock.now += 10.0
        return range(5000)

    def items() -> Iterator[int]:
        for _ in range(3):
            for number in read_block(block):
                clock.now += 1e-5
                yield number

    for _ in meter.over(items()):
        clock.now += 1e-5
    work = total(published)
    assert work.items == pytest.approx(15_000)
    assert work.samples == pytest.approx(15_000, rel=0.05)  # not the last ones
    assert (work.busy, work.idle) == pytest.approx((30 + 0.15, 0.15), abs=0.02)


@pytest.mark.parametrize("loader", ["dataset", "threads"])
def test_an_injected_wait_is_found_and_attributed(environment: Environment, loader: str) -> None:
    """Only lower bounds, since a busy machine adds waits of its own; against a fake clock, waits are exact."""
    injected: list[float] = []
    dataset = ChannelDataset("train", transform=counted(injected), environment=environment)
    for _ in dataset if loader == "dataset" else ThreadLoader(dataset, 1, num_workers=1):
        pass
    [record] = written(environment)
    waited = seconds_of(record, "wait_share")
    assert waited > (0.95 if loader == "dataset" else 0.75) * sum(injected)  # a thread also works while the loop does
    assert record["transform_share"] / record["wait_share"] * waited > 0.5 * sum(injected)


@contextmanager
def slow_feeder(root: Path, samples: int) -> Iterator[Environment]:
    """A job whose channel `train` is a FIFO into which a thread writes a line now and then."""
    environment = job(root, train={"TrainingInputMode": "Pipe", "ContentType": "text/plain"})
    os.mkfifo(root / "input/data/train_0")

    def feed() -> None:
        with (root / "input/data/train_0").open("wb", buffering=0) as file:
            for number in range(samples):
                time.sleep(SLOW)
                file.write(b"%02d\n" % number)

    feeder = threading.Thread(target=feed)
    feeder.start()
    yield environment
    feeder.join()


def test_a_slow_feeder_of_a_pipe_is_waiting_for_the_source(tmp_path: Path) -> None:
    with slow_feeder(tmp_path, 30) as job:
        assert (
            len(list(ThreadLoader(ChannelDataset("train", environment=job), 1, num_workers=1, collate_fn=list))) == 30
        )
    [record] = written(job)
    assert record["mode"] == "Pipe"
    assert record["wait_share"] > 0.5
    assert record["source_share"] > record["parse_share"] + record["transform_share"]
    assert record["bytes_per_s"] == pytest.approx(3 * record["samples_per_s"])


def test_the_last_record_of_a_loop_has_what_its_threads_did_last(environment: Environment) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1)  # The loop ends before its threads run again, unless it waits for them.
    try:
        dataset = ChannelDataset("extra", environment=environment)
        assert len(list(ThreadLoader(dataset, 1, num_workers=2, collate_fn=list))) == 8
    finally:
        sys.setswitchinterval(before)
    [record] = written(environment)
    assert record["samples_per_s"] * record["step_s"] == pytest.approx(1)


def test_readers_of_a_shuffled_pipe_wait_for_its_slow_feeder(tmp_path: Path) -> None:
    """They read a block ahead in a thread."""
    with slow_feeder(tmp_path, 60) as job:
        dataset = ChannelDataset("train", environment=job, seed=1, block=5)
        assert len(list(ThreadLoader(dataset, 1, num_workers=2, collate_fn=list))) == 60
    [record] = written(job)
    assert record["source_share"] > record["parse_share"] + record["transform_share"]
    assert record["bytes_per_s"] > 2 * record["samples_per_s"]


def test_each_channel_of_a_mixture_has_its_own_record(environment: Environment) -> None:
    spent: dict[str, list[float]] = {"train": [], "extra": []}
    parts = [ChannelDataset(name, transform=counted(each), environment=environment) for name, each in spent.items()]
    mixed = MixedDataset(parts, weights=[5.0, 1.0])
    for loader in (mixed, ThreadLoader(mixed, 4, num_workers=2, collate_fn=list)):
        spent["train"].clear()
        spent["extra"].clear()
        assert sum(1 for _ in loader) >= 12
        train, extra = written(environment)[-2:]
        assert (train["channel"], extra["channel"]) == ("train", "extra")
        assert train["own_share"] + train["wait_share"] + extra["wait_share"] == pytest.approx(1)
        ratio = sum(spent["train"]) / sum(spent["extra"])
        close = 0.1 if loader is mixed else 0.3  # The threads that transform are not those that read.
        assert train["transform_share"] / extra["transform_share"] == pytest.approx(ratio, rel=close)
        # A thread counts the end of a channel as a sample: 42 to 8, or 40 to 10.
        assert 3.9 < train["samples_per_s"] / extra["samples_per_s"] < 5.3


def test_workers_of_a_loader_that_is_not_timed_record_how_busy_they_are(environment: Environment) -> None:
    begin = time.perf_counter()
    assert len(list(DataLoader(ChannelDataset("extra", transform=slow, environment=environment), num_workers=1))) == 8
    elapsed = time.perf_counter() - begin
    [record] = written(environment)
    assert (record["channel"], record["workers"]) == ("extra", 1)
    assert 1 >= record["busy_share"] >= record["transform_share"] >= 8 * SLOW / elapsed
    assert record["bytes_per_s"] == pytest.approx(10_000 * record["samples_per_s"])


def test_busy_share_is_the_part_of_the_workers_time_in_which_they_make_samples() -> None:
    clock, works, records = Clock(), [Work()], list[Record]()
    waits = Waits([about("train", "File", 2)], records.append, works.copy, lambda _: None, clock)
    works[0] = Work(items=4, samples=8, busy=1.0, transform=0.5, idle=2.0, blocked=1.0)
    list(waits.meter.over(clock.batches([1.0])))
    [record] = records
    shares = [record[f"{part}_share"] for part in ("busy", "source", "parse", "transform")]
    assert shares == [0.5, 0.25, 0.125, 0.125]


def test_worker_for_which_no_time_has_passed_writes_no_record() -> None:
    """As of the last samples of a loop, which are not timed."""
    records, done = list[Record](), [Work()]

    def publish(works: Sequence[Work]) -> None:
        done[:] = [total((done[0], *works))]

    waits_of = Waits([about("train", "File", 1)], records.append, lambda: [*done], publish, lambda: 0.0)
    assert list(waits_of.meter.over(iter(range(3)))) == [0, 1, 2]
    assert done[0].items == 3 and records == []


def test_shares_of_the_parts_add_up_to_the_share_of_the_waits(environment: Environment) -> None:
    assert list(ThreadLoader(ChannelDataset("train", transform=slow, environment=environment), 4))
    [record] = written(environment)
    parts = [record[f"{name}_share"] for name in ("source", "parse", "transform", "handover")]
    assert sum(parts) == pytest.approx(record["wait_share"])


def test_timed_records_any_iterable_each_time_and_keeps_its_length_and_attributes() -> None:
    tensors: Any = [torch.zeros(2)] * 6
    loader = DataLoader[Any](tensors, batch_size=2)
    records: list[Record] = []
    watched = timed(loader, "mine", write=records.append)
    assert (len(watched), watched.batch_size) == (3, 2)
    assert [len(list(watched)) for _ in range(2)] == [3, 3]
    assert [(record["channel"], record["steps"]) for record in records] == [("mine", 3)] * 2
    with pytest.raises(TypeError, match="loader"):
        timed(3)  # type: ignore[type-var]


def test_waits_are_not_recorded_if_the_variable_says_so(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_WAITS", "0")
    for make in (LOADERS["threads"], LOADERS["process"], LOADERS["map"]):
        assert list(make(environment))
    assert list(ChannelDataset("train", environment=environment))
    assert not written(environment)
    assert "waits" not in capfd.readouterr().err


def test_loops_outside_of_a_job_print_nothing_unless_they_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "none"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/lines.txt").write_text("a\nb\n")
    dataset = ChannelDataset(tmp_path / "data", format="lines")
    assert len(list(dataset)) == len(list(ThreadLoader(dataset, collate_fn=list))) == 2
    assert list(DataLoader(dataset, collate_fn=list, num_workers=1))
    assert capfd.readouterr() == ("", "")
    assert list(timed(DataLoader(dataset, collate_fn=list)))
    assert capfd.readouterr().err.startswith("waits channel=")
    assert not (tmp_path / "none").exists()


def test_a_validation_inside_a_training_loop_counts_as_its_own_channel(environment: Environment) -> None:
    spent: list[float] = []
    for number, _ in enumerate(ChannelDataset("train", environment=environment)):
        if number == 5:
            assert len(list(ChannelDataset("extra", transform=counted(spent), environment=environment))) == 8
    extra, train = written(environment)
    assert (extra["channel"], train["channel"]) == ("extra", "train")
    assert seconds_of(extra, "transform_share") == pytest.approx(sum(spent), rel=0.1)
    assert train["transform_share"] == 0


def test_a_full_disk_does_not_end_the_training(environment: Environment) -> None:
    environment.output_data_dir.mkdir(parents=True)
    (environment.output_data_dir / "waits-algo-1-0.jsonl").symlink_to("/dev/full")
    assert len(list(ChannelDataset("train", environment=environment))) == 40
