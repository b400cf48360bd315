"""The parts of a training as tensors and plain values, and back.

Modules and optimizers are saved under the names of their parameters, without DistributedDataParallel's or torch.compile's prefixes,
so that any number of ranks, sharded or not, can load them.
"""

# ruff: noqa: TID253 - only the module of Checkpoints imports it, when it saves or loads

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict as distributed
from torch.distributed.tensor import DTensor

_TENSOR = "sagemaker_channels.tensor"  # the key of a dict that stands for a tensor, with its name
_LENIENT = distributed.StateDictOptions(strict=False)  # A parameter that never had a gradient has no state.


def collect(parts: Mapping[str, Any], rank: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of modules, optimizers and other parts by name, and the rest of their states.

    Parameters and optimizers' states are the same on all ranks, or shards; of everything else the state of rank 0 is saved.
    """
    tensors: dict[str, torch.Tensor] = {}
    rest = {}
    for name, part in parts.items():
        fresh = isinstance(part, torch.optim.Optimizer) and not part.state
        state = _state_of(part, parts)
        rest[name] = _without_tensors({**state, "state": {}} if fresh else state, name, tensors)
    if rank > 0:
        shared = [part for part in parts.values() if isinstance(part, nn.Module)]
        parameters = {each.data_ptr() for module in shared for each in module.parameters()}
        optimizers = tuple(f"{name}/" for name, part in parts.items() if isinstance(part, torch.optim.Optimizer))
        tensors = {
            name: tensor
            for name, tensor in tensors.items()
            if isinstance(tensor, DTensor) or name.startswith(optimizers) or tensor.data_ptr() in parameters
        }
    return tensors, rest


def layouts(parts: Mapping[str, Any]) -> dict[str, DTensor]:
    """Return the sharded tensors of the parts, into which a checkpoint is loaded."""
    tensors: dict[str, torch.Tensor] = {}
    for name, part in parts.items():
        if isinstance(part, nn.Module) or (isinstance(part, torch.optim.Optimizer) and _is_sharded(part)):
            _without_tensors(_state_of(part, parts), name, tensors)
    return {name: tensor for name, tensor in tensors.items() if isinstance(tensor, DTensor)}


def apply(parts: Mapping[str, Any], rest: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Load the parts' states. Raises RuntimeError, ValueError or KeyError for a state of another model or optimizer."""
    for name, part in parts.items():
        state = _with_tensors(rest[name], tensors)
        if isinstance(part, nn.Module):
            distributed.set_model_state_dict(part, state)
        elif isinstance(part, torch.optim.Optimizer):
            distributed.set_optimizer_state_dict(_model_of(part, parts), part, state, options=_LENIENT)
        else:
            part.load_state_dict(state)


def names_in(rest: Any) -> list[str]:
    """Return the names of the tensors that a rest refers to."""
    if isinstance(rest, dict):
        return [rest[_TENSOR]] if _TENSOR in rest else [name for each in rest.values() for name in names_in(each)]
    return [name for each in rest for name in names_in(each)] if isinstance(rest, (list, tuple)) else []


def random_states() -> dict[str, Any]:
    """Return the states of this process's random generators."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, keys, *others = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, keys.tolist(), *others]
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_states(state: Mapping[str, Any]) -> None:
    """Set the random generators to a state."""
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
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "Unsupported" in line), str(error))
        raise TypeError(
            "a state_dict() has more than tensors, numbers, texts and containers, and loading it could run code: "
            f"{reason.strip():.150}"
        ) from error
    return stream.getvalue()


def unpacked(data: bytes | bytearray) -> Any:
    """Return what was packed; torch runs no code from it."""
    return torch.load(BytesIO(data), map_location="cpu", weights_only=True)


def _state_of(part: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(part, nn.Module):
        return distributed.get_model_state_dict(part)
    if isinstance(part, torch.optim.Optimizer):
        fresh = not part.state
        state = distributed.get_optimizer_state_dict(_model_of(part, parts), part)
        if fresh:  # torch has made a state, by a step of zeros.
            part.state.clear()
        return state
    return part.state_dict()


def _is_sharded(optimizer: torch.optim.Optimizer) -> bool:
    return any(isinstance(parameter, DTensor) for group in optimizer.param_groups for parameter in group["params"])


def _model_of(optimizer: torch.optim.Optimizer, parts: Mapping[str, Any]) -> nn.Module:
    first = next(parameter for group in optimizer.param_groups for parameter in group["params"])
    for part in parts.values():
        if isinstance(part, nn.Module) and any(parameter is first for parameter in part.parameters()):
            return part
    raise ValueError("an optimizer needs its model in the same call; add model=model")


def _without_tensors(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach()
        return {_TENSOR: name}
    if isinstance(value, Mapping):
        return {key: _without_tensors(each, f"{name}/{key}", tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        found = [_without_tensors(each, f"{name}/{number}", tensors) for number, each in enumerate(value)]
        return found if isinstance(value, list) else tuple(found)
    return value


def _with_tensors(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _with_tensors(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        found = [_with_tensors(each, tensors) for each in value]
        return found if isinstance(value, list) else tuple(found)
    return value
