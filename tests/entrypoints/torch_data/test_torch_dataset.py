"""Channels as PyTorch datasets: workers, epochs, random access, ranks that run out at different times."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import traceback
import weakref
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from format_channels import LINES, configured
from patience import PATIENCE
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.map import ChannelMapDataset

REPOSITORY = Path(__file__).parents[3]


def number_of(sample: dict[str, Any]) -> int:
    """A transform that pickles by its name."""
    return int(sample["data"])


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """One host with 30 numbers in ten files of channel `files`, and a Pipe of them."""
    environment = configured(tmp_path, files=LINES, pipe={**LINES, "TrainingInputMode": "Pipe"})
    for file in range(10):
        text = "".join(f"{file * 3 + line}\n" for line in range(3))
        (environment.data_dir / f"files/{file}.txt").write_text(text)
    return environment


@pytest.mark.parametrize("workers", [0, 3, 12])
def test_each_sample_is_read_once_with_any_workers(environment: Environment, workers: int) -> None:
    dataset = ChannelDataset("files", transform=number_of, environment=environment)
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=list)
    assert sorted(number for batch in loader for number in batch) == list(range(30))


def test_persistent_workers_read_the_set_epoch(environment: Environment) -> None:
    dataset = ChannelDataset("pipe", transform=None, environment=environment)
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)

    def feed(path: Path) -> None:
        with path.open("w") as stream:
            stream.write(path.name)

    for epoch in range(2):
        fifo = environment.data_dir / f"pipe_{epoch}"
        os.mkfifo(fifo)
        thread = threading.Thread(target=feed, args=(fifo,), daemon=True)
        thread.start()
        dataset.set_epoch(epoch)
        assert [sample["data"] for sample in loader] == [f"pipe_{epoch}".encode()]
        thread.join()


def test_unknown_channel_raises_immediately(environment: Environment) -> None:
    with pytest.raises(ChannelError, match="did you mean 'files'"):
        ChannelDataset("file", environment=environment)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["files", "s3"])
def test_objects_are_read_by_index(connected: Environment, kind: str, workers: int) -> None:
    dataset = ChannelMapDataset(kind, environment=connected)
    assert dataset.keys == [f"{number}.txt" for number in range(10)]
    assert dataset[3] == {"__key__": "3.txt", "data": b"9\n10\n11\n"}
    loader: DataLoader[Any] = DataLoader(dataset, 3, num_workers=workers, collate_fn=list)
    assert [sample["__key__"] for batch in loader for sample in batch] == dataset.keys


def test_pipe_has_no_random_access(environment: Environment) -> None:
    with pytest.raises(ChannelError, match="channel 'pipe': input_mode Pipe has no random access; use ChannelDataset"):
        ChannelMapDataset("pipe", environment=environment)


def test_datasets_can_be_pickled(connected: Environment) -> None:
    assert pickle.loads(pickle.dumps(ChannelMapDataset("s3", environment=connected)))[9]["data"] == b"27\n28\n29\n"
    pickled = pickle.dumps(ChannelDataset("files", environment=connected))
    assert b"itertools" not in pickled  # Its objects do not pickle since Python 3.14.
    assert len(list(pickle.loads(pickled))) == 30


@pytest.mark.parametrize(
    "travel", [copy.deepcopy, lambda dataset: pickle.loads(pickle.dumps(dataset))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("mixed", [False, True], ids=["", "mixed"])
def test_dataset_can_be_pickled_after_it_was_iterated(
    environment: Environment, travel: Callable[[Any], Any], mixed: bool
) -> None:
    dataset: Any = ChannelDataset("files", transform=number_of, environment=environment)
    dataset = MixedDataset([dataset]) if mixed else dataset
    dataset.set_epoch(4)
    samples = iter(dataset)
    assert next(samples) == 0
    again = travel(dataset)
    assert again.epoch == 4
    assert list(again) == list(range(30)), "it starts again"
    assert list(samples) == list(range(1, 30)), "and the first one goes on"


def test_workers_of_a_copy_read_its_epochs(environment: Environment) -> None:
    shuffled = ChannelDataset("files", transform=number_of, environment=environment, seed=1)
    dataset = pickle.loads(pickle.dumps(shuffled))
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        shuffled.set_epoch(epoch)
        assert list(loader) == list(shuffled)


def test_note_is_added_before_python_3_11(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 10, 14))

    def fails(sample: dict[str, Any]) -> None:
        try:
            int("x")
        except ValueError as error:
            raise KeyError("no label") from error

    with pytest.raises(KeyError) as raised:
        list(ChannelDataset("files", transform=fails, environment=environment))
    monkeypatch.undo()
    text = "".join(traceback.format_exception(raised.value))
    own = text.index("a sample of channel 'files' with the key '0.txt'")
    assert text.index("invalid literal") < own < text.index("KeyError: 'no label'\n")


def test_loop_that_has_failed_does_not_know_its_position(environment: Environment) -> None:
    """A DataLoader has fetched samples of a batch that its loop has not got."""

    def fails_at_four(sample: dict[str, Any]) -> int:
        if sample["data"] == b"4":
            raise ValueError("cannot decode")
        return number_of(sample)

    dataset = ChannelDataset("files", transform=fails_at_four, environment=environment)
    loader: DataLoader[Any] = DataLoader(dataset, 3)
    batches = iter(loader)
    next(batches)
    state = dataset.state_dict()
    with pytest.raises(ValueError, match="cannot decode"):
        next(batches)
    with pytest.raises(
        ChannelError, match=r"failed in the middle of a batch; take the state_dict\(\) of a ThreadLoader"
    ):
        dataset.state_dict()
    dataset.transform = number_of
    dataset.load_state_dict(state)
    assert [*dataset] == [*range(3, 30)]


def test_transform_may_change_between_loops_and_what_is_read_may_not(environment: Environment) -> None:
    dataset = ChannelDataset("files", seed=3, environment=environment)
    assert repr(dataset) == "ChannelDataset('files', format='text/plain', seed=3, epoch=0)"
    assert all(isinstance(sample, dict) for sample in dataset)
    dataset.transform = lambda sample: sample["data"]
    assert all(isinstance(sample, bytes) for sample in dataset)
    for name in ("seed", "format", "epoch"):
        with pytest.raises(AttributeError):
            setattr(dataset, name, 1)


def test_loop_keeps_neither_its_dataset_nor_its_callers_variables(environment: Environment) -> None:
    """Also before Python collects garbage, for which a notebook's cells may be too short."""
    gc.disable()
    try:
        dataset, batch = ChannelDataset("files", environment=environment), torch.zeros(1)
        alive: list[weakref.ref[Any]] = [weakref.ref(dataset._channel_work), weakref.ref(batch)]
        list(dataset)
        del dataset, batch
        assert [each() for each in alive] == [None, None]
    finally:
        gc.enable()


def test_forked_process_makes_a_dataset_after_torch_has_used_threads(environment: Environment) -> None:
    """As a notebook's process that accelerate's notebook_launcher starts."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(1 << 20).sum()
    process = get_context("fork").Process(target=ChannelDataset, args=["files"], kwargs={"environment": environment})
    process.start()
    process.join(PATIENCE)
    process.kill()
    torch.set_num_threads(threads)
    assert process.exitcode == 0
