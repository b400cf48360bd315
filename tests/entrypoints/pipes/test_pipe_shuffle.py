"""A shuffled Pipe with several readers yields each sample once, however uneven the sizes."""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from patience import PATIENCE, in_threads
from pipe_feeder import Feeder, make_root
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.formats import recordio
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader

BIG = bytes(1 << 20)
COUNT = 300  # of them and of small ones between: more than what the ring holds for readers that are behind


def head_of(sample: dict[str, Any]) -> tuple[int, int]:
    data = sample["data"]
    return int.from_bytes(data[:4], "little"), len(data)


@pytest.fixture
def dataset(root: Path, environment: Environment) -> Iterator[ChannelDataset]:
    path = root / "input/data/images_0"
    os.mkfifo(path)

    def feed() -> None:
        with path.open("wb") as stream:
            for number in range(COUNT):
                head = number.to_bytes(4, "little")
                recordio.write(stream, [head + BIG, head])

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    # By bytes, a block of large samples would end long before one of small ones, if readers did not know the others' sizes.
    reading: dict[str, Any] = {"seed": 7, "block": 100, "block_bytes": 1 << 20}
    yield ChannelDataset("images", transform=head_of, **reading, environment=environment)
    feeder.join(PATIENCE)
    assert not feeder.is_alive()


@pytest.mark.parametrize("by", [DataLoader, ThreadLoader])
def test_samples_of_uneven_sizes_are_all_read(dataset: ChannelDataset, by: Any) -> None:
    loader = by(dataset, batch_size=8, num_workers=2, collate_fn=list)
    given = [sample for batch in loader for sample in batch]
    assert sorted(given) == sorted((number, size) for number in range(COUNT) for size in (4, 4 + len(BIG)))
    assert given != sorted(given)


SIZES = [random.Random(number).choice([10, 10, 10, 3000, 40_000]) for number in range(500)]
READING: dict[str, Any] = {"seed": 7, "block": 20, "block_bytes": 100_000}


def blocks_of(readers: int) -> list[range]:
    """The rounds (a sample for each reader) of each block, as Reading says it for the largest shard."""
    rounds = [SIZES[begin : begin + readers] for begin in range(0, len(SIZES), readers)]
    blocks, begin, weights = [], 0, [0] * readers
    for number, sizes in enumerate(rounds):
        weights = [weight + size for weight, size in zip(weights, sizes, strict=False)]
        if len(sizes) < readers or number + 1 - begin == READING["block"] or max(weights) >= READING["block_bytes"]:
            blocks.append(range(begin, number + 1))
            begin, weights = number + 1, [0] * readers
    return [*blocks, range(begin, len(rounds))] if begin < len(rounds) else blocks


def read_side_by_side(root: Path, piece: int, readers: int, stops: list[int], states: list[Any]) -> list[list[int]]:
    """What each shard gives: until its stop, and from its state on, if there is one. Then states are where they stopped."""
    stream = BytesIO()
    recordio.write(stream, [number.to_bytes(4, "little").ljust(size, b"x") for number, size in enumerate(SIZES)])
    data = stream.getvalue()
    feeder = Feeder(root, "images", lambda epoch: data, piece=piece)
    found: list[list[int]] = [[] for _ in range(readers)]

    def read(index: int) -> None:
        shard = Shard(index, readers, readers)
        with closing(open_channel("images", environment=load_environment(root, {}), shard=shard, **READING)) as each:
            if states[index] is not None:
                each.load_state_dict(states[index])
            found[index] = [int.from_bytes(sample["data"][:4], "little") for sample in islice(each, stops[index])]
            states[index] = json.loads(json.dumps(each.state_dict()))

    in_threads(read, readers)
    feeder.stop()
    return found


@pytest.mark.parametrize("readers", [2, 3])
def test_blocks_end_at_the_same_sample_for_all_readers_and_can_be_resumed(tmp_path: Path, readers: int) -> None:
    def root() -> Path:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        make_root(folder)
        return folder

    blocks = blocks_of(readers)
    assert len({len(block) for block in blocks}) > 3, "some end by their number, others by their bytes"

    def order(index: int) -> list[int]:
        given: list[int] = []
        for number, block in enumerate(blocks):
            mine = [place for place in (each * readers + index for each in block) if place < len(SIZES)]
            seed = f"samples/{READING['seed']}/0/{index}/{readers}/{number}"
            given.extend(random.Random(seed).sample(mine, len(mine)))
        return given

    wanted = [order(index) for index in range(readers)]
    everything = [1000] * readers
    assert read_side_by_side(root(), 1 << 20, readers, everything, [None] * readers) == wanted
    states: list[Any] = [None] * readers
    stops = [37 + 5 * index for index in range(readers)]
    first = read_side_by_side(root(), 777, readers, stops, states)
    rest = read_side_by_side(root(), 100_003, readers, everything, states)
    assert [begin + end for begin, end in zip(first, rest, strict=True)] == wanted
