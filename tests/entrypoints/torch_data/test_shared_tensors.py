"""Batches of tensors that workers send through shared memory arrive unchanged, and the memory is used again."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from sagemaker_channels import collate
from sagemaker_channels.torch_data import shared_memory
from sagemaker_channels.torch_data.shared_memory import LEAST_BYTES, shared
from sagemaker_channels.torch_data.shared_tensors import collated, sendable

SIZE = LEAST_BYTES
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.uint8, torch.bool, torch.complex64)


def sample(number: int) -> dict[str, Any]:
    """Tensors of each type and arrays, large and small, and labels."""
    tensors = {str(dtype): (torch.arange(SIZE) + number).to(dtype) for dtype in TYPES}
    small = {"image": torch.full((3, 2), number), "empty": torch.zeros(0), "label": number, "share": number / 7}
    return {**tensors, **small, "array": np.arange(SIZE) * number, "text": "t"}


class Samples(IterableDataset[Any]):
    """As a ChannelDataset gives samples in a worker."""

    def __init__(self, count: int = 12) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        return (shared(sample(number)) for number in range(self.count))


class Images(Samples):
    def __iter__(self) -> Iterator[Any]:
        return (shared(torch.full((SIZE,), number)) for number in range(self.count))


def batches(dataset: Samples, size: int = 4, **options: Any) -> list[Any]:
    return list(DataLoader(dataset, size, num_workers=1, **{"collate_fn": collate, **options}))


def as_floats(samples: list[Any]) -> Any:
    return collate(samples).float()


def as_views(samples: list[Any]) -> Any:
    """A row, a transposed batch, one that needs a gradient, and one that is changed after it was stacked."""
    row, turned, floats = collate(samples)[0], collate(samples).T, collate(samples)
    floats += 1
    grown = collate([each.float() for each in samples]).requires_grad_()
    return row, turned, floats, grown


def as_copies(samples: list[Any]) -> Any:
    """A copy, and what a script that stores its batches reads back; the batch itself is shared memory all the time."""
    batch, stored = collate(samples), io.BytesIO()
    torch.save(batch, stored)
    stored.seek(0)
    return copy.deepcopy(batch), torch.load(stored), pickle.loads(pickle.dumps(batch)), batch


def number_of_pieces(samples: list[Any]) -> Any:
    opened = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The queue's thread has just closed it.
            opened.append(str(entry.readlink()))
    return sendable((collate(samples)[:, :1].clone(), sum("memfd:hand-over" in each for each in opened)))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_batches_of_any_type_arrive_unchanged(context: str) -> None:
    found = batches(Samples(), multiprocessing_context=context)
    assert len(found) == 3
    for number, batch in enumerate(found):
        expected = default_collate([sample(each) for each in range(4 * number, 4 * number + 4)])
        assert batch.keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert batch[name].dtype == value.dtype
                assert torch.equal(batch[name], value), name
            else:
                assert batch[name] == value


def test_large_batches_are_not_in_torchs_shared_memory() -> None:
    """Which is made again for each of them."""
    [batch] = batches(Images(4))
    assert not batch.is_shared()


def test_kept_batches_are_not_overwritten() -> None:
    found = batches(Images(200), 2, prefetch_factor=4)
    assert [batch[:, 0].tolist() for batch in found] == [[number, number + 1] for number in range(0, 200, 2)]
    assert all(bool((batch == batch[:, :1]).all()) for batch in found)


@pytest.mark.parametrize(("pieces", "prefetch"), [(0, 2), (2, 20)])
def test_without_room_batches_are_sent_as_torch_does(
    monkeypatch: pytest.MonkeyPatch, pieces: int, prefetch: int
) -> None:
    monkeypatch.setattr(shared_memory, "PIECE_BYTES", 100_000)
    monkeypatch.setattr(shared_memory, "MOST_BYTES", pieces * 150_000)
    monkeypatch.setattr(shared_memory, "MOST_FIELDS", 0)
    found = batches(Images(80), 2, prefetch_factor=prefetch)
    assert [batch[:, -1].tolist() for batch in found] == [[number, number + 1] for number in range(0, 80, 2)]
    if not pieces:
        assert all(batch.is_shared() for batch in found)


def of_torch(samples: list[Any]) -> Any:
    return {"images": [sendable(torch.cat([each[None] for each in samples]))], "count": len(samples)}


def test_batch_of_any_collate_fn_can_be_sent() -> None:
    """As a WorkerLoader sends it."""
    for number, batch in enumerate(batches(Images(40), collate_fn=of_torch)):
        [images] = batch["images"]
        assert type(images) is torch.Tensor and not images.is_shared()  # type: ignore[no-untyped-call]
        assert images[:, 7].tolist() == [4 * number + each for each in range(batch["count"])]


def test_collate_fn_may_change_the_batch() -> None:
    found = batches(Images(40), collate_fn=as_floats)
    assert [batch[:, 5].tolist() for batch in found] == [[n, n + 1.0, n + 2.0, n + 3.0] for n in range(0, 40, 4)]
    for number, (row, turned, floats, grown) in enumerate(batches(Images(40), collate_fn=as_views)):
        expected = torch.stack([torch.full((SIZE,), 4 * number + each) for each in range(4)])
        assert torch.equal(row, expected[0])
        assert torch.equal(turned, expected.T)
        assert torch.equal(floats, expected + 1)
        assert grown.requires_grad
        assert torch.equal(grown, expected.float())


def test_collate_fn_may_copy_and_store_the_batch() -> None:
    for number, found in enumerate(batches(Images(12), collate_fn=as_copies)):
        expected = torch.stack([torch.full((SIZE,), 4 * number + each) for each in range(4)])
        assert all(torch.equal(each, expected) for each in found)


def test_batches_that_are_not_sent_leave_their_memory() -> None:
    counts = [count for _, count in batches(Images(400), collate_fn=number_of_pieces)]
    assert len(counts) == 100
    assert len(set(counts[1:])) == 1


class Marked(torch.Tensor):
    """A subclass, as torchvision's and others' images are."""


def test_subclasses_arrive_as_torch_sends_them() -> None:
    class Subclassed(Samples):
        def __iter__(self) -> Iterator[Any]:
            return (shared(torch.full((SIZE,), number).as_subclass(Marked)) for number in range(4))

    [batch] = batches(Subclassed())
    assert torch.equal(batch, default_collate(list(Subclassed())))


class Unequal(Samples):
    def __iter__(self) -> Iterator[Any]:
        return (shared(torch.zeros(SIZE + number)) for number in range(4))


class Sparse(Samples):
    def __iter__(self) -> Iterator[Any]:
        return (shared(torch.eye(9).to_sparse()) for _ in range(4))


class Nested(Samples):
    def __iter__(self) -> Iterator[Any]:
        return (shared(torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)])) for _ in range(4))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Unequal, "equal size"), (Sparse, "sparse tensors are not"), (Nested, "nested tensors are not")],
)
def test_tensors_that_cannot_be_stacked_raise_torchs_error(kind: type[Samples], reason: str) -> None:
    with pytest.raises(RuntimeError, match=reason):
        batches(kind())
    with pytest.raises(RuntimeError, match=reason):
        collated(list(kind()))


@pytest.mark.parametrize(
    "batch",
    [
        [{**sample(number), "text": number} for number in range(3)],
        [torch.zeros(2), torch.zeros(2, dtype=torch.float64)],
        [torch.ones(2, requires_grad=True), torch.zeros(2)],
        [torch.ones(2).as_subclass(Marked), torch.zeros(2).as_subclass(Marked)],
    ],
)
def test_threads_collate_as_torch_does(batch: list[Any]) -> None:
    torch.testing.assert_close(collated(batch), default_collate(batch))
    assert getattr(collated(batch), "requires_grad", None) == getattr(default_collate(batch), "requires_grad", None)


def test_batches_need_no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [torch.full((100, 100), float(number)) for number in range(4)]
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert torch.equal(collated(samples), torch.stack(samples))


def test_large_batches_use_the_memory_of_freed_ones() -> None:
    images = [torch.full((3 << 20,), number, dtype=torch.float32) for number in range(3)]
    first = collated(images)
    place, view = first.data_ptr(), first[2, :1]
    del first
    second = collated(images[::-1])
    assert second.data_ptr() != place  # a view of the first one is still used
    assert view.item() == 2
    del view
    assert collated(images).data_ptr() == place
    assert second[:, 0].tolist() == [2, 1, 0]
