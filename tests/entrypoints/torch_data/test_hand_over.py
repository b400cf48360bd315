"""Samples that workers send through shared memory arrive unchanged, and no memory is left behind."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing import reductions
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from sagemaker_channels import collate
from sagemaker_channels.torch_data import shared_memory as hand_over
from sagemaker_channels.torch_data.shared_memory import LEAST_BYTES, SharedBytes, shared


def sample(index: int, step: int = 3000) -> dict[str, Any]:
    """Of all sizes, the largest last, with fields that are no bytes and some that are empty."""
    jpg = bytes([index % 256]) * (index * step)
    return {"__key__": str(index), "jpg": jpg, "n": index, "txt": b"", "z": b"z"}


FROZEN = [0]  # how many objects the tests hide from the collector


class Numbered(IterableDataset[Any]):
    """As a ChannelDataset gives samples in a worker."""

    def __init__(self, count: int = 64, step: int = 3000) -> None:
        self.count, self.step = count, step

    def __iter__(self) -> Iterator[Any]:
        return (shared(sample(index, self.step)) for index in range(self.count))


def plain_batches(count: int = 64, step: int = 3000) -> list[Any]:
    return [[sample(index, step) for index in range(start, start + 4)] for start in range(0, count, 4)]


def batches(dataset: Numbered, collate: Any = list, **options: Any) -> list[Any]:
    return list(DataLoader(dataset, 4, collate_fn=collate, num_workers=1, **options))


def jpgs(samples: list[Any]) -> list[bytes]:
    return [each["jpg"] for each in samples]


def count_and_first(samples: list[Any]) -> tuple[int, bytes]:
    return len(samples), samples[-1]["jpg"]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_samples_pass_shared_memory_unchanged() -> None:
    found = batches(Numbered())
    assert found == plain_batches()
    assert {type(value) for batch in found for each in batch for value in each.values()} == {str, bytes, int}


def test_any_collate_fn_gets_plain_samples() -> None:
    assert batches(Numbered(), jpgs) == [jpgs(batch) for batch in plain_batches()]
    assert batches(Numbered(), count_and_first) == [count_and_first(batch) for batch in plain_batches()]
    by_default = list(DataLoader(Numbered(), 4, num_workers=1))
    assert [batch["jpg"] for batch in by_default] == [jpgs(batch) for batch in plain_batches()]


def test_large_fields_bypass_the_queue() -> None:
    data = os.urandom(LEAST_BYTES)
    given = shared({"large": data, "small": data[1:]})
    assert [type(value) for value in given.values()] == [SharedBytes, bytes]
    assert given == {"large": data, "small": data[1:]}
    assert type(shared(data)) is SharedBytes
    assert len(ForkingPickler.dumps(given["large"])) < 200
    assert ForkingPickler.loads(ForkingPickler.dumps(given["large"])) == data


def test_plain_pickle_contains_the_bytes() -> None:
    """A worker may write what it likes to a file, too."""
    data = shared(os.urandom(LEAST_BYTES))
    assert pickle.loads(pickle.dumps(data)) == data
    assert len(pickle.dumps(data)) > LEAST_BYTES


def test_kept_batches_are_not_overwritten() -> None:
    """The workers use their memory again; what was given is a copy."""
    assert batches(Numbered(600, 500), prefetch_factor=8) == plain_batches(600, 500)


def test_full_memory_sends_the_rest_through_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """More waits than a worker has room for, and some that is larger than all of it: the rest goes through the queue."""
    monkeypatch.setattr(hand_over, "PIECE_BYTES", 100_000)
    monkeypatch.setattr(hand_over, "MOST_BYTES", 300_000)
    monkeypatch.setattr(hand_over, "MOST_FIELDS", 0)
    assert batches(Numbered(200, 2000), prefetch_factor=40) == plain_batches(200, 2000)


def test_persistent_workers_reuse_memory_and_leave_none() -> None:
    before = open_files()
    loader = DataLoader(Numbered(), 4, collate_fn=list, num_workers=1, persistent_workers=True)
    for _ in range(3):
        assert list(loader) == plain_batches()
    after_three = open_files()
    next(iter(loader))  # left early
    for _ in range(3):
        assert list(loader) == plain_batches()
    assert open_files() <= after_three + 4
    del loader
    for _ in range(2):  # lets go of what the ended worker had
        batches(Numbered())
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:hand-over" in line]
    assert len(mapped) <= 8
    assert open_files() <= before + 12


def test_forked_process_has_its_own_memory() -> None:
    data = os.urandom(LEAST_BYTES)
    message = ForkingPickler.dumps(shared(data))
    child = os.fork()
    if not child:
        ForkingPickler.dumps(shared(bytes(LEAST_BYTES)))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert ForkingPickler.loads(message) == data


def test_process_may_be_forked_while_another_thread_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the thread of pin_memory reads while another loader starts its workers."""

    class Forking(bytearray):
        status = -1

        def __setitem__(self, place: Any, data: Any) -> None:
            if not (child := os.fork()):
                os._exit(0)
            self.status = os.waitpid(child, 0)[1]
            super().__setitem__(place, data)

    monkeypatch.setattr(sys, "unraisablehook", lambda _: os._exit(1))
    data, array = os.urandom(LEAST_BYTES), Forking(LEAST_BYTES)
    place = hand_over.put(data)
    assert place is not None
    hand_over.take_into(array, *place)
    assert array.status == 0
    assert bytes(array) == data


def changes(samples: list[Any]) -> list[str]:
    """What is different in a worker that has sent samples from one that torch has just started."""
    found = {
        "torch's reducer": ForkingPickler._extra_reducers[torch.Tensor] is reductions.reduce_tensor,  # type: ignore[attr-defined]
        "torch's collate": default_collate_fn_map[torch.Tensor] is collate_tensor_fn,
        "the collector": gc.isenabled() and gc.get_freeze_count() <= FROZEN[-1],
    }
    return [name for name, as_before in found.items() if not as_before]


def test_neither_process_is_changed() -> None:
    """A script's own loaders send and collate as without this library."""
    FROZEN.append(gc.get_freeze_count())  # by conftest.py
    assert batches(Numbered(16), changes) == [[]] * 4
    list(DataLoader(Numbered(16), 4, collate_fn=collate, num_workers=1))
    assert changes([]) == []


def test_other_system_than_linux_uses_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over.is_ready.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    try:
        assert type(shared(os.urandom(LEAST_BYTES))) is bytes
        assert batches(Numbered()) == plain_batches()
    finally:
        hand_over.is_ready.cache_clear()
