"""The ThreadLoader: how it is left, which states it refuses, what its errors say, and ranks that end at different times."""

from __future__ import annotations

import json
import pickle
import threading
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from sagemaker_channels import MountedMapDataset
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.order.sampling import Reading
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.mixed import MixedDataset

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 asks torch 2.13 for it


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Channel `files` of 60 objects of 3 lines, and `one` of a single object."""
    for channel, objects in (("files", 60), ("one", 1)):
        folder = tmp_path / "input/data" / channel
        folder.mkdir(parents=True)
        for number in range(objects):
            (folder / f"{number:02}.txt").write_text("".join(f"{number}-{line}\n" for line in range(3)))
    (tmp_path / "input/config").mkdir()
    entry = {"TrainingInputMode": "File", "ContentType": "text/plain"}
    (tmp_path / "input/config/inputdataconfig.json").write_text(json.dumps({"files": entry, "one": entry}))
    return load_environment(tmp_path, {})


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["data"]).decode()


def loader_of(environment: Environment, threads: int = 2, **how: Any) -> ThreadLoader:
    dataset = ChannelDataset("files", transform=text_of, environment=environment, **how)
    return ThreadLoader(dataset, 4, threads=threads, collate=list)


def test_threads_use_one_core_each_and_change_nothing_for_others(environment: Environment) -> None:
    before, others = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        dataset = ChannelDataset("files", transform=lambda _: torch.get_num_threads(), environment=environment)
        assert {cores for batch in ThreadLoader(dataset, 4, threads=2, collate=list) for cores in batch} == {1}
        assert torch.get_num_threads() == 3
        later = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert others == [3]
    finally:
        torch.set_num_threads(before)


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
    batches = iter(ThreadLoader(dataset, batch_size, threads=2, collate=list))
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


def test_states_of_something_else_are_refused_by_name(environment: Environment) -> None:
    dataset = loader_of(environment).dataset
    mixed = MixedDataset({ChannelDataset("files", environment=environment): 1.0})
    whole = state_of(loader_of(environment))
    refused: list[tuple[Any, str]] = [
        (state_of(dataset), "a ChannelDataset's"),
        (state_of(mixed), "a MixedDataset's"),
        (state_of(StatefulDataLoader(dataset, 4, collate_fn=list)), "a StatefulDataLoader's"),
        (state_of(StatefulDataLoader(dataset, 4, collate_fn=list, num_workers=1)), "a StatefulDataLoader's"),
        ({}, "this is {}, without an epoch"),
        (None, "this is None, without"),
        ([1], r"this is \[1\], without"),
        ({"model": 1, "optimizer": 2}, "this is 'model', 'optimizer', without"),
        ({"epoch": "x"}, "without an epoch"),
        ({"epoch": -1}, "without an epoch"),
        ({**whole, "turn": 9}, "turn is missing"),
        ({**whole, "ended": [7]}, "turn is missing"),
        ({**whole, "threads": [None, None]}, "turn is missing"),
        ({"epoch": 0, "threads": whole["threads"]}, "turn is missing"),
    ]
    for state, what in refused:
        with pytest.raises(ChannelError, match=f"a ThreadLoader resumes only from .*{what}.*restart the epoch"):
            loader_of(environment).load_state_dict(state)


def test_state_of_a_thread_loader_is_loaded(environment: Environment) -> None:
    fresh = loader_of(environment)
    fresh.dataset.set_epoch(3)
    assert fresh.state_dict() == {"epoch": 3}
    again = loader_of(environment)
    again.load_state_dict(fresh.state_dict())
    assert again.dataset.epoch == 3
    whole = list(again)
    assert sum(map(len, whole)) == 180
    again.load_state_dict(json.loads(json.dumps(state_of(fresh))))
    assert list(again) == whole[1:]


def fails_at_seven(sample: dict[str, Any]) -> str:
    text = text_of(sample)
    if text == "7-1":
        raise KeyError("no label")
    return text


def traceback_of(loader: Any) -> tuple[str, str]:
    try:
        list(loader)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return type(error).__name__, "".join(traceback.format_exception(error))
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("reading", [None, Reading(seed=1, block=10)], ids=["", "shuffled"])
def test_transform_error_names_the_sample(environment: Environment, reading: Reading | None) -> None:
    dataset = ChannelDataset("files", transform=fails_at_seven, environment=environment, reading=reading)
    stands = "it ends at position 8 of object 7" if reading is None else "the next one is sample"
    for loader in (dataset, ThreadLoader(dataset, 4, threads=1), MixedDataset({dataset: 1.0})):
        kind, text = traceback_of(loader)
        assert kind == "KeyError"
        assert f"in the transform of a sample of channel 'files' with the key '07.txt'; {stands}" in text
        assert "raise KeyError" in text, "the traceback is the transform's own"


def test_reading_error_names_no_sample(environment: Environment) -> None:
    dataset = ChannelDataset("files", "recordio", transform=text_of, environment=environment)
    for loader in (dataset, ThreadLoader(dataset, 4, threads=1)):
        kind, text = traceback_of(loader)
        assert kind == "CorruptError"
        assert "in the transform" not in text


def test_transform_that_raises_stop_iteration_does_not_end_the_epoch(environment: Environment) -> None:
    def stops(sample: dict[str, Any]) -> str:
        return next(iter(()))

    dataset = ChannelDataset("files", transform=stops, environment=environment)
    for loader in (dataset, ThreadLoader(dataset, 4), MixedDataset({dataset: 1.0})):
        kind, text = traceback_of(loader)
        assert kind == "RuntimeError"
        assert "with the key" in text


def test_dataset_that_threads_cannot_share_is_refused(environment: Environment) -> None:
    with pytest.raises(TypeError, match=r"not a MountedMapDataset; use torch's DataLoader, or a ChannelDataset"):
        ThreadLoader(MountedMapDataset("files", environment=environment))  # type: ignore[arg-type]


def test_rank_that_has_run_out_stays_in_the_others_epoch(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rank(number: int) -> ThreadLoader:
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setenv("WORLD_SIZE", "2")
        dataset = ChannelDataset("one", transform=text_of, environment=environment)
        return ThreadLoader(dataset, 1, threads=2, collate=list)

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
