"""Batches of tensors, which workers send through the shared memory of shared_memory.py.

torch makes new shared memory for each tensor of a batch. The kernel allocates and clears its pages one by one, which takes longer
than copying the images there by far, and for tensors of floats longer than decoding them. So `sendable` marks a batch's tensors as
`SharedTensor`, which multiprocessing's pickler writes to memory that the worker reuses. The training process copies them into
memory of its own. Small ones, such as labels, are pickled by value: torch would connect to the worker for each. Other tensors are
sent as torch does it.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing import reductions
from torch.utils.data import default_collate, get_worker_info
from torch.utils.data._utils.collate import collate as collate_by
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from sagemaker_channels.torch_data.shared_memory import KEPT_BYTES, LEAST_BYTES, is_ready, put, take_into

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_kept: deque[Any] = deque(maxlen=2)  # memory of freed batches; a loop frees about one batch for each new one


class SharedTensor(torch.Tensor):
    """A tensor that is cheap to send to another process of this machine, which receives a plain tensor."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl  # Its functions return plain tensors.

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain: Any = self.as_subclass(torch.Tensor)
        return plain.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.as_subclass(torch.Tensor).clone()


def collate(samples: list[Any]) -> Any:
    """Make a batch as torch's default_collate does; the `collate_fn` of a DataLoader whose workers send it cheaply."""
    return sendable(collated(samples))


def collated(samples: list[Any]) -> Any:
    """Do what torch's default_collate does, in memory that is used again, unless the script has changed how tensors are stacked."""
    is_torchs = default_collate_fn_map[torch.Tensor] is collate_tensor_fn
    return collate_by(
        samples, collate_fn_map={**default_collate_fn_map, **({torch.Tensor: _stacked} if is_torchs else {})}
    )


def collating(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return a loader's collate_fn; instead of torch's, one that uses memory again."""
    return collated if function is default_collate else function


def sendable(batch: Any) -> Any:
    """Return a batch that its worker's queue sends through shared memory; elsewhere, and without such memory, as it is."""
    return _marked(batch) if get_worker_info() is not None and is_ready() else batch


def _marked(value: Any) -> Any:
    if type(value) is torch.Tensor:
        return value.as_subclass(SharedTensor) if _is_simple(value) else value
    if type(value) is dict:
        return {name: _marked(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_marked, value))
    return type(value)(*map(_marked, value)) if isinstance(value, tuple) and hasattr(value, "_fields") else value


def _stacked(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
    if not _are_plain(batch) or any(each.requires_grad for each in batch):
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    memory = room(len(batch) * batch[0].nbytes)
    return torch.stack(list(batch), 0, out=_tensor(batch[0].dtype, (len(batch), *batch[0].shape), memory))


def _are_plain(batch: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors are of one kind that is nothing but its bytes, and not empty."""
    first = batch[0]
    plain = first.layout is torch.strided and first.device.type == "cpu" and not (first.is_quantized or first.is_nested)
    forms = {(type(each), each.dtype, each.shape) for each in batch} if plain else ()
    alike = len(forms) == 1 and type(first) is torch.Tensor
    return bool(alike and first.nbytes > 0)


def _is_simple(tensor: Any) -> bool:
    """Return whether a tensor is only its bytes, and no process expects to share them."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
        return False
    kinds = (tensor.requires_grad, tensor.is_quantized, tensor.is_conj(), tensor.is_neg(), tensor.is_shared())
    return tensor.nbytes > 0 and not any(kinds)


def _reduce(tensor: SharedTensor) -> Any:
    if not _is_simple(tensor):  # A collate_fn has changed it.
        plain = tensor.detach().as_subclass(torch.Tensor).requires_grad_(tensor.requires_grad)
        return reductions.reduce_tensor(plain)  # type: ignore[no-untyped-call]
    data = memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())).cast("B")
    if len(data) < LEAST_BYTES:
        return _tensor, (tensor.dtype, tuple(tensor.shape), bytearray(data))
    if (place := put(data)) is not None:
        return _take, (tensor.dtype, tuple(tensor.shape), len(data), *place)
    return reductions.reduce_tensor(tensor.as_subclass(torch.Tensor))  # type: ignore[no-untyped-call]


def room(size: int) -> npt.NDArray[np.uint8] | bytearray:
    """Return an array of so many bytes, in the memory of an earlier one if that is free and too large for glibc to keep."""
    try:
        import numpy as np
    except ModuleNotFoundError:  # torch does not need it, and this needs only memory that is not cleared first
        return bytearray(size)

    if size <= KEPT_BYTES:
        return np.empty(size, np.uint8)
    memory = None
    with suppress(IndexError):  # Another thread may take the last one.
        while memory is None or len(memory) != size:
            memory = _kept.popleft()
    if memory is None or len(memory) != size:
        memory = np.empty(size, np.uint8)
    array = memory[:]
    weakref.finalize(array, _kept.append, memory).atexit = False  # Views of it, and tensors, keep it alive.
    return array


def _take(dtype: torch.dtype, shape: tuple[int, ...], size: int, *place: Any) -> torch.Tensor:
    # In one thread: torch's own copy would use them all, and take the cores on which the workers decode.
    array = room(size)
    take_into(array, *place)
    return _tensor(dtype, shape, array)


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], data: Any) -> torch.Tensor:
    return torch.frombuffer(data, dtype=dtype).view(shape)


ForkingPickler.register(SharedTensor, _reduce)
