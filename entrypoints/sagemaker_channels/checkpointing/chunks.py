"""The chunks of tensors that a rank stores, by torch.distributed.checkpoint's planner, and those that it reads.

A tensor that all ranks have is stored once, by the rank that has the least to store; a sharded tensor by the ranks of its shards.
Reading finds the parts of a rank's shards in the chunks of any other number of ranks.

torch's own writers and readers are not used, nor s3torchconnector's, which are made of them: they unpickle `.metadata`, so that a
checkpoint could run code, have no checksums, and copy a rank's whole state before they plan which part of it the rank stores.
"""

# ruff: noqa: TID253 - see state.py

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.tensor import DTensor

from sagemaker_channels.checkpointing import files
from sagemaker_channels.checkpointing.place import Bucket, Folder
from sagemaker_channels.errors import CorruptError


class Chunks:
    """The chunks that this rank stores. The ranks agree on them once, and again when a tensor's form changes."""

    def __init__(self, gather: Callable[[Any], list[Any]]) -> None:
        self._gather = gather
        self._forms: list[Any] | None = None
        self._items: list[WriteItem] = []

    def of(self, tensors: Mapping[str, torch.Tensor], rank: int) -> list[tuple[list[Any], torch.Tensor]]:
        """Return what this rank stores: name, offsets, sizes and bytes of each chunk, and its tensor. A collective call."""
        planner = _planner(tensors, is_coordinator=rank == 0)
        forms = [(name, tensor.dtype, tensor.shape, _local(tensor).shape) for name, tensor in tensors.items()]
        if not all(self._gather(forms == self._forms)):
            plans = self._gather(planner.create_local_plan())
            assigned = planner.create_global_plan(plans)[0] if rank == 0 else None
            self._items = self._gather(assigned)[0][rank].items
            self._forms = forms
        found = []
        for item in self._items:
            tensor: Any = planner.resolve_data(item)
            found.append(([item.index.fqn, *_box(item), tensor.nbytes], tensor))
        return found


def copy(index: bytes, tensors: Sequence[torch.Tensor], memory: Callable[[int], Any]) -> int:
    """Copy an index and tensors to memory as files.py describes; from GPUs, too. Return the size."""
    places = files.layout([len(index), *(tensor.nbytes for tensor in tensors)])
    target = memory(places[-1][1])
    view = torch.frombuffer(target, dtype=torch.uint8)
    for start, end in places:
        files.HEAD.pack_into(target, start - files.HEAD.size, end - start, 0)
    target[slice(*places[0])] = index
    for tensor, (start, end) in zip(tensors, places[1:], strict=True):
        if tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
            # torch's copy waits for all its threads: eight times as long on a busy machine.
            ctypes.memmove(view.data_ptr() + start, tensor.data_ptr(), end - start)
        elif start < end:
            view[start:end].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return places[-1][1]


def read(
    place: Folder | Bucket, indexes: Mapping[str, Any], like: Mapping[str, torch.Tensor], sharded: Mapping[str, DTensor]
) -> dict[str, torch.Tensor]:
    """Return tensors `like` those that were saved: of a sharded tensor this rank's part, of others all.

    Args:
        place: Where the checkpoint is stored.
        indexes: What each of its files has.
        like: Their shapes and types.
        sharded: Those of them that this rank has a part of.

    Raises:
        CorruptError: A chunk is not what was saved, or missing.
        ValueError: A sharded tensor has another shape.
    """
    found = {name: torch.empty_like(_local(sharded.get(name, each)), device="cpu") for name, each in like.items()}
    boxes: dict[str, Any] = {name: ([0] * each.dim(), list(each.shape)) for name, each in like.items()}
    for item in _planner(sharded, is_coordinator=False).create_local_plan().items:
        boxes[item.index.fqn] = _box(item)
    for name in like.keys() & sharded.keys():
        if like[name].shape != sharded[name].shape:
            raise ValueError(f"size mismatch for {name}: {tuple(like[name].shape)} and {tuple(sharded[name].shape)}")
    left = {name: tensor.numel() for name, tensor in found.items()}
    for file, index in indexes.items():
        positions = files.layout([index["bytes"], *(size for *_, size in index["chunks"])])[1:]
        needed = []
        for (name, offsets, sizes, _), (start, _) in zip(index["chunks"], positions, strict=True):
            spans = _overlap(boxes[name], (offsets, sizes)) if name in found else [(0, 0)]
            if all(low < high for low, high in spans):
                needed.append((name, offsets, sizes, spans, start))
        if not needed:
            continue
        with files.opened(place, file) as record:
            for name, offsets, sizes, spans, start in needed:
                chunk = torch.frombuffer(record(start), dtype=like[name].dtype).view(sizes)
                part = _part(found[name], spans, boxes[name][0]).copy_(_part(chunk, spans, offsets))
                left[name] -= part.numel()
    if missing := [name for name, count in left.items() if count]:
        raise CorruptError(f"it lacks a part of {missing[0]}")
    return found


def _planner(tensors: Mapping[str, torch.Tensor], *, is_coordinator: bool) -> DefaultSavePlanner:
    planner = DefaultSavePlanner(flatten_state_dict=False)
    planner.set_up_planner(dict(tensors), is_coordinator=is_coordinator)
    return planner


def _box(item: WriteItem) -> tuple[list[int], list[int]]:
    """Return the offsets and sizes of a chunk in its tensor."""
    assert item.tensor_data is not None
    return list(item.tensor_data.chunk.offsets), list(item.tensor_data.chunk.sizes)


def _overlap(one: Any, other: Any) -> list[tuple[int, int]]:
    """Return where what two boxes share begins and ends in each dimension."""
    return [(max(a, b), min(a + n, b + m)) for a, n, b, m in zip(*one, *other, strict=True)]


def _part(tensor: torch.Tensor, spans: Any, offsets: Any) -> torch.Tensor:
    """Return a part of a tensor that is at these offsets."""
    return tensor[tuple(slice(low - at, high - at) for (low, high), at in zip(spans, offsets, strict=True))]


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
