"""The ThreadLoader: how it is left, which states it refuses, what its errors say, and ranks that end at different times."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from format_channels import LINES, configured
from patience import wait_for
from sagemaker_channels import ChannelError, ChannelMapDataset
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sources.silence import warn_once
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.worker_loader import WorkerLoader


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Channel `files` of 60 objects of 3 lines, and `one` of a single object."""
    environment = configured(tmp_path, files=LINES, one=LINES)
    for channel, objects in (("files", 60), ("one", 1)):
        for number in range(objects):
            text = "".join(f"{number}-{line}\n" for line in range(3))
            (environment.data_dir / channel / f"{number:02}.txt").write_text(text)
    return environment


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["data"]).decode()


def loader_of(environment: Environment) -> ThreadLoader:
    dataset = ChannelDataset("files", transform=text_of, environment=environment)
    return ThreadLoader(dataset, 4, num_workers=2, collate_fn=list)


def test_threads_use_one_core_each_and_change_nothing_for_others(environment: Environment) -> None:
    before, others = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        dataset = ChannelDataset("files", transform=lambda _: torch.get_num_threads(), environment=environment)
        assert {cores for batch in ThreadLoader(dataset, 4, num_workers=2, collate_fn=list) for cores in batch} == {1}
        assert torch.get_num_threads() == 3
        later = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert others == [3]
    finally:
        torch.set_num_threads(before)


def test_thread_that_reads_a_sample_also_transforms_it(environment: Environment) -> None:
    """Its core's cache has the sample, and `num_workers` is the number of threads."""

    def read(sample: dict[str, Any]) -> bool:
        sample["thread"] = threading.get_ident()
        return True

    def is_same(sample: dict[str, Any]) -> bool:
        return bool(sample["thread"] == threading.get_ident())

    dataset = ChannelDataset("files", transform=is_same, environment=environment).filter(read)
    assert [*chain(*ThreadLoader(dataset, 4, num_workers=2, collate_fn=list))] == [True] * 180


def test_leaving_a_loop_does_not_wait_for_whole_batches(environment: Environment) -> None:
    batch_size, left, transformed = 40, threading.Event(), Counter[threading.Thread]()
    at_next_batch = threading.Semaphore(0)

    def held_after_a_batch(sample: dict[str, Any]) -> str:
        thread = threading.current_thread()
        transformed[thread] += 1
        if transformed[thread] == batch_size + 1:
            at_next_batch.release()
            assert left.wait(600)
        return text_of(sample)

    dataset = ChannelDataset("files", transform=held_after_a_batch, environment=environment)
    batches: Any = iter(ThreadLoader(dataset, batch_size, num_workers=2, collate_fn=list))
    next(batches)
    assert all(at_next_batch.acquire(timeout=600) for _ in range(2))
    batches.close()
    left.set()
    for thread in list(transformed):
        thread.join(600)
    assert list(transformed.values()) == [batch_size + 1] * 2, "only what was on its way"


def state_of(loader: Any) -> Any:
    batches = iter(loader)
    next(batches)
    return loader.state_dict()


def test_fresh_state_is_of_the_epoch_that_was_set(environment: Environment) -> None:
    fresh = loader_of(environment)
    fresh.dataset.set_epoch(3)
    state = fresh.state_dict()
    assert (state["epoch"], state["at"]) == (3, {"0": {"at": [0, 0]}})
    again = loader_of(environment)
    again.load_state_dict(state)
    assert again.dataset.epoch == 3
    whole = list(again)
    assert sum(map(len, whole)) == 180
    again.load_state_dict(json.loads(json.dumps(state_of(fresh))))
    assert list(again) == whole[1:]


READERS: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda dataset: dataset,
    "threads": lambda dataset: ThreadLoader(dataset, 4, num_workers=2, collate_fn=list),
    "two readers": lambda dataset: ThreadLoader(dataset, 4, num_workers=2, readers=2, collate_fn=list),
    "no workers": lambda dataset: WorkerLoader(dataset, 4, collate_fn=list),
    "workers": lambda dataset: WorkerLoader(dataset, 4, collate_fn=list, num_workers=2),
}


@pytest.mark.parametrize(
    ("first", "then", "is_mixed"),
    [
        *((first, then, False) for first in READERS for then in READERS),
        *((name, name, True) for name in READERS),
        *((first, then, True) for first, then in pairwise([*READERS, "dataset"])),
    ],
)
def test_state_of_any_reader_loads_into_any_other(
    environment: Environment, first: str, then: str, is_mixed: bool
) -> None:
    def made(reader: str) -> Any:
        dataset: Any = ChannelDataset("files", transform=text_of, environment=environment, seed=3, block=7)
        return READERS[reader](MixedDataset([dataset]) if is_mixed else dataset)

    begun, whole = made(first), made(first)
    before = samples_of(islice(begun, 11))
    resumed = made(then)
    resumed.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    after = samples_of(resumed)
    everything = samples_of(whole)
    assert len(everything) == 180
    assert sorted(before + after) == sorted(everything)
    if first == then or {first, then} <= {"dataset", "threads", "no workers"}:
        assert before + after == everything


def samples_of(batches: Iterable[Any]) -> list[str]:
    return [text for batch in batches for text in ([batch] if isinstance(batch, str) else batch)]


@pytest.mark.parametrize("of_dataset", [False, True])
@pytest.mark.parametrize("batches", [1, 45])
def test_loop_in_which_a_state_is_loaded_ends_with_an_error(
    environment: Environment, batches: int, of_dataset: bool
) -> None:
    """It would go on after the last batch with the next epoch, without what the state has left."""
    loader = loader_of(environment)
    loop = iter(loader)
    states = [loader.state_dict() for _ in islice(loop, batches)]
    (loader.dataset if of_dataset else loader).load_state_dict(states[0])
    assert loader.state_dict() == states[0]
    with pytest.raises(ChannelError, match="leave the loop after loading, and begin another one"):
        next(loop)
    assert sum(map(len, loader)) == 176


@pytest.mark.parametrize("reading", [{}, {"seed": 1}], ids=["", "shuffled"])
def test_rank_without_an_object_is_named_in_the_log(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    reading: dict[str, Any],
) -> None:
    """A rank that has nothing to read lets the others wait in the first collective call, with no hint."""
    warn_once.cache_clear()
    monkeypatch.setenv("WORLD_SIZE", "4")
    found = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        dataset = ChannelDataset("one", transform=text_of, environment=environment, **reading)
        found.append(sorted(text for batch in ThreadLoader(dataset, 4, collate_fn=list) for text in batch))
        said = capfd.readouterr().err
        assert said.startswith("channel 'one': there are fewer objects than the 4 parts" if rank == 1 else ""), rank
    assert found == [["0-0", "0-1", "0-2"], [], [], []]


@pytest.mark.parametrize("name", ["threads", "workers"])
def test_loader_can_be_copied_and_pickled_in_a_loop(environment: Environment, name: str) -> None:
    loader = READERS[name](ChannelDataset("files", transform=text_of, seed=1, environment=environment))
    whole, batches = list(loader), iter(loader)
    first = next(batches)
    for again in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        following = list(again)
        assert following[0] == first, "it starts the epoch again"
    assert [first, *batches] == following, "and the first one goes on"
    assert sorted(chain(*whole)) == sorted(chain(*following))


def test_threads_are_no_part_of_order_or_state(environment: Environment) -> None:
    """Batches are in the dataset's order with any number of threads, also if the first of them takes long."""

    def slow_first(sample: dict[str, Any]) -> str:
        text = text_of(sample)
        if text.startswith("0-"):
            time.sleep(0.1)
        return text

    dataset = ChannelDataset("files", transform=slow_first, environment=environment)
    whole = list(dataset)
    for threads in (0, 1, 2, 5):
        loader = ThreadLoader(dataset, 4, num_workers=threads, collate_fn=list)
        dataset.set_epoch(0)
        batches = iter(loader)
        first = samples_of(islice(batches, 3))
        states = loader.state_dict()
        assert first + samples_of(batches) == whole
        again = ChannelDataset("files", transform=text_of, environment=environment)
        again.load_state_dict(states)
        assert list(again) == whole[12:]


@pytest.mark.parametrize("how", [{}, {"seed": 3, "block": 7}, {"seed": 3, "block": 7, "shards": 4}], ids=str)
def test_two_readers_take_turns_and_resume_at_every_batch(environment: Environment, how: dict[str, Any]) -> None:
    def made() -> ThreadLoader:
        dataset = ChannelDataset("files", transform=text_of, environment=environment, **how)
        return ThreadLoader(dataset, 7, num_workers=3, readers=2, collate_fn=list)

    whole = list(made())
    assert sorted(samples_of(whole)) == sorted(ChannelDataset("files", transform=text_of, environment=environment))
    for steps in range(0, len(whole), 2):
        begun, again = made(), made()
        first = list(islice(begun, steps))
        again.load_state_dict(begun.state_dict())
        assert first + list(again) == whole


def fails_at_seven(sample: dict[str, Any]) -> str:
    text = text_of(sample)
    if text == "7-1":
        raise KeyError("no label")
    return text


def test_pin_memory_needs_no_name_that_torch_lacked_before_2_6(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "accelerator")
    loader = ThreadLoader(ChannelDataset("files", environment=environment), 60, collate_fn=list, pin_memory=True)
    assert sum(map(len, loader)) == 180


def traceback_of(loader: Any) -> tuple[str, str]:
    try:
        list(loader)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return type(error).__name__, "".join(traceback.format_exception(error))
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("reading", [{}, {"seed": 1, "block": 10}], ids=["", "shuffled"])
def test_transform_error_names_the_sample(environment: Environment, reading: dict[str, Any]) -> None:
    dataset = ChannelDataset("files", transform=fails_at_seven, environment=environment, **reading)
    for loader in (dataset, ThreadLoader(dataset, 4, num_workers=1), MixedDataset([dataset])):
        stands = "it ends at position 8 of object 7" if not reading else "it ends at sample"
        if isinstance(loader, ThreadLoader):
            stands = "it is number 3 of those from position 8 of object 6 on" if not reading else "it is"
        kind, text = traceback_of(loader)
        assert kind == "KeyError"
        assert (
            f"in the transform of a sample of channel 'files' with the key '07.txt', which has the fields __key__, data; {stands}"
            in text
        )
        assert "raise KeyError" in text, "the traceback is the transform's own"


@pytest.mark.parametrize("fails", ["reading", "transform"])
def test_failed_loop_is_freed_without_the_garbage_collector(environment: Environment, fails: str) -> None:
    form = "recordio" if fails == "reading" else None
    dataset = ChannelDataset("files", format=form, transform=fails_at_seven, environment=environment)
    loader = ThreadLoader(dataset, 4, num_workers=2, collate_fn=list)
    alive = weakref.ref(dataset)
    gc.disable()
    try:
        traceback_of(loader)
        del dataset, loader
        wait_for(lambda: alive() is None)
    finally:
        gc.enable()


def test_reading_error_names_no_sample(environment: Environment) -> None:
    dataset = ChannelDataset("files", format="recordio", transform=text_of, environment=environment)
    for loader in (dataset, ThreadLoader(dataset, 4, num_workers=1)):
        kind, text = traceback_of(loader)
        assert kind == "CorruptError"
        assert "in the transform" not in text


def test_transform_that_raises_stop_iteration_does_not_end_the_epoch(environment: Environment) -> None:
    def stops(sample: dict[str, Any]) -> str:
        return next(iter(()))

    dataset = ChannelDataset("files", transform=stops, environment=environment)
    for loader in (dataset, ThreadLoader(dataset, 4), MixedDataset([dataset])):
        kind, text = traceback_of(loader)
        assert kind == "RuntimeError"
        assert "with the key" in text


def test_dataset_that_threads_cannot_share_is_refused(environment: Environment) -> None:
    with pytest.raises(TypeError, match=r"not a ChannelMapDataset; use torch's DataLoader, or a ChannelDataset"):
        ThreadLoader(ChannelMapDataset("files", environment=environment))  # type: ignore[arg-type]


class _Doubled(ChannelDataset):
    def __iter__(self) -> Any:
        return (2 * text for text in super().__iter__())


@pytest.mark.parametrize("loader", [ThreadLoader, WorkerLoader])
def test_dataset_whose_own_iter_would_not_be_called_is_refused(environment: Environment, loader: Any) -> None:
    with pytest.raises(TypeError, match=r"not a _Doubled with an __iter__ of its own; use torch's DataLoader, or"):
        loader(_Doubled("files", transform=text_of, environment=environment))


def test_rank_that_has_run_out_stays_in_the_others_epoch(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rank(number: int) -> ThreadLoader:
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setenv("WORLD_SIZE", "2")
        dataset = ChannelDataset("one", transform=text_of, environment=environment)
        return ThreadLoader(dataset, 1, num_workers=2, collate_fn=list)

    reading, ended = rank(0), rank(1)
    for loader in (reading, ended):
        loader.dataset.set_epoch(2)
    batches = iter(reading)
    assert next(batches) == ["0-0"]
    assert list(ended) == [], "the channel's one object is the other rank's"
    states = [pickle.dumps(loader.state_dict()) for loader in (reading, ended)]
    again = [rank(0), rank(1)]
    for loader, state in zip(again, states, strict=True):
        loader.load_state_dict(pickle.loads(state))
        assert loader.dataset.epoch == 2
    assert [list(loader) for loader in again] == [[["0-1"], ["0-2"]], []]


@pytest.mark.parametrize("reader", ["dataset", "threads", "no workers"])
def test_finished_epoch_that_is_set_again_after_loading_has_nothing_left(environment: Environment, reader: str) -> None:
    """A script that was stopped after the epoch's last batch, and counts epochs itself, must not train on it again."""
    ended = READERS[reader](ChannelDataset("files", transform=text_of, environment=environment))
    whole = list(ended)
    state = ended.state_dict()
    for epochs in ([1, 0], [0, 0, 1]):
        dataset = ChannelDataset("files", transform=text_of, environment=environment)
        again = READERS[reader](dataset)
        again.load_state_dict(state)
        assert dataset.epoch == 1
        found = []
        for epoch in epochs:
            dataset.set_epoch(epoch)
            found.append(list(again))
        assert found == [whole if epoch or number else [] for number, epoch in enumerate(epochs)]
