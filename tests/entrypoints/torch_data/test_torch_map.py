"""Random access: indices as a list's, files that are gone; and errors of transforms, which name the sample in workers, too."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from format_channels import LINES, configured
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.start.failure import failure_text
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.map import ChannelMapDataset


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Ten files of three numbers in channel `files`."""
    environment = configured(tmp_path, files=LINES)
    for file in range(10):
        text = "".join(f"{file * 3 + line}\n" for line in range(3))
        (environment.data_dir / f"files/{file}.txt").write_text(text)
    return environment


def fails_at_ten(sample: dict[str, Any]) -> Any:
    if b"10" in sample["data"]:
        raise ValueError("cannot decode")
    return sample["data"]


def failing(environment: Environment) -> dict[str, Any]:
    stream = ChannelDataset("files", transform=fails_at_ten, environment=environment)
    return {
        "stream": stream,
        "mixed": MixedDataset([stream]),
        "files": ChannelMapDataset("files", fails_at_ten, environment=environment),
        "s3": ChannelMapDataset("s3", fails_at_ten, environment=environment),
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["stream", "mixed", "files", "s3"])
def test_transform_error_names_the_sample(connected: Environment, kind: str, workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(failing(connected)[kind], 4, num_workers=workers, collate_fn=list)
    with pytest.raises(ValueError, match="cannot decode") as raised:
        list(loader)
    text = "".join(traceback.format_exception(raised.value))
    # They hold torch's iterator in a cycle: if the garbage collector frees that, torch waits 5 s for each worker.
    traceback.clear_frames(raised.tb)
    channel = "s3" if kind == "s3" else "files"
    assert f"in the transform of a sample of channel '{channel}' with the key '3.txt'" in text
    assert "in fails_at_ten" in text
    reason = failure_text("train.py", 1, text)
    assert reason.startswith("ValueError: cannot decode")
    assert "with the key '3.txt'" in reason


@pytest.mark.parametrize("kind", ["files", "s3"])
def test_indices_work_as_in_a_list(connected: Environment, kind: str) -> None:
    dataset = {"files": ChannelMapDataset, "s3": ChannelMapDataset}[kind](kind, environment=connected)
    assert dataset[-10]["__key__"] == "0.txt"
    assert dataset[torch.tensor(-1)]["__key__"] == "9.txt"
    assert len(list(dataset)) == 10
    for index in (10, -11):
        with pytest.raises(IndexError, match=f"index {index} is out of range for a .*MapDataset of 10 samples"):
            dataset[index]
        with pytest.raises(IndexError, match=f"index {index} is out of range for"):
            dataset.__getitems__([0, index])
    for several in (slice(0, 2), [0, 1], 1.5):
        with pytest.raises(TypeError, match=r"the index of a .*; give a whole number, .*Subset"):
            dataset[several]  # type: ignore[index]


def test_removed_file_raises_channel_error(environment: Environment) -> None:
    dataset = ChannelMapDataset("files", environment=environment)
    (environment.channels["files"].path / "3.txt").unlink()
    for ask in (lambda: dataset[3], lambda: dataset.__getitems__([1, 3, 4])):
        with pytest.raises(ChannelError, match=r"channel 'files': object '3.txt': cannot be read: .*No such file"):
            ask()


def test_oserror_of_a_transform_is_unchanged(environment: Environment) -> None:
    def fails(sample: dict[str, Any]) -> None:
        raise PermissionError("of the transform's own")

    with pytest.raises(PermissionError, match="own"):
        ChannelMapDataset("files", fails, environment=environment)[0]


def test_stop_iteration_of_a_transform_does_not_end_the_loop_silently(environment: Environment) -> None:
    def line_9(sample: dict[str, Any]) -> Any:
        return next(line for line in sample["data"].splitlines() if line == b"9")

    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        list(DataLoader(ChannelMapDataset("files", line_9, environment=environment), 2))
    assert "with the key '0.txt'" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_loaders_state_from_an_epochs_end_begins_the_next_epoch(
    environment: Environment, workers: int
) -> None:
    """As README says; a ChannelDataset's is of the epoch that ended."""
    dataset = ChannelMapDataset("files", bytes_of, environment=environment)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, 1, 0)

    def loader(state: Any = None) -> StatefulDataLoader[Any]:
        made: StatefulDataLoader[Any] = StatefulDataLoader(
            dataset, 5, sampler=sampler, num_workers=workers, collate_fn=list
        )
        if state is not None:
            made.load_state_dict(state)
        return made

    sampler.set_epoch(3)
    first = loader()
    whole = list(first)
    assert len(whole) == 2
    ended = first.state_dict()
    batches = iter(first)
    assert [next(batches), next(batches)] == whole
    after_the_last = first.state_dict()
    assert list(loader(ended)) == whole  # the same number: once more
    resumed = loader(after_the_last)
    assert [list(resumed), list(resumed)] == [[], whole]
    sampler.set_epoch(4)
    assert list(loader(ended)) not in ([], whole)


def bytes_of(sample: dict[str, Any]) -> bytes:
    return bytes(sample["data"])
