"""A state of an epoch that was read to its end: nothing of it is left, the next epoch is whole; with everything that has states."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from entrypoints import contract
from entrypoints.channel import open_channel
from entrypoints.environment import Environment, load_environment
from entrypoints.errors import ChannelError
from entrypoints.sampling import Reading
from entrypoints.sharding import Share
from entrypoints.torch_dataset import ChannelDataset, MixedDataset
from entrypoints.torch_loader import ThreadLoader
from pipe_feeder import Feeder, brokers, in_threads, make_root, wait_for

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11 asks torch 2.13 for it
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.timeout(120),
]
SHUFFLED = Reading(seed=7, block=10)
LINES = [f"{shard}-{number}" for shard in range(7) for number in range(10)]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A channel of 7 objects of 10 lines each."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "input/data/files"
    folder.mkdir(parents=True)
    for shard in range(7):
        (folder / f"{shard}.txt").write_text("".join(f"{shard}-{number}\n" for number in range(10)))
    (tmp_path / "input/config").mkdir()
    entry = {"TrainingInputMode": "File", "ContentType": "text/plain"}
    (tmp_path / "input/config/inputdataconfig.json").write_text(json.dumps({"files": entry}))
    return load_environment(tmp_path, {})


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["data"]).decode()


def of_files(environment: Environment) -> ChannelDataset:
    return ChannelDataset("files", transform=text_of, environment=environment, reading=SHUFFLED)


def stateful(workers: int, **options: Any) -> Callable[[Any], Any]:
    return lambda dataset: StatefulDataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=list, **options)


LOADERS: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda dataset: dataset,
    "threads": lambda dataset: ThreadLoader(dataset, 4, threads=2, collate=list),
    "stateful": stateful(0),
    "workers": stateful(2),
    "persistent workers": stateful(2, persistent_workers=True),
}


def given(loader: Any) -> list[str]:
    return [text for batch in loader for text in ([batch] if isinstance(batch, str) else batch)]


def dataset_of(loader: Any) -> Any:
    return getattr(loader, "dataset", loader)


def read(loader: Any, epoch: int | None) -> list[str]:
    if epoch is not None:
        dataset_of(loader).set_epoch(epoch)
    return given(loader)


@pytest.mark.parametrize("mixed", [False, True], ids=["", "mixed"])
@pytest.mark.parametrize("name", LOADERS)
def test_nothing_is_left_and_the_next_epoch_is_whole(environment: Environment, name: str, mixed: bool) -> None:
    def make() -> Any:
        parts = [of_files(environment) for _ in range(2 if mixed else 1)]
        return LOADERS[name](MixedDataset(dict.fromkeys(parts, 1.0)) if mixed else parts[0])

    def resumed(epoch: int | None) -> tuple[Any, list[str]]:
        loader = make()
        loader.load_state_dict(pickle.loads(state))
        return loader, read(loader, epoch)

    first = make()
    whole = {epoch: read(first, epoch) for epoch in (3, 2)}
    assert len(whole[2]) == len(whole[3]) == 70 * (1 + mixed)
    assert whole[2] != whole[3]
    state = pickle.dumps(first.state_dict())
    assert resumed(3)[1] == whole[3]
    assert resumed(None)[1] == whole[3]
    loader, nothing = resumed(2)
    assert nothing == []
    assert read(loader, 3) == whole[3]
    assert read(first, 3) == whole[3]  # and so in the process that took it


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "dataset"])
def test_a_share_that_has_ended_before_the_others_stays_so(environment: Environment, name: str) -> None:
    whole = read(LOADERS[name](of_files(environment)), 1)
    for count in (15, 16, 17, 18):  # batches: of 40 samples in one share, and 30 in the other
        first = LOADERS[name](of_files(environment))
        dataset_of(first).set_epoch(1)
        iterator = iter(first)
        before = [text for _ in range(count) for text in next(iterator)]
        state = first.state_dict()
        again = LOADERS[name](of_files(environment))
        again.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert before + given(again) == whole


@pytest.mark.parametrize("name", ["threads", "stateful", "workers", "persistent workers"])
def test_a_rank_that_has_ended_before_the_others_waits_in_its_epoch(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else it would give the next epoch's samples where the others give what is left of this one."""
    for variable, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(variable, value)
    whole, left, resumed = (LOADERS[name](of_files(environment)) for _ in range(3))
    first, second = read(whole, 0), read(whole, 1)
    assert read(left, 0) == first
    resumed.load_state_dict(json.loads(json.dumps(left.state_dict())))
    assert given(resumed) == []
    assert read(resumed, 1) == second


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_what_was_dropped_at_its_end_brings_no_epoch_back(
    environment: Environment, workers: int, persistent: bool
) -> None:
    """The loader's state is of before the samples that make no whole batch, which its workers then read again."""

    def make() -> Any:
        how = {"batch_size": 8, "collate_fn": list, "drop_last": True, "persistent_workers": persistent}
        return StatefulDataLoader(of_files(environment), num_workers=workers, **how)

    first = make()
    whole = {epoch: read(first, epoch) for epoch in (3, 4, 2)}
    assert len(whole[2]) == 64
    state = pickle.dumps(first.state_dict())
    for epochs in ([2, 3], [3], [4, 4]):
        resumed = make()
        resumed.load_state_dict(pickle.loads(state))
        assert [read(resumed, epoch) for epoch in epochs] == [[] if epoch == 2 else whole[epoch] for epoch in epochs]
        del resumed


def test_who_does_not_count_epochs_gets_one_for_each_iteration(environment: Environment) -> None:
    first = LOADERS["workers"](of_files(environment))
    whole = read(first, 1)
    iterator = iter(first)
    before = [text for _ in range(9) for text in next(iterator)]
    resumed = LOADERS["workers"](of_files(environment))
    resumed.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert before + read(resumed, 1) == whole
    assert read(resumed, None) == whole


def test_samples_of_a_finished_epoch(environment: Environment) -> None:
    def opened() -> Any:
        return open_channel("files", environment=environment, share=Share(), reading=SHUFFLED)

    with closing(opened()) as samples:
        for _ in range(70):
            next(samples)
        assert not samples.finished  # for all one knows
        assert next(samples, None) is None
        assert samples.finished
        state = json.loads(json.dumps(samples.state_dict()))
    with closing(opened()) as samples:
        samples.load_state_dict(state)
        assert samples.state_dict() == state
        assert list(samples) == []
        assert samples.state_dict()["finished"]


@pytest.mark.parametrize(("object_number", "position"), [(8, 0), (7, 3), (10**9, 0)])
def test_a_state_beyond_the_last_object_is_refused(environment: Environment, object_number: int, position: int) -> None:
    def opened() -> Any:
        return open_channel("files", environment=environment, share=Share())

    with closing(opened()) as samples:
        state = {**samples.state_dict(), "object": object_number, "position": position}
    with closing(opened()) as samples:
        samples.load_state_dict(state)
        with pytest.raises(ChannelError, match="there are 7: the data has changed; begin the epoch anew"):
            next(samples)
    with closing(opened()) as samples:
        samples.load_state_dict({**state, "object": 7, "position": 0})  # the last has been given, the end not seen
        assert list(samples) == []


def pipe(root: Path, count: int) -> tuple[Environment, Feeder]:
    """A Pipe of so many lines: the number of the FIFO, and the line's."""
    root.mkdir()
    make_root(root)
    feeder = Feeder(root, "lines", lambda fifo: b"".join(b"%d-%d\n" % (fifo, number) for number in range(count)))
    return load_environment(root, {}), feeder


def leave(root: Path, feeder: Feeder) -> None:
    for process in brokers(root):
        os.kill(process, signal.SIGKILL)
    wait_for(lambda: not brokers(root))
    feeder.stop()


def of_pipe(environment: Environment) -> ChannelDataset:
    return ChannelDataset("lines", transform=text_of, environment=environment)


@pytest.mark.parametrize("name", LOADERS)
def test_of_a_pipe_in_a_new_container(tmp_path: Path, name: str) -> None:
    environment, feeder = pipe(tmp_path / "first", 61)
    first = LOADERS[name](of_pipe(environment))
    assert sorted(read(first, 2)) == sorted(f"0-{number}" for number in range(61))
    state = pickle.dumps(first.state_dict())
    assert sorted(read(first, 3)) == sorted(f"1-{number}" for number in range(61))
    leave(tmp_path / "first", feeder)
    plans: list[list[int | None]] = [[3], [None], [2, 3]]
    for number, epochs in enumerate(plans):
        root = tmp_path / str(number)
        environment, feeder = pipe(root, 61)
        loader = LOADERS[name](of_pipe(environment))
        loader.load_state_dict(pickle.loads(state))
        *nothing, following = [read(loader, epoch) for epoch in epochs]
        assert nothing in ([], [[]])
        [fifo] = {text.partition("-")[0] for text in following}
        assert sorted(following) == sorted(f"{fifo}-{number}" for number in range(61))
        leave(root, feeder)


@pytest.mark.parametrize("name", ["threads", "workers"])
def test_of_a_pipe_whose_shares_end_one_after_the_other(tmp_path: Path, name: str) -> None:
    environment, feeder = pipe(tmp_path / "first", 9)  # five samples and four: two batches and one
    first = LOADERS[name](of_pipe(environment))
    iterator = iter(first)
    before = [text for _ in range(2) for text in next(iterator)]
    states = [first.state_dict()]
    before.extend(next(iterator))
    states.append(first.state_dict())
    assert len(before) == 9
    leave(tmp_path / "first", feeder)
    for number, state in enumerate(states):
        root = tmp_path / str(number)
        environment, feeder = pipe(root, 9)
        loader = LOADERS[name](of_pipe(environment))
        loader.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert given(loader) == before[8 + number :]
        assert len(read(loader, 1)) == 9
        leave(root, feeder)


@pytest.mark.parametrize("reading", [None, SHUFFLED], ids=["", "shuffled"])
def test_of_a_pipe_whose_ranks_end_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: Reading | None
) -> None:
    """A StatefulDataLoader asks for nothing once a batch was its last, and the other rank waits for this one's share."""
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "10")
    given: dict[tuple[int, str], list[list[str]]] = {}

    def loaders(environment: Environment) -> Iterator[Any]:
        for rank in ("0", "1"):
            for variable, value in (
                ("RANK", rank),
                ("WORLD_SIZE", "2"),
                ("LOCAL_RANK", rank),
                ("LOCAL_WORLD_SIZE", "2"),
            ):
                monkeypatch.setenv(variable, value)
            dataset = ChannelDataset("lines", transform=text_of, environment=environment, reading=reading)
            yield stateful(0)(dataset)

    environment, feeder = pipe(tmp_path / "first", 27)  # 14 samples and 13: four batches each, the last of 2 and of 1
    first = [*loaders(environment)]
    in_threads(lambda rank: given.update({(rank, "before"): [*islice(first[rank], (1, 4)[rank])]}), 2)
    states = [pickle.dumps(loader.state_dict()) for loader in first]
    del first
    leave(tmp_path / "first", feeder)
    environment, feeder = pipe(tmp_path / "second", 27)
    resumed = [*loaders(environment)]
    for loader, state in zip(resumed, states, strict=True):
        loader.load_state_dict(pickle.loads(state))
    in_threads(lambda rank: given.update({(rank, "after"): [*resumed[rank]]}), 2)
    assert [len(given[rank, "after"]) for rank in (0, 1)] == [3, 0]
    assert sorted(text for batches in given.values() for batch in batches for text in batch) == sorted(
        f"0-{number}" for number in range(27)
    )
    leave(tmp_path / "second", feeder)


def test_a_state_of_a_longer_pipe_is_refused(tmp_path: Path) -> None:
    environment, feeder = pipe(tmp_path / "first", 61)
    share = Share(1, 2)
    with closing(open_channel("lines", environment=environment, share=share)) as samples:
        for _ in range(10):
            next(samples)
        state = samples.state_dict()
    feeder.stop()
    environment, feeder = pipe(tmp_path / "second", 9)
    with closing(open_channel("lines", environment=environment, share=share)) as samples:
        samples.load_state_dict(state)
        with pytest.raises(ChannelError, match="10 samples of this share were begun, but there are 4"):
            next(samples)
    feeder.stop()
