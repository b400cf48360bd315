"""The WorkerLoader, and what a DataLoader or a StatefulDataLoader with worker processes does with states of ours."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
import pytest
from torch.utils.data import DataLoader, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

from format_channels import lines_channel
from patience import wait_for
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.map import ChannelMapDataset
from sagemaker_channels.torch_data.worker_loader import WorkerLoader

HOW: dict[str, dict[str, Any]] = {
    "0": {},
    "1": {"num_workers": 1},
    "2": {"num_workers": 2},
    "3": {"num_workers": 3},
    "persistent": {"num_workers": 2, "persistent_workers": True},
}
# Each worker takes 0.1 s, and the number matters where it changes.
KINDS = pytest.mark.parametrize("how", ["0", "2", "persistent"])


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A channel of 47 lines in 11 objects."""
    monkeypatch.syspath_prepend(Path(__file__).parent)  # where spawn finds this module again
    environment = lines_channel(tmp_path, "lines", 11, 4)
    (environment.channels["lines"].path / "more.txt").write_text("m-0\nm-1\nm-2\n")
    return environment


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["data"]).decode()


def as_list(batch: list[str]) -> list[str]:
    return batch


def dataset_of(environment: Environment, is_mixed: bool = False) -> Any:
    dataset = ChannelDataset("lines", transform=text_of, seed=3, block=5, environment=environment)
    return MixedDataset([dataset, dataset]) if is_mixed else dataset


def loader_of(environment: Environment, how: str, is_mixed: bool = False, **more: Any) -> WorkerLoader:
    return WorkerLoader(dataset_of(environment, is_mixed), 4, collate_fn=as_list, **HOW[how], **more)


def texts(batches: Iterable[list[str]]) -> list[str]:
    return [text for batch in batches for text in batch]


@KINDS
def test_batches_are_those_of_a_plain_loader_in_each_epoch(environment: Environment, how: str) -> None:
    loader = loader_of(environment, how)
    plain: Any = DataLoader(dataset_of(environment), 4, collate_fn=as_list, **HOW[how])
    epochs = [list(loader) for _ in range(3)]
    assert epochs == [list(plain) for _ in range(3)]
    assert len({*map(str, epochs)}) == 3
    assert {len(texts(epoch)) for epoch in epochs} == {len({*texts(epoch)}) for epoch in epochs} == {47}
    assert loader.stream.epoch == loader.dataset.epoch == 3
    assert not hasattr(loader.dataset, "__len__")  # nor __getstate__, which pickle calls so in Python 3.10


class Decode:
    def __call__(self, sample: Any) -> Any:
        return sample

    def method(self, sample: Any) -> Any:
        return sample


def decode(sample: Any) -> Any:
    return sample


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers not see `Decode` and `decode`."""
    for each in (Decode, decode):
        monkeypatch.setattr(each, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], each.__name__, each, raising=False)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)


@pytest.mark.parametrize(
    ("dataset", "loader"),
    [
        ({"transform": decode}, {}),
        ({"transform": partial(decode)}, {}),
        ({"transform": Decode()}, {}),
        ({"transform": Decode().method}, {}),
        ({"transform": partial(map, decode)}, {}),
        ({"keeps": decode}, {}),
        ({}, {"collate_fn": decode}),
        ({}, {"worker_init_fn": decode}),
    ],
)
def test_function_of_a_notebook_is_an_error_if_workers_do_not_fork(
    environment: Environment, notebook: None, dataset: dict[str, Any], loader: dict[str, Any]
) -> None:
    """As on macOS, and by default since Python 3.14, whose workers only `exited unexpectedly`."""
    found = ChannelDataset("lines", transform=dataset.get("transform"), environment=environment)
    found = found.filter(dataset["keeps"]) if "keeps" in dataset else found
    spawned: dict[str, Any] = {"num_workers": 1, **loader}
    for kind, method in ((WorkerLoader, "spawn"), (DataLoader, "forkserver")):
        with pytest.raises(
            ChannelError, match=r"do not see '[Dd]ecode' of this notebook.*; use a ThreadLoader, or import"
        ):
            next(iter(kind(found, 4, multiprocessing_context=method, **spawned)))


def test_function_of_a_notebook_is_known_to_forked_workers_and_seen_in_a_map_dataset(
    environment: Environment, notebook: None
) -> None:
    dataset = ChannelDataset("lines", transform=decode, environment=environment)
    assert len([*WorkerLoader(dataset, 47, collate_fn=as_list, num_workers=1, multiprocessing_context="fork")]) == 1
    objects = ChannelMapDataset("lines", decode, environment=environment)
    with pytest.raises(ChannelError, match="do not see 'decode' of this notebook"):
        next(iter(DataLoader(objects, num_workers=1, multiprocessing_context="spawn")))


def test_handles_and_arrays_are_sent_to_spawned_workers_of_a_notebook(environment: Environment, notebook: None) -> None:
    """A handle can be sent only once, and arrays can be large."""
    held = multiprocessing.get_context("spawn").Value("i", 3), numpy.zeros(3)
    dataset = ChannelDataset("lines", environment=environment)
    loader = DataLoader(
        dataset, 47, collate_fn=partial(as_list_with, held), num_workers=1, multiprocessing_context="spawn"
    )
    assert len([*loader]) == 1


def as_list_with(_: Any, samples: list[Any]) -> list[Any]:
    return samples


def sets_transform(_: int) -> None:
    info: Any = get_worker_info()
    info.dataset.transform = text_of


def test_transform_can_be_set_in_the_loaders_dataset_and_by_a_worker_init_fn(environment: Environment) -> None:
    dataset = ChannelDataset("lines", environment=environment)
    loader = WorkerLoader(dataset, 4, collate_fn=as_list, num_workers=1, worker_init_fn=sets_transform)
    assert len({*texts(loader)}) == 47
    loader = WorkerLoader(dataset, 4, collate_fn=as_list)
    loader.dataset.transform = text_of
    assert len({*texts(loader)}) == 47


def test_spawned_workers_make_the_same_batches(environment: Environment) -> None:
    """Each begins by importing torch."""
    whole = list(loader_of(environment, "1"))
    first = loader_of(environment, "1")
    begun = list(islice(first, 3))
    spawned = loader_of(environment, "1", multiprocessing_context="spawn")
    spawned.load_state_dict(first.state_dict())
    assert begun + list(spawned) == whole


@KINDS
def test_drop_last_drops_the_incomplete_batch_of_each_worker(environment: Environment, how: str) -> None:
    whole = list(loader_of(environment, how))
    assert list(loader_of(environment, how, drop_last=True)) == [batch for batch in whole if len(batch) == 4]


@pytest.mark.parametrize("is_mixed", [False, True], ids=["", "mixed"])
@KINDS
def test_resumed_after_any_batch_continues_in_the_same_order(
    environment: Environment, how: str, is_mixed: bool
) -> None:
    whole_loader = loader_of(environment, how, is_mixed)
    whole, following = list(whole_loader), list(whole_loader)
    for steps in range(len(whole) + 1) if how == "0" else (1, len(whole) // 2, len(whole) - 1, len(whole)):
        loader, again = loader_of(environment, how, is_mixed), loader_of(environment, how, is_mixed)
        first = list(islice(loader, steps)) if steps < len(whole) else list(loader)
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        if steps < len(whole):
            assert first + list(again) == whole
        assert list(again) == following


@pytest.mark.parametrize(("before", "after"), [("2", "0"), ("0", "3"), ("2", "3"), ("3", "1")])
@pytest.mark.parametrize("is_mixed", [False, True], ids=["", "mixed"])
def test_resumed_by_another_number_of_workers_yields_each_sample_once(
    environment: Environment, before: str, after: str, is_mixed: bool
) -> None:
    expected = sorted(texts(loader_of(environment, "0", is_mixed)))
    for steps in (1, 5) if "0" in (before, after) else (5,):
        loader, again = loader_of(environment, before, is_mixed), loader_of(environment, after, is_mixed)
        first = texts(islice(loader, steps))
        again.load_state_dict(loader.state_dict())
        second = texts(islice(again, 2))
        state = again.state_dict()  # two deals
        assert sorted(first + second + texts(after_state(environment, state, before, is_mixed))) == expected
        assert sorted(texts(again)) == expected, "the loop was left, so the epoch begins again"


def after_state(environment: Environment, state: Any, how: str, is_mixed: bool) -> WorkerLoader:
    loader = loader_of(environment, how, is_mixed)
    loader.load_state_dict(state)
    return loader


@KINDS
def test_loop_that_is_left_early_begins_its_epoch_again(environment: Environment, how: str) -> None:
    whole = list(loader_of(environment, how))
    loader = loader_of(environment, how)
    for steps in (1, 3):
        assert list(islice(loader, steps)) == whole[:steps]
        assert after_state(environment, loader.state_dict(), how, False).stream.epoch == 0
    assert list(loader) == whole
    assert loader.stream.epoch == 1


def test_state_loaded_into_running_persistent_workers_is_not_lost(environment: Environment) -> None:
    """Unlike a plain DataLoader, it knows of the state and starts its workers again."""
    loader = loader_of(environment, "persistent")
    whole = list(loader)
    following = list(loader)
    other = loader_of(environment, "2")
    first = list(islice(other, 3))
    loader.load_state_dict(other.state_dict())
    assert first + list(loader) == whole
    assert list(loader) == following


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_loop_after_persistent_workers_got_a_signal_is_whole(environment: Environment, number: int) -> None:
    """A notebook's interrupt goes to them, too; a job on a machine without memory loses one."""
    loader = loader_of(environment, "persistent")
    batches = iter(loader)
    next(batches), next(batches)
    killed = multiprocessing.active_children()[: 1 if number == signal.SIGKILL else 2]
    with pytest.raises(RuntimeError, match="exited") if number == signal.SIGKILL else nullcontext():
        for worker in killed:
            os.kill(worker.pid or 0, number)
        list(batches)
    loader.set_epoch(0)
    assert len({*texts(loader)}) == 47
    assert number != signal.SIGINT or {*killed} == {*multiprocessing.active_children()}


def test_persistent_workers_of_a_plain_loader_refuse_a_state_that_they_do_not_know(environment: Environment) -> None:
    dataset = dataset_of(environment)
    plain: Any = DataLoader(dataset, 4, collate_fn=as_list, num_workers=2, persistent_workers=True)
    assert len(texts(plain)) == 47
    begun = dataset_of(environment)
    next(iter(begun))
    dataset.load_state_dict(begun.state_dict())
    with pytest.raises(ChannelError, match="load it before the first loop, or use persistent_workers=False"):
        list(plain)


@pytest.mark.parametrize("workers", [0, 2])
def test_plain_loader_continues_at_a_state_of_its_dataset(environment: Environment, workers: int) -> None:
    how = {"2": 2}.get(str(workers), 0)
    begun = loader_of(environment, str(how))
    whole, following = list(begun), list(begun)
    begun.set_epoch(0)
    first = list(islice(begun, 4))
    plain: Any = DataLoader(dataset_of(environment), 4, collate_fn=as_list, num_workers=workers)
    plain.dataset.load_state_dict(begun.state_dict())
    assert sorted(texts(first + list(plain))) == sorted(texts(whole))
    assert list(plain) == following


@pytest.mark.parametrize("workers", [1, 2])
def test_dataset_has_no_state_after_workers_have_read_ahead_to_the_end(environment: Environment, workers: int) -> None:
    """The loop gets its second batch after all workers have ended: the next epoch's state would lose the others."""
    dataset = dataset_of(environment)
    batches = iter(DataLoader(dataset, 12, collate_fn=as_list, num_workers=workers, prefetch_factor=8))
    next(batches)
    deadline = time.monotonic() + 60
    while dataset.epoch == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dataset.epoch == 1
    with pytest.raises(ChannelError, match=r"after the end of an epoch .* call set_epoch before state_dict"):
        dataset.state_dict()
    assert len(list(batches)) == 3
    dataset.set_epoch(1)
    assert dataset.state_dict()["epoch"] == 1


def test_stateful_data_loader_with_workers_is_refused_with_its_remedy(environment: Environment) -> None:
    loader: Any = StatefulDataLoader(dataset_of(environment), 4, collate_fn=as_list, num_workers=2)
    with pytest.raises(
        ChannelError, match=r"take the state_dict\(\) of a ThreadLoader or WorkerLoader of this dataset"
    ):
        next(iter(loader))


def test_stateful_data_loader_without_workers_resumes_after_any_batch(environment: Environment) -> None:
    def made() -> Any:
        return StatefulDataLoader(dataset_of(environment), 4, collate_fn=as_list)

    whole_loader = made()
    whole, following = list(whole_loader), list(whole_loader)
    for steps in range(1, len(whole)):
        loader, again = made(), made()
        batches = iter(loader)
        first = list(islice(batches, steps))
        again.load_state_dict(loader.state_dict())
        assert first + list(again) == whole
        assert list(again) == following


class _LateWorker(ChannelDataset):
    """Its worker 0 begins late."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        if info is not None and info.id == 0:
            time.sleep(0.5)
        yield from super().__iter__()


def test_worker_that_begins_late_after_a_left_loop_reads_the_same_epoch(tmp_path: Path) -> None:
    """That it has ended the left loop must not count for the next one, which the other worker ends before it begins."""
    environment = lines_channel(tmp_path, "lines", 2, 3)
    (environment.channels["lines"].path / "1.txt").write_text("".join(f"1-{number}\n" for number in range(60)))
    dataset = _LateWorker("lines", transform=text_of, seed=3, block=1, environment=environment)
    [order, other] = [[*dict.fromkeys(text[0] for text in dataset)] for _ in range(2)]
    assert (order, other) == (["0", "1"], ["1", "0"]), "each worker reads another object in the next epoch"
    dataset.set_epoch(0)
    loader: Any = DataLoader(
        dataset,
        4,
        collate_fn=as_list,
        num_workers=2,
        persistent_workers=True,
        in_order=False,
    )
    next(iter(loader))
    time.sleep(1.5)  # Worker 0 ends; worker 1 is not asked for its last batches.
    assert dataset.epoch == 0
    assert len({*texts(loader)}) == 63


def test_failed_loop_is_freed_without_the_garbage_collector(environment: Environment) -> None:
    loader = WorkerLoader(
        ChannelDataset("lines", format="recordio", environment=environment), 4, collate_fn=as_list, **HOW["2"]
    )
    alive = weakref.ref(loader.dataset)
    gc.disable()
    try:
        with suppress(ChannelError):
            list(loader)
        del loader
        wait_for(lambda: alive() is None)
    finally:
        gc.enable()
