"""A Pipe that several workers read and shuffle: each sample once, however uneven their sizes, and nobody waits for ever."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from entrypoints.environment import load_environment
from entrypoints.records import recordio
from entrypoints.sampling import Reading
from entrypoints.torch_dataset import ChannelDataset
from entrypoints.torch_loader import ThreadLoader

BIG = bytes(1 << 20)
COUNT = 300  # of them and of small ones between: more than what a broker holds for readers that are behind


def head_of(sample: dict[str, Any]) -> tuple[int, int]:
    data = sample["data"]
    return int.from_bytes(data[:4], "little"), len(data)


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChannelDataset]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "input/config"
    config.mkdir(parents=True)
    (tmp_path / "input/data").mkdir()
    entry = {"TrainingInputMode": "Pipe", "ContentType": "application/x-recordio"}
    (config / "inputdataconfig.json").write_text(json.dumps({"train": entry}))
    fifo = tmp_path / "input/data/train_0"
    os.mkfifo(fifo)

    def feed() -> None:
        with fifo.open("wb") as stream:
            for number in range(COUNT):
                head = number.to_bytes(4, "little")
                recordio.write(stream, [head + BIG, head])

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    environment = load_environment(tmp_path, {})
    # A block holds 100 samples; by bytes, one of large samples would end long before one of small ones.
    reading = Reading(seed=7, block=100, block_bytes=1 << 20)
    yield ChannelDataset("train", transform=head_of, reading=reading, environment=environment)
    feeder.join(30)
    assert not feeder.is_alive()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("by", [DataLoader, ThreadLoader])
def test_uneven_samples_are_all_given(dataset: ChannelDataset, by: Any) -> None:
    workers = {"num_workers": 2} if by is DataLoader else {"threads": 2}
    loader = by(dataset, batch_size=8, **workers, **({"collate_fn": list} if by is DataLoader else {"collate": list}))
    given = [sample for batch in loader for sample in batch]
    assert sorted(given) == sorted((number, size) for number in range(COUNT) for size in (4, 4 + len(BIG)))
    assert given != sorted(given)
