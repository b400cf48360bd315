"""Batches through shared memory are what a list of samples is, whoever starts the workers, and nothing stays behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from entrypoints.hand_over import HandOver


class Numbered(Dataset[Any]):
    """Samples of all sizes, the largest last, with fields that are no bytes and some that are empty."""

    def __init__(self, count: int = 64, step: int = 3000) -> None:
        self.count, self.step = count, step

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {
            "__key__": str(index),
            "jpg": bytes([index % 256]) * (index * self.step),
            "n": index,
            "txt": b"",
            "z": b"z",
        }


class Tuples(Numbered):
    """What a transform may make of them."""

    def __getitem__(self, index: int) -> Any:
        return bytes(index * self.step), index


def batches(dataset: Dataset[Any], collate: Any, **options: Any) -> list[Any]:
    return list(DataLoader(dataset, 4, collate_fn=collate, **options))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_batches_are_those_of_a_list(context: str) -> None:
    found = batches(Numbered(), HandOver(), num_workers=2, multiprocessing_context=context)
    assert found == batches(Numbered(), list)
    assert all(type(batch) is list for batch in found)


def test_without_workers_batches_are_lists() -> None:
    assert batches(Numbered(), HandOver()) == batches(Numbered(), list)


def test_samples_that_are_no_dicts_come_too() -> None:
    assert batches(Tuples(), HandOver(), num_workers=1) == batches(Tuples(), list)


def test_batches_that_are_kept_stay_as_they_are() -> None:
    """The workers use their memory again; what was given is a copy."""
    dataset = Numbered(400, 500)
    assert batches(dataset, HandOver(), num_workers=1, prefetch_factor=8) == batches(dataset, list)


def test_memory_that_is_full_is_not_written_to() -> None:
    """More batches wait than a worker has pieces for: the rest goes through the queue."""
    dataset = Numbered(400, 500)
    assert batches(dataset, HandOver(), num_workers=1, prefetch_factor=60) == batches(dataset, list)


def test_workers_that_persist_use_the_same_memory_and_leave_none() -> None:
    before = open_files()
    loader = DataLoader(Numbered(), 4, collate_fn=HandOver(), num_workers=2, persistent_workers=True)
    expected = batches(Numbered(), list)
    for _ in range(3):
        assert list(loader) == expected
    after_three = open_files()
    next(iter(loader))  # left early
    assert list(loader) == expected
    assert open_files() <= after_three + 4
    del loader
    batches(Numbered(), HandOver(), num_workers=1)  # lets go of what the ended workers had
    batches(Numbered(), HandOver(), num_workers=1)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:batch" in line]
    assert len(mapped) <= 6
    assert open_files() <= before + 12


def test_what_the_machine_lacks_the_queue_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert batches(Numbered(), HandOver(), num_workers=1) == batches(Numbered(), list)
