"""The parts of a training as tensors and plain values, and back.

Modules and optimizers are saved under the names of their parameters, without DistributedDataParallel's or torch.compile's prefixes,
so that any number of ranks, sharded or not, can load them. A meta tensor, which has no data, stands for each tensor in its state.
"""

# ruff: noqa: TID253 - only the module of Checkpoints imports it, when it saves or loads

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict as distributed
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from sagemaker_channels.errors import CorruptError

_LENIENT = distributed.StateDictOptions(strict=False)  # A parameter that never had a gradient has no state.


def collect(parts: Mapping[str, Any], rank: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of modules, optimizers and other parts by name, and their states without tensors.

    Parameters and optimizers' states are the same on all ranks, or shards; of everything else the state of rank 0 is saved.
    """
    tensors: dict[str, torch.Tensor] = {}

    def without_data(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name in tensors:
            raise ValueError(f"two tensors of a state_dict() have the name {name}; rename a key")
        tensors[name] = tensor.detach()
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    states = {}
    for name, part in parts.items():
        state = _state_of(part, parts)
        if isinstance(part, Optimizer) and not part.state:
            state = {**state, "state": {}}
        states[name] = replace_tensors(state, name, without_data)
    if rank > 0:
        shared = [part for part in parts.values() if isinstance(part, nn.Module)]
        parameters = {each.data_ptr() for module in shared for each in module.parameters()}
        optimizers = tuple(f"{name}." for name, part in parts.items() if isinstance(part, Optimizer))
        tensors = {
            name: tensor
            for name, tensor in tensors.items()
            if isinstance(tensor, DTensor) or name.startswith(optimizers) or tensor.data_ptr() in parameters
        }
    return tensors, states


def tensors_of(states: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for name, value in states.items():
        replace_tensors(value, name, found.__setitem__)
    return found


def sharded(parts: Mapping[str, Any]) -> dict[str, DTensor]:
    """Return the sharded tensors of modules and optimizers, into which a checkpoint is loaded."""
    kinds = (nn.Module, Optimizer)
    states = {name: _state_of(part, parts) for name, part in parts.items() if isinstance(part, kinds)}
    return {name: tensor for name, tensor in tensors_of(states).items() if isinstance(tensor, DTensor)}


def apply(
    parts: Mapping[str, Any],
    states: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    sharded: Mapping[str, DTensor],
) -> None:
    """Load the parts' states; of the sharded tensors, `tensors` has this rank's parts.

    Raises RuntimeError, ValueError or KeyError if a state is of another model or optimizer.
    """

    def loaded(name: str, _: torch.Tensor) -> torch.Tensor:
        if name not in sharded:
            return tensors[name]
        sharded[name].to_local().copy_(tensors[name])
        return sharded[name]

    for name, part in parts.items():
        state = replace_tensors(states[name], name, loaded)
        if isinstance(part, nn.Module):
            distributed.set_model_state_dict(part, state)
        elif isinstance(part, Optimizer):
            distributed.set_optimizer_state_dict(_model_of(part, parts), part, state, options=_LENIENT)
        else:
            part.load_state_dict(state)


def replace_tensors(value: Any, name: str, other: Callable[[str, torch.Tensor], Any]) -> Any:
    """Return a copy of a state in which each tensor is replaced. A tensor's name is that of the part and of its keys."""
    if isinstance(value, torch.Tensor):
        return other(name, value)
    if isinstance(value, Mapping):
        return {key: replace_tensors(each, f"{name}.{key}", other) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        found = [replace_tensors(each, f"{name}.{number}", other) for number, each in enumerate(value)]
        return found if isinstance(value, list) else tuple(found)
    return value


def random_states() -> dict[str, Any]:
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, keys, *others = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, keys.tolist(), *others]
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_states(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(state["numpy"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def packed(state: Any) -> bytes:
    """Return a state as bytes. Raises TypeError if it could not be loaded again: it has more than plain values and tensors."""
    stream = BytesIO()
    torch.save(state, stream)
    try:
        unpacked(stream.getvalue())
    except CorruptError as error:
        raise TypeError(f"a state_dict() cannot be saved: {error}") from error
    return stream.getvalue()


def unpacked(data: bytes | bytearray) -> Any:
    """Return what was packed; torch runs no code from it. Raises CorruptError if it is something else."""
    try:
        return torch.load(BytesIO(data), weights_only=True)
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "Unsupported" in line), str(error))
        raise CorruptError(
            f"it has more than tensors, numbers, texts and containers, and loading it could run code: {reason.strip():.150}"
        ) from error


def _state_of(part: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(part, nn.Module):
        return distributed.get_model_state_dict(part)
    if not isinstance(part, Optimizer):
        return part.state_dict()
    fresh = not part.state
    state = distributed.get_optimizer_state_dict(_model_of(part, parts), part)
    if fresh:  # torch has made a state, by a step of zeros.
        part.state.clear()
    return state


def _model_of(optimizer: Optimizer, parts: Mapping[str, Any]) -> nn.Module:
    first = next(parameter for group in optimizer.param_groups for parameter in group["params"])
    for part in parts.values():
        if isinstance(part, nn.Module) and any(parameter is first for parameter in part.parameters()):
            return part
    raise ValueError("an optimizer needs its model in the same call; add model=model")
