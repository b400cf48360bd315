"""`Reading(skip_damaged=...)`: samples that a transform cannot decode, and errors that are not the data's."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from damaged_objects import ALL, delivered, skipped
from sagemaker_channels import ChannelDataset, MixedDataset, ThreadLoader
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import Sample


class Picky:
    """A transform that fails on every tenth number with an error of this class."""

    def __init__(self, error: type[Exception], *arguments: Any) -> None:
        self._error, self._arguments = error, arguments

    def __call__(self, sample: Sample) -> int:
        number = int(sample["data"])
        if number % 10 == 3:
            raise self._error(*self._arguments)
        return number


def lines(root: Path) -> Environment:
    return delivered(
        root, [b"".join(b"%d\n" % number for number in range(20 * each, 20 * each + 20)) for each in range(3)]
    )


GOOD = [number for number in ALL if number % 10 != 3]
DECODING = [
    (ValueError, "x"),
    (OSError, "cannot identify image file <_io.BytesIO object at 0x7f10c52d3060>"),
    (SyntaxError, "broken PNG file"),
    (ZeroDivisionError,),
    (UnicodeDecodeError, "utf-8", b"\xff", 0, 1, "x"),  # its `object` is no key
]


@pytest.mark.parametrize(
    "raised", [*DECODING, (CorruptError, "mine"), (struct.error, "x"), (KeyError, "png")], ids=repr
)
def test_undecodable_samples_of_a_transform_are_skipped(raised: Any, tmp_path: Path) -> None:
    environment = lines(tmp_path)
    reading: dict[str, Any] = {"skip_damaged": 6}
    dataset = ChannelDataset("train", format="lines", transform=Picky(*raised), **reading, environment=environment)
    assert list(dataset) == GOOD
    assert [(record["object"], record["count"]) for record in skipped(environment)] == [
        (str(number // 2), number + 1) for number in range(6)
    ]
    reason = skipped(environment)[0]["reason"]
    assert reason.endswith("; it ends at position 8 of object 0")
    assert "0x7f" not in reason


@pytest.mark.parametrize(
    "raised",
    [
        (NameError, "x"),
        (TypeError, "x"),
        (ImportError, "x"),
        (ChannelError, "x"),
        (OSError, 28, "full"),
        (MemoryError,),
    ],
    ids=repr,
)
def test_errors_of_the_program_or_the_machine_are_not_skipped(raised: Any, tmp_path: Path) -> None:
    dataset = ChannelDataset(
        "train", format="lines", transform=Picky(*raised), skip_damaged=6, environment=lines(tmp_path)
    )
    with pytest.raises(raised[0]):
        list(dataset)


def test_workers_and_readers_have_a_budget_each(tmp_path: Path) -> None:
    environment = lines(tmp_path)
    reading: dict[str, Any] = {"skip_damaged": 4}  # Six samples are damaged, two in each of three objects.
    dataset = ChannelDataset("train", format="lines", transform=Picky(ValueError), **reading, environment=environment)
    assert sorted(map(int, DataLoader(dataset, batch_size=None, num_workers=2))) == GOOD
    assert len(skipped(environment)) == 6
    loader = ThreadLoader(dataset, 4, readers=2, collate_fn=list)
    assert sorted(number for batch in loader for number in batch) == GOOD


def test_resumed_dataset_skips_the_same_samples(tmp_path: Path) -> None:
    environment = lines(tmp_path)

    def made() -> ChannelDataset:
        reading: dict[str, Any] = {"skip_damaged": 6}
        return ChannelDataset("train", format="lines", transform=Picky(ValueError), **reading, environment=environment)

    for stop in (1, 3, 4, 30, len(GOOD)):
        dataset = made()
        taken = [number for _, number in zip(range(stop), dataset, strict=False)]
        resumed = made()
        resumed.load_state_dict(dataset.state_dict())
        assert taken + list(resumed) == GOOD


def test_mixture_draws_another_sample_in_place_of_a_damaged_one(tmp_path: Path) -> None:
    environment = lines(tmp_path)
    part = ChannelDataset("train", format="lines", transform=Picky(ValueError), skip_damaged=6, environment=environment)
    assert list(MixedDataset([part])) == GOOD
