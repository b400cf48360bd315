"""What the torch process group knows: this process's rank, and by its store listings, so that no rank waits for another."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError  # Python's own only since 3.11
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed
from torch.utils.data import get_worker_info

from sagemaker_channels.epoch.placement import Placement, placement_of_rank
from sagemaker_channels.fetching.background import in_background
from sagemaker_channels.fetching.silence import warn
from sagemaker_channels.job.environment import Environment

T = TypeVar("T")

_SECONDS = 20.0  # until an answer of the store, which is in the process of rank 0 or of torchrun
_stores: dict[int, Any] = {}  # by process: a worker that was forked must not use its parent's connection


def exchange(name: str, text: str) -> str | None:
    """Store a text unless the job has one under its name; return the one that is stored, None without a process group."""
    return _asked(name, lambda store, key: str(store.compare_set(key, "", text).decode()))


def is_stored(name: str) -> bool:
    """Return whether the job has a text under this name."""
    return bool(_asked(name, lambda store, key: store.check([key])))


def _asked(name: str, ask: Callable[[Any, str], T]) -> T | None:
    """Return what the job's store answers about a name; None if there is no store, or it does not answer.

    In a thread, since torch may wait for ever: a worker of a rank 0 that was killed holds its socket, and never answers.
    """
    process, attempt = os.getpid(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def answer() -> T | None:
        if process not in _stores:
            _stores[process] = _store()
        store = _stores[process]
        return None if store is None else ask(store, f"launcher/{attempt}/{name}")

    try:
        return in_background(answer, "job's store").result(1.5 * _SECONDS)  # The store's own limit says more.
    except (RuntimeError, FutureTimeoutError) as error:
        _stores[process] = None  # Another attempt might wait as long.
        reason = str(error)[:200] or f"the job's store has not answered for {1.5 * _SECONDS:g} s"
        warn(f"{name.partition(' from ')[0]}: is not compared with what other ranks read: {reason}")
        return None


def _store() -> Any:
    """Return a connection to the job's store; None if there is none, or this release of torch cannot make a second one."""
    if not torch.distributed.is_available():
        return None
    distributed: Any = torch.distributed
    if distributed.is_initialized():
        default = distributed.distributed_c10d._get_default_store()
        inner = default
        while hasattr(inner, "underlying_store"):
            inner = inner.underlying_store
        if isinstance(
            inner, distributed.TCPStore
        ):  # `clone` would wait for a rank 0 that has died as long as the group does.
            return _connected(inner.host, inner.port)
        if not hasattr(default, "clone"):
            return None if get_worker_info() else default
        store = default.clone()
        store.set_timeout(timedelta(seconds=_SECONDS))
        return store
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return _connected(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def _connected(host: str, port: int) -> Any:
    distributed: Any = torch.distributed
    return distributed.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_SECONDS))


def group_placement(environment: Environment) -> Placement | None:
    """Return this process's placement by the torch process group, or None if there is no group."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return placement_of_rank(rank, world_size, len(environment.hosts), os.environ)
