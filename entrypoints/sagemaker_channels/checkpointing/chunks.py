"""The chunks of tensors that a rank stores and reads, by torch.distributed.checkpoint's planners.

A tensor that all ranks have is stored once, by the rank that has the least to store; a sharded tensor by the ranks of its shards.
Reading finds the parts of a rank's shards in the chunks of any other number of ranks.

torch's own writers and readers are not used, nor s3torchconnector's, which are made of them. They unpickle `.metadata`, so that a
checkpoint could run code, believe each file that `.metadata` names, although SageMaker may restore it without the others, have no
checksums, copy a rank's whole state before they plan which part of it the rank stores, and save without a pause only in a
process that needs a process group, or in a thread of the training, which could not fork the next epoch's workers during an upload.
"""

# ruff: noqa: TID253 - see state.py

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.tensor import DTensor

from sagemaker_channels.checkpointing import files
from sagemaker_channels.checkpointing.place import Bucket, Folder

_ALIGNMENT = 64  # bytes; of each tensor in the memory

Record = tuple[str, tuple[int, int]]  # its number as a name, and where it begins and ends in the memory


class Chunks:
    """What this rank stores. The ranks agree on it once, and again when a tensor's form changes."""

    def __init__(self, gather: Callable[[Any], list[Any]]) -> None:
        self._gather = gather
        self._forms: list[Any] | None = None
        self._items: list[Any] = []
        self._records: list[Record] = []
        self.index: list[Any] = []  # name, offsets, sizes and record of each chunk

    def copy(self, tensors: Mapping[str, torch.Tensor], rank: int, memory: Callable[[int], Any]) -> list[Record]:
        """Copy the chunks to memory, and return the records of the rank's file. A collective call."""
        planner = DefaultSavePlanner(flatten_state_dict=False)
        planner.set_up_planner(dict(tensors), is_coordinator=rank == 0)
        forms = [(name, tensor.dtype, tensor.shape, _local(tensor).shape) for name, tensor in tensors.items()]
        if not all(self._gather(forms == self._forms)):
            plans = self._gather(planner.create_local_plan())
            assigned = planner.create_global_plan(plans)[0] if rank == 0 else None
            self._items = self._gather(assigned)[0][rank].items
            self._lay_out()
            self._forms = forms
        chunks: list[Any] = [planner.resolve_data(item) for item in self._items]
        target = memory(self._records[-1][1][1] if self._records else 0)
        for tensor, (_, (start, end)) in zip(chunks, self._records, strict=True):
            _copy(tensor, target, start, end)
        return self._records

    def _lay_out(self) -> None:
        self.index, self._records, end = [], [], 0
        for number, item in enumerate(self._items):
            chunk, properties = item.tensor_data.chunk, item.tensor_data.properties
            self.index.append([item.index.fqn, list(chunk.offsets), list(chunk.sizes), str(number)])
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = start + chunk.sizes.numel() * properties.dtype.itemsize
            self._records.append((str(number), (start, end)))


def read(
    place: Folder | Bucket, indexes: Mapping[str, Any], like: Mapping[str, torch.Tensor], sharded: Mapping[str, DTensor]
) -> dict[str, torch.Tensor]:
    """Return tensors `like` those that were saved: of a sharded tensor this rank's part, of others all.

    `indexes` has the chunks of each file. Raises CorruptError if a chunk is not what was saved, and ValueError if a sharded tensor
    has another shape.
    """
    about = {name: TensorStorageMetadata(TensorProperties(each.dtype), each.shape, []) for name, each in like.items()}
    stored = {}
    for path, chunks in indexes.items():
        for name, offsets, sizes, record in chunks:
            if name in about:
                about[name].chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
                stored[MetadataIndex(name, offsets)] = path, sizes, record
    found = {name: torch.empty_like(_local(sharded.get(name, each)), device="cpu") for name, each in like.items()}
    planner = DefaultLoadPlanner(flatten_state_dict=False)
    planner.set_up_planner({name: sharded.get(name, each) for name, each in found.items()}, Metadata(about))  # type: ignore[arg-type]
    by_file = defaultdict(list)
    for item in planner.create_local_plan().items:
        path, sizes, record = stored[item.storage_index]
        by_file[path].append((record, sizes, item))
    for path, items in by_file.items():
        for (_, sizes, item), data in zip(items, files.read(place, path, [each[0] for each in items]), strict=True):
            target = found[item.dest_index.fqn]
            chunk = torch.frombuffer(data, dtype=target.dtype).view(sizes)
            part = chunk[_slices(item.storage_offsets, item.lengths)]
            target[_slices(item.dest_offsets, item.lengths)] = part
    return found


def _slices(offsets: Any, lengths: Any) -> tuple[slice, ...]:
    return tuple(slice(start, start + length) for start, length in zip(offsets, lengths, strict=True))


def _copy(tensor: torch.Tensor, memory: Any, start: int, end: int) -> None:
    """Copy a tensor to memory; from a GPU, too."""
    if start == end:
        return
    target = torch.frombuffer(memory, dtype=tensor.dtype, offset=start, count=tensor.numel()).view(tensor.shape)
    if tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        # torch's copy waits for all its threads: eight times as long on a busy machine.
        ctypes.memmove(target.data_ptr(), tensor.data_ptr(), end - start)
    else:
        target.copy_(tensor)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
