"""The chunks of tensors that a rank stores, and those that it reads, by torch.distributed.checkpoint's planners.

A tensor that all ranks have is stored once, by the rank that has the least to store; a sharded tensor by the ranks of its shards.
Reading finds the parts of a rank's shards in the chunks of any other number of ranks.
"""

# ruff: noqa: TID253 - see state.py

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.tensor import DTensor

from sagemaker_channels.checkpointing.place import Bucket, Folder
from sagemaker_channels.errors import CorruptError

_ALIGNMENT = 64  # bytes; of each chunk in memory and in its file

Gather = Callable[[Any], list[Any]]


class Chunks:
    """The chunks that this rank stores. The ranks agree on them once, and again when a tensor's form changes."""

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._forms: list[Any] | None = None
        self._items: list[WriteItem] = []

    def of(self, tensors: Mapping[str, torch.Tensor], rank: int) -> list[tuple[WriteItem, Any]]:
        """Return what this rank stores. A collective call."""
        planner = DefaultSavePlanner(flatten_state_dict=False)
        planner.set_up_planner(dict(tensors), is_coordinator=rank == 0)
        forms = [(name, tensor.dtype, tensor.shape, local(tensor).shape) for name, tensor in tensors.items()]
        if not all(self._gather(forms == self._forms)):
            plans = self._gather(planner.create_local_plan())
            assigned = planner.create_global_plan(plans)[0] if rank == 0 else None
            self._items = self._gather(assigned)[0][rank].items
            self._forms = forms
        return [(item, planner.resolve_data(item)) for item in self._items]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def layout(tensors: Sequence[torch.Tensor], tail: int) -> list[tuple[int, int]]:
    """Return where the tensors and a tail of so many bytes begin and end in a file."""
    found: list[tuple[int, int]] = []
    end = 0
    for size in [*(tensor.numel() * tensor.element_size() for tensor in tensors), tail]:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = start + size
        found.append((start, end))
    return found


def copy(chunks: Sequence[torch.Tensor], tail: bytes, places: Sequence[tuple[int, int]], memory: Any) -> None:
    """Copy tensors and a tail to their places in memory; from GPUs, too."""
    target = torch.frombuffer(memory, dtype=torch.uint8)
    for tensor, (start, end) in zip(chunks, places, strict=False):
        if tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
            # torch's copy waits for all its threads: eight times as long on a busy machine.
            ctypes.memmove(target.data_ptr() + start, tensor.data_ptr(), end - start)
        elif start < end:
            target[start:end].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    memory[places[-1][0] : places[-1][1]] = tail


def row(item: WriteItem, file: str, place: tuple[int, int], digest: int) -> list[Any]:
    """Return a chunk's line of the manifest."""
    data = item.tensor_data
    assert data is not None
    dtype = str(data.properties.dtype).removeprefix("torch.")
    return [
        item.index.fqn,
        dtype,
        list(data.size),
        [list(data.chunk.offsets), list(data.chunk.sizes), file, *place, digest],
    ]


def table(rows: Sequence[list[Any]]) -> dict[str, Any]:
    """Return the manifest's tensors: name -> type, shape and chunks."""
    found: dict[str, Any] = {}
    for name, dtype, shape, chunk in rows:
        found.setdefault(name, {"dtype": dtype, "shape": shape, "chunks": []})["chunks"].append(chunk)
    return found


class Reader:
    """The files of one checkpoint; a context."""

    def __init__(self, place: Folder | Bucket, checkpoint: str) -> None:
        self._place, self._checkpoint = place, checkpoint
        self._opened = ExitStack()
        self._file: tuple[str, Any] = ("", None)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def piece(self, file: str, start: int, end: int, digest: int) -> bytearray:
        """Return a piece of a file. Raises CorruptError if it is not what was saved."""
        if file != self._file[0]:
            self._opened.close()
            self._file = (file, self._opened.enter_context(self._place.open(f"{self._checkpoint}/{file}")))
        data = bytearray(end - start)
        self._file[1].seek(start)
        if self._file[1].readinto(data) != len(data) or zlib.crc32(data) != digest:
            raise CorruptError(f"{file} was changed or damaged: bytes {start} to {end} are not those that were saved")
        return data

    def tensors(self, stored: Mapping[str, Any], sharded: Mapping[str, DTensor]) -> dict[str, torch.Tensor]:
        """Return tensors of the manifest's table: of a sharded tensor this rank's part, of others all.

        Raises:
            CorruptError: A chunk is not what was saved.
            ValueError: A sharded tensor has another shape.
        """
        targets: dict[str, Any] = {}
        for name, each in stored.items():
            targets[name] = sharded.get(name, torch.empty(0))
            if name not in sharded:
                targets[name] = torch.empty(each["shape"], dtype=getattr(torch, each["dtype"]))
        planner = DefaultLoadPlanner(flatten_state_dict=False)
        planner.set_up_planner(dict(targets), Metadata({name: _metadata(each) for name, each in stored.items()}))
        found = {name: torch.empty_like(local(each), device="cpu") for name, each in targets.items()}
        plan = planner.create_local_plan()
        chunks = {(name, tuple(chunk[0])): chunk for name, each in stored.items() for chunk in each["chunks"]}
        items = [(chunks[item.storage_index.fqn, tuple(item.storage_index.offset or ())], item) for item in plan.items]
        for (_, sizes, *piece), item in sorted(items, key=lambda pair: pair[0][2:4]):
            name = item.dest_index.fqn
            if piece[1] == piece[2]:
                continue
            chunk = torch.frombuffer(self.piece(*piece), dtype=getattr(torch, stored[name]["dtype"])).view(sizes)
            _part(found[name], item.dest_offsets, item.lengths).copy_(_part(chunk, item.storage_offsets, item.lengths))
        return found


def _part(tensor: torch.Tensor, offsets: Sequence[int], lengths: Sequence[int]) -> torch.Tensor:
    return tensor[tuple(slice(start, start + length) for start, length in zip(offsets, lengths, strict=True))]


def _metadata(stored: Mapping[str, Any]) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes, *_ in stored["chunks"]]
    properties = TensorProperties(dtype=getattr(torch, stored["dtype"]))
    return TensorStorageMetadata(properties, torch.Size(stored["shape"]), chunks)
