"""Order, resumption, mixing, caching and threads: each sample once, the same order for the same seed, exactly on from anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from entrypoints.errors import ChannelError
from entrypoints.job.environment import Environment, load_environment
from entrypoints.order.sampling import Reading
from entrypoints.order.sharding import Shard
from entrypoints.records.archives import tar_write
from entrypoints.records.recordio import recordio
from entrypoints.samples.channel import open_channel
from entrypoints.torch_data.dataset import ChannelDataset, MixedDataset
from entrypoints.torch_data.loader import ThreadLoader, even_batches
from pipe_feeder import wait_for

SHUFFLED = Reading(seed=7, block=10)
CHANNELS = {
    "tar": ("application/x-tar", "File"),
    "lines": ("text/plain", "File"),
    "records": ("application/x-recordio", "FastFile"),
    "objects": (None, "File"),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Four channels of 7 objects (70 of the last) with 10 samples each, whose texts tell them apart."""
    root = tmp_path_factory.mktemp("ml")
    config = {}
    for name, (content_type, mode) in CHANNELS.items():
        folder = root / "input/data" / name
        folder.mkdir(parents=True)
        config[name] = {"TrainingInputMode": mode, "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
        if content_type:
            config[name]["ContentType"] = content_type
    for shard in range(7):
        texts = [f"{shard}-{number}".encode() for number in range(10)]
        data = root / "input/data"
        with (data / f"tar/{shard}.tar").open("wb") as file:
            tar_write.write(file, [{"__key__": text.decode(), "txt": text} for text in texts])
        (data / f"lines/{shard}.txt").write_bytes(b"".join(text + b"\n" for text in texts))
        with (data / f"records/{shard}.rec").open("wb") as file:
            recordio.write(file, texts)
        for text in texts:
            (data / "objects" / text.decode()).write_bytes(text)
    (root / "input/config").mkdir(parents=True)
    (root / "input/config/inputdataconfig.json").write_text(json.dumps(config))
    return load_environment(root, {})


def text_of(sample: dict[str, Any]) -> str:
    return (sample["txt"] if "txt" in sample else sample["data"]).decode()


EVERY = sorted(f"{shard}-{number}" for shard in range(7) for number in range(10))


def texts(environment: Environment, name: str, epoch: int = 0, shard: Shard | None = None, **how: Any) -> list[str]:
    with closing(open_channel(name, epoch, environment=environment, shard=shard, **how)) as samples:
        return list(map(text_of, samples))


@pytest.mark.parametrize("name", CHANNELS)
def test_a_shuffled_epoch_is_a_function_of_seed_and_epoch(environment: Environment, name: str) -> None:
    first = texts(environment, name, reading=SHUFFLED)
    assert sorted(first) == EVERY
    assert first != texts(environment, name)
    assert first == texts(environment, name, reading=SHUFFLED)
    others = [
        texts(environment, name, 1, reading=SHUFFLED),
        texts(environment, name, reading=Reading(seed=8, block=10)),
    ]
    assert all(sorted(other) == EVERY and other != first for other in others)


@pytest.mark.parametrize("reading", [None, SHUFFLED, Reading(seed=1, block=10_000), Reading(seed=1, block_bytes=5)])
@pytest.mark.parametrize("name", CHANNELS)
def test_shares_are_disjoint_and_together_all(environment: Environment, name: str, reading: Reading | None) -> None:
    parts = [texts(environment, name, shard=Shard(index, 3), reading=reading) for index in range(3)]
    assert Counter(text for part in parts for text in part) == Counter(EVERY)


@pytest.mark.parametrize("reading", [None, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", CHANNELS)
def test_reading_goes_on_exactly_anywhere(environment: Environment, name: str, reading: Reading | None) -> None:
    shard = Shard(1, 2)
    whole = texts(environment, name, 3, shard, reading=reading)
    for count in range(len(whole) + 1):
        with closing(open_channel(name, 3, environment=environment, shard=shard, reading=reading)) as samples:
            for _ in range(count):
                next(samples)
            state = json.loads(json.dumps(samples.state_dict()))
        with closing(open_channel(name, 3, environment=environment, shard=shard, reading=reading)) as samples:
            samples.load_state_dict(state)
            rest = list(map(text_of, samples))
        assert rest == whole[count:], count


def test_a_state_of_another_epoch_is_refused(environment: Environment) -> None:
    with closing(open_channel("tar", 3, environment=environment)) as samples:
        state = samples.state_dict()
    with (
        closing(open_channel("tar", 4, environment=environment)) as samples,
        pytest.raises(ChannelError, match="epoch 3"),
    ):
        samples.load_state_dict(state)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 asks torch 2.13 for it
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("reading", [None, SHUFFLED], ids=["in order", "shuffled"])
def test_a_stateful_data_loader_goes_on(environment: Environment, reading: Reading | None, workers: int) -> None:
    def loader() -> StatefulDataLoader[Any]:
        dataset = ChannelDataset("tar", transform=text_of, environment=environment, reading=reading)
        dataset.set_epoch(2)
        return StatefulDataLoader(dataset, batch_size=4, num_workers=workers)

    whole = list(loader())
    for count in (1, 7, 12):
        first = loader()
        batches = iter(first)
        for _ in range(count):
            next(batches)
        state = first.state_dict()
        again = loader()
        again.load_state_dict(state)
        assert list(again) == whole[count:]


def mixture(environment: Environment, **how: Any) -> MixedDataset:
    parts = {
        ChannelDataset("tar", transform=text_of, environment=environment, reading=SHUFFLED): 3.0,
        ChannelDataset("lines", transform=lambda sample: f"line {text_of(sample)}", environment=environment): 1.0,
    }
    return MixedDataset(parts, **how)


def test_channels_are_mixed_by_weight_and_each_sample_comes_once(environment: Environment) -> None:
    drawn = list(mixture(environment))
    assert sorted(drawn) == sorted([*EVERY, *(f"line {text}" for text in EVERY)])
    assert drawn == list(mixture(environment))
    assert drawn != list(mixture(environment, seed=1))
    tars = sum(not text.startswith("line") for text in drawn[:60])
    assert 35 <= tars <= 55, "three of four, while both last"
    ended = list(mixture(environment, stop_at_first=True))
    assert ended == drawn[: len(ended)]
    assert len(ended) < len(drawn)


def test_a_mixture_goes_on_exactly(environment: Environment) -> None:
    whole = list(mixture(environment))
    for count in (0, 1, 50, 100, 139, 140):
        dataset = mixture(environment)
        samples = iter(dataset)
        for _ in range(count):
            next(samples)
        again = mixture(environment)
        again.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        assert list(again) == whole[count:], count


def threads_of(dataset: Any, **how: Any) -> ThreadLoader:
    return ThreadLoader(dataset, 4, threads=2, **how)


def test_threads_give_the_batches_that_workers_give(environment: Environment) -> None:
    dataset = ChannelDataset("tar", transform=text_of, environment=environment, reading=SHUFFLED)
    assert list(threads_of(dataset)) == list(DataLoader(dataset, batch_size=4, num_workers=2))
    dropped = list(threads_of(dataset, drop_last=True))
    assert dropped == list(DataLoader(dataset, batch_size=4, num_workers=2, drop_last=True))


def test_threads_go_on_exactly(environment: Environment) -> None:
    def loader() -> ThreadLoader:
        return threads_of(ChannelDataset("tar", transform=text_of, environment=environment, reading=SHUFFLED))

    whole = list(loader())
    for count in range(len(whole) + 1):
        first = loader()
        with closing(iter(first)) as batches:
            for _ in range(count):
                next(batches)
        again = loader()
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert list(again) == whole[count:], count


def test_threads_end_when_a_loop_is_left_and_tell_errors(environment: Environment) -> None:
    before = threading.active_count()
    dataset = ChannelDataset("tar", environment=environment)
    batches = iter(ThreadLoader(dataset, 1, threads=4))
    next(batches)
    batches.close()
    wait_for(lambda: threading.active_count() == before)

    def fail(sample: dict[str, Any]) -> str:
        if sample["txt"] == b"3-3":
            raise ValueError("this one is broken")
        return text_of(sample)

    dataset = ChannelDataset("tar", transform=fail, environment=environment)
    given: list[str] = []
    with pytest.raises(ValueError, match="this one is broken"):
        for batch in ThreadLoader(dataset, 1, threads=1):
            given += batch
    assert given == sorted(EVERY)[: sorted(EVERY).index("3-3")]
    wait_for(lambda: threading.active_count() == before)


def test_even_batches_of_one_process_all_count() -> None:
    assert list(even_batches([1, 2, 3])) == [(1, True), (2, True), (3, True)]


class TestCache:
    @pytest.fixture
    def far(self, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """The channels lie on a far file system; which of their files are opened there."""
        from entrypoints.readers import mounted

        opened: list[str] = []
        original = mounted.open_objects

        def noting(channel: Any, paths: Any) -> Any:
            return original(channel, (opened.append(path) or path for path in paths))

        monkeypatch.setattr("entrypoints.samples.channel.is_remote", lambda path: True)
        monkeypatch.setattr(mounted, "open_objects", noting)
        return opened

    def test_the_second_epoch_comes_from_the_disk(
        self, environment: Environment, far: list[str], tmp_path: Path
    ) -> None:
        for name in CHANNELS:
            far.clear()
            reading = Reading(cache_dir=tmp_path / name)
            first = texts(environment, name, reading=reading)
            assert far
            far.clear()
            assert texts(environment, name, 1, reading=reading) == first
            shuffled = Reading(seed=1, cache_dir=tmp_path / name)
            assert sorted(texts(environment, name, 1, Shard(0, 1), reading=shuffled)) == EVERY
            assert far == []

    def test_what_was_left_early_is_not_kept(self, environment: Environment, far: list[str], tmp_path: Path) -> None:
        reading = Reading(cache_dir=tmp_path)
        with closing(open_channel("tar", environment=environment, reading=reading)) as samples:
            for _ in range(25):
                next(samples)
        far.clear()
        assert sorted(texts(environment, "tar", reading=reading)) == EVERY
        assert far == [f"{shard}.tar" for shard in range(2, 7)], "two had been read to their ends"
        assert [file.name for file in tmp_path.rglob("part-*")] == []

    def test_a_full_disk_ends_the_keeping_only(
        self, environment: Environment, far: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("entrypoints.samples.object_cache._KEPT_FREE", 1.1)
        assert texts(environment, "tar", reading=Reading(cache_dir=tmp_path)) == texts(environment, "tar")
        assert [file for file in tmp_path.rglob("*") if file.is_file()] == []

    def test_a_pipe_has_nothing_to_keep(self, tmp_path: Path) -> None:
        config = tmp_path / "input/config"
        config.mkdir(parents=True)
        entry = {
            "TrainingInputMode": "Pipe",
            "S3DistributionType": "FullyReplicated",
            "ContentType": "application/x-tar",
        }
        (config / "inputdataconfig.json").write_text(json.dumps({"train": entry}))
        environment = load_environment(tmp_path, {})
        with pytest.raises(ChannelError, match="sends each epoch as one stream"):
            open_channel("train", environment=environment, reading=Reading(cache_dir=tmp_path))


RANK = """
import json, os, sys
import torch.distributed as dist
from entrypoints.torch_data.loader import even_batches

rank, store, lengths = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=len(lengths))
try:
    told = list(even_batches([f"{rank}.{number}" for number in range(lengths[rank])], kept=2))
except Exception as error:
    told = str(error)
print(json.dumps(told), flush=True)
os._exit(0)  # gloo's threads abort one exit in some ten
"""


def ranks(folder: Path, lengths: list[int]) -> list[Any]:
    command = [sys.executable, "-c", RANK]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "store"), json.dumps(lengths)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
        )
        for rank in range(len(lengths))
    ]
    try:
        return [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_every_rank_takes_as_many_steps_as_the_longest(tmp_path: Path) -> None:
    longest, shortest, even = ranks(tmp_path, [5, 2, 5])
    assert longest == [[f"0.{number}", True] for number in range(5)]
    assert even == [[f"2.{number}", True] for number in range(5)]
    assert shortest == [["1.0", True], ["1.1", True], ["1.0", False], ["1.1", False], ["1.0", False]]


def test_a_rank_without_samples_is_lent_one(tmp_path: Path) -> None:
    first, empty, last = ranks(tmp_path, [2, 0, 1])
    assert [counts for _, counts in first] == [True, True]
    assert empty == [["0.0", False], ["0.0", False]]
    assert last == [["2.0", True], ["2.0", False]]


OTHERS: list[tuple[str, dict[str, Any], str]] = [
    ("tar", {"shard": Shard(0, 2)}, "shares 1, not 2"),
    ("lines", {}, "channel 'tar', not 'lines'"),
    ("tar", {"reading": Reading(seed=8, block=10)}, "seed 7, not 8"),
    ("tar", {"reading": Reading(seed=7, block=9)}, "block 10, not 9"),
    ("tar", {"reading": None}, "seed 7, not None"),
    ("tar", {"format": "objects"}, "format"),
]


@pytest.mark.parametrize(("name", "how", "told"), OTHERS)
def test_a_state_of_something_else_is_refused(
    environment: Environment, name: str, how: dict[str, Any], told: str
) -> None:
    with closing(open_channel("tar", environment=environment, shard=Shard(0, 1), reading=SHUFFLED)) as samples:
        next(samples)
        state = samples.state_dict()
    how = {"shard": Shard(0, 1), "reading": SHUFFLED, **how}
    with closing(open_channel(name, environment=environment, **how)) as samples, pytest.raises(ChannelError) as refused:
        samples.load_state_dict(state)
    assert told in str(refused.value)


@pytest.mark.parametrize("place", [0, 0.5, 1])
@pytest.mark.parametrize("reading", [None, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", ["lines", "tar"])
def test_other_objects_than_when_the_state_was_taken_are_refused(
    environment: Environment, name: str, reading: Reading | None, place: float
) -> None:
    """Nothing is repeated and nothing left out silently: in order, objects may change beyond the one that is being read."""
    with closing(open_channel(name, environment=environment, reading=reading)) as samples:
        before = [(text_of(sample), samples.state_dict()) for sample in samples]
    paths = sorted(path for path in environment.channels[name].path.rglob("*") if path.is_file())
    paths[round(place * (len(paths) - 1))].unlink()
    left = set(texts(environment, name))
    refused = 0
    for count, (_, state) in enumerate(before, 1):
        given = {text for text, _ in before[:count]}
        with closing(open_channel(name, environment=environment, reading=reading)) as samples:
            samples.load_state_dict(state)
            try:
                rest = list(map(text_of, samples))
            except ChannelError as error:
                assert "the data has changed; restart the epoch" in str(error)
                refused += 1
                continue
        assert given.isdisjoint(rest) and left <= given.union(rest), count
    assert refused or (reading is None and place == 1)


@pytest.mark.parametrize("broken", [{}, {"version": 2, "epoch": 0}, {"object": "x"}, {"object": None}])
def test_a_broken_state_is_refused(environment: Environment, broken: dict[str, Any]) -> None:
    with closing(open_channel("tar", environment=environment)) as samples:
        whole = samples.state_dict()
        with pytest.raises(ChannelError, match="the state does not match this reading"):
            samples.load_state_dict({**whole, **broken} if "object" in broken else broken)
        next(samples)
        with pytest.raises(ChannelError, match="before the first sample is read"):
            samples.load_state_dict(whole)


@pytest.mark.parametrize("make", ["dataset", "threads", "mixture"])
def test_the_state_of_an_epoch_that_has_not_begun_is_its_beginning(environment: Environment, make: str) -> None:
    dataset: Any = (
        mixture(environment) if make == "mixture" else ChannelDataset("tar", transform=text_of, environment=environment)
    )
    loader: Any = threads_of(dataset) if make == "threads" else dataset
    list(loader)
    dataset.set_epoch(1)
    states = [loader.state_dict()]
    iterator = iter(loader)
    states.append(loader.state_dict())
    iterator.close()
    whole = list(loader)
    for state in states:
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert list(loader) == whole != []


def test_a_pipe_is_not_mixed_among_several_readers(tmp_path: Path) -> None:
    config = tmp_path / "input/config"
    config.mkdir(parents=True)
    entry = {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated", "ContentType": "text/plain"}
    (config / "inputdataconfig.json").write_text(json.dumps({"p": entry, "q": entry}))
    environment = load_environment(tmp_path, {})
    parts = {ChannelDataset(name, environment=environment): 1.0 for name in ("p", "q")}
    with pytest.raises(ChannelError, match="a Pipe in a mixture must have one reader per host"):
        MixedDataset(parts).samples(0, 2)
