"""Sends a worker's batches of tensors through the shared memory of shared_memory.py.

torch's own way makes new shared memory for each tensor of a batch. The kernel allocates and clears its pages one by one, which
takes longer than copying the images there by far, and for tensors of floats longer than decoding them. So in a worker
`default_collate` stacks tensors in memory that the worker reuses, from which the training process copies the batch into memory of
its own. Small tensors, such as labels, go through the queue by value: torch would connect to the worker for each. Tensors that are
made in any other way are sent as torch does it.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

from sagemaker_channels.torch_data.batch_memory import room
from sagemaker_channels.torch_data.shared_memory import LEAST_BYTES, pieces, take_into


def install() -> None:
    """Let this worker's default_collate and queues use the shared memory."""
    default_collate_fn_map.update(_instead_of_torchs(_stacked))
    reducing: Any = ForkingPickler
    reducing.register(torch.Tensor, _reduce)


def collated(batch: list[Any]) -> Any:
    """Do what torch's default_collate does, in a thread of the training process, with memory that is used again."""
    return collate(batch, collate_fn_map={**default_collate_fn_map, **_instead_of_torchs(_stacked_here)})


def _instead_of_torchs(function: Callable[..., Any]) -> dict[Any, Callable[..., Any]]:
    """Return the function as that for tensors, unless the script has replaced torch's."""
    return {torch.Tensor: function} if default_collate_fn_map[torch.Tensor] is collate_tensor_fn else {}


def _stacked_here(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
    if not _are_plain(batch) or any(each.requires_grad for each in batch):
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return torch.stack(list(batch), 0, out=_tensor(room(len(batch) * batch[0].nbytes), batch))


def _stacked(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
    """Stack tensors, as torch's function for them does, in shared memory if there is room."""
    if not _are_plain(batch) or get_worker_info() is None:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    size = len(batch) * batch[0].nbytes
    if size < LEAST_BYTES:
        return torch.stack(list(batch))
    reserved = pieces().reserve(size)
    if reserved is None:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    piece, memory = reserved
    weakref.finalize(memory, piece.ended.append, None).atexit = False  # The tensor and its views keep it alive.
    return torch.stack(list(batch), 0, out=_tensor(memory, batch))


def _are_plain(batch: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors are of one kind that is nothing but its bytes, and not empty."""
    first = batch[0]
    plain = first.layout is torch.strided and first.device.type == "cpu" and not (first.is_quantized or first.is_nested)
    alike = plain and all(each.dtype is first.dtype and each.shape == first.shape for each in batch)
    return bool(alike and first.nbytes > 0)


def _tensor(memory: Any, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    return _by_value(batch[0].dtype, (len(batch), *batch[0].shape), memory)


def _reduce(tensor: torch.Tensor) -> Any:
    """Return how a tensor is pickled for another process."""
    if size := tensor.nbytes if _is_simple(tensor) else 0:
        if size >= LEAST_BYTES and (place := pieces().sent(tensor.data_ptr())) is not None:
            return _take, (tensor.dtype, tuple(tensor.shape), size, *place)
        if size < LEAST_BYTES and get_worker_info() is not None:
            data = bytearray(ctypes.string_at(tensor.data_ptr(), size))
            return _by_value, (tensor.dtype, tuple(tensor.shape), data)
    reduce: Callable[[torch.Tensor], Any] = reductions.reduce_tensor
    return reduce(tensor)


def _is_simple(tensor: Any) -> bool:
    """Return whether a tensor is only its bytes, and no process expects to share them."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
        return False
    kinds = (tensor.requires_grad, tensor.is_quantized, tensor.is_conj(), tensor.is_neg(), tensor.is_shared())
    return not any(kinds)


def _take(dtype: torch.dtype, shape: tuple[int, ...], size: int, *place: Any) -> torch.Tensor:
    # In one thread: torch's own copy would use them all, and take the cores on which the workers decode.
    array = room(size)
    take_into(array, *place)
    return _by_value(dtype, shape, array)


def _by_value(dtype: torch.dtype, shape: tuple[int, ...], data: Any) -> torch.Tensor:
    return torch.frombuffer(data, dtype=dtype).view(shape)
