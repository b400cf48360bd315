"""Large fields of a Pipe's samples reach readers in shared memory: unchanged, and its memory is used again."""

from __future__ import annotations

import io
import os
import pickle
import random
from collections import deque
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
from torch.utils.data import DataLoader

from entrypoints import shared_memory
from entrypoints.errors import CorruptError
from entrypoints.job.environment import Environment
from entrypoints.records.archives import tar
from entrypoints.records.cursor import Cursor
from entrypoints.sample import Sample, weight
from entrypoints.shared_memory import Pieces, SharedBytes
from entrypoints.torch_data.dataset import ChannelDataset
from pipe_feeder import Feed
from tar_archives import read, written

PIECE = 1 << 22  # bytes of a piece, unless a field is larger


class Shared(io.BytesIO):
    """A stream as the broker reads it: into shared memory, some bytes at a time."""

    def __init__(self, data: bytes, pieces: Pieces, seed: int = 0) -> None:
        super().__init__(data)
        self.pieces, self.random = pieces, random.Random(seed)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return super().readinto(buffer[: self.random.choice((512, 70_000, 1 << 20, 1 << 23))])


def shard(seed: int) -> bytes:
    """An archive of 10 to 15 MB, with members that are larger than a read, and one that is larger than a piece."""
    chance = random.Random(seed)
    sizes = [chance.choice((0, 1, 511, 513, 8191, 8192, 100_000, 1_100_000)) for _ in range(24)]
    sizes.insert(chance.randrange(24), 5_000_000)
    return written(
        {"__key__": f"{n:03d}", "bin": chance.randbytes(size), "cls": b"%d" % n} for n, size in enumerate(sizes)
    )


@pytest.mark.parametrize(
    ("seed", "most", "late"), [(0, 32 * PIECE, 0), (1, 5 * PIECE, 4), (2, 3 * PIECE, 9), (3, 0, 3)]
)
def test_tar_read_into_shared_memory_is_the_same(seed: int, most: int, late: int) -> None:
    """Readers are so many samples late, and some fields find no room."""
    data, pieces = shard(seed), Pieces(most)
    sent: deque[bytes] = deque()
    found: list[Any] = []
    for sample in tar.FORMAT.split(Shared(data, pieces, seed)):
        assert weight(sample) == len(sample["bin"]) + len(sample["cls"])
        sent.append(pickle.dumps(sample))
        if len(sent) > late:
            found.append(pickle.loads(sent.popleft()))
    found += map(pickle.loads, sent)
    assert found == read(data)
    assert {type(sample["bin"]) for sample in found} == {bytes}


def outcome(stream: Any, skips: bool) -> tuple[list[Sample], list[str]]:
    """The samples and the damage that was skipped, or the error."""
    errors: list[str] = []
    cursor = Cursor(0, (lambda error: errors.append(str(error))) if skips else None)
    samples: list[Sample] = []
    try:
        samples.extend(pickle.loads(pickle.dumps(sample)) for sample in tar.FORMAT.split(stream, None, cursor))
    except CorruptError as error:
        errors.append(str(error))
    return samples, errors


@pytest.mark.parametrize("skips", [False, True])
def test_damage_behind_lent_fields_has_the_same_outcome(skips: bool) -> None:
    samples: list[Sample] = [{"__key__": f"{n}", "bin": bytes([n]) * 600_000} for n in range(12)]
    data = written(samples)
    place = 7 * (512 + 600_064)
    for damaged in (data[:place] + b"\0" + data[place + 1 :], data[:place], data[: place + 300_000]):
        found = outcome(Shared(damaged, Pieces()), skips)
        assert found == outcome(io.BytesIO(damaged), skips)
        assert len(found[0]) < len(samples)
        assert found[1]


def field(pieces: Pieces, data: bytes) -> Any:
    lent = pieces.put(data)
    assert lent is not None
    return lent


def test_memory_is_free_after_its_field_was_read_or_dropped() -> None:
    pieces, data = Pieces(PIECE), os.urandom(PIECE // 2)
    lent = field(pieces, data)
    assert pieces.free() is None
    message = pickle.dumps(lent)
    del lent  # was sent, so the reader frees it
    assert pieces.free() is None
    assert pickle.loads(message) == data
    assert pieces.free() is not None
    lent = field(pieces, data)
    del lent
    assert pieces.free() is not None


def test_field_that_a_worker_sends_on_stays_in_memory_until_the_last_process_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces, data = Pieces(PIECE), os.urandom(PIECE // 2)
    monkeypatch.setattr(shared_memory, "sends_on", True)
    received = pickle.loads(pickle.dumps(field(pieces, data)))
    assert type(received) is SharedBytes
    messages = [ForkingPickler.dumps(received) for _ in range(2)]  # The second is of memory of its own.
    written_to_a_file = pickle.dumps(received)
    assert received == data
    del received
    assert pieces.free() is None
    monkeypatch.setattr(shared_memory, "sends_on", False)
    assert [ForkingPickler.loads(each) for each in messages] == [data, data]
    assert pieces.free() is not None
    assert pickle.loads(written_to_a_file) == data


def test_field_that_a_worker_drops_frees_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, data = Pieces(PIECE), os.urandom(PIECE // 2)
    monkeypatch.setattr(shared_memory, "sends_on", True)
    received = pickle.loads(pickle.dumps(field(pieces, data)))
    assert pieces.free() is None
    assert received == data
    del received
    assert pieces.free() is not None


def test_memory_of_a_loop_that_was_left_early_is_replaced_two_epochs_later() -> None:
    pieces, data = Pieces(PIECE), os.urandom(PIECE // 2)
    pickle.dumps(field(pieces, data))
    for _ in range(2):
        pieces.next_epoch()
        assert pieces.free() is None
    pieces.next_epoch()
    assert pickle.loads(pickle.dumps(field(pieces, data))) == data


def test_workers_batches_of_large_members_are_complete_in_each_epoch(environment: Environment, feed: Feed) -> None:
    """Also after a loop that was left with batches unread, and with a collate function that keeps only a part."""
    samples: list[Sample] = [{"__key__": f"{n:03d}", "bin": bytes([n]) * (n * 7000)} for n in range(1, 90)]
    feed("tar", lambda epoch: written(samples))
    dataset = ChannelDataset("tar", environment=environment)
    options: Any = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}
    loader: DataLoader[Any] = DataLoader(dataset, 8, collate_fn=list, **options)
    for epoch in range(4):
        dataset.set_epoch(epoch)
        if epoch == 1:
            next(iter(loader))
            continue
        found = sorted((each for batch in loader for each in batch), key=lambda sample: sample["__key__"])
        assert found == samples
        assert {type(sample["bin"]) for sample in found} == {bytes}
