"""Comparing listings by the store of the torch process group, so that no rank waits for another."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import Any

import torch.distributed

from entrypoints.fetching.silence import warn_once

_SECONDS = 20.0  # until an answer of the store, which is in the process of rank 0 or of torchrun


def exchange(name: str, text: str) -> str | None:
    """Store a text unless the job has one under its name; return the one that is stored, None without a process group."""
    try:
        store = _store(os.getpid())
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return None if store is None else str(store.compare_set(f"launcher/{attempt}/{name}", "", text).decode())
    except RuntimeError as error:
        warn_once(
            f"{name.partition(' from ')[0]}: its listing is not compared with those of other hosts: {str(error)[:200]}"
        )
        return None


@cache
def _store(process: int) -> Any:
    """Return a connection of this process: a worker that was forked must not use its parent's."""
    if not torch.distributed.is_available():
        return None
    if torch.distributed.is_initialized():
        default: Any = torch.distributed.distributed_c10d._get_default_store()
        store = default.clone()
        store.set_timeout(timedelta(seconds=_SECONDS))
        return store
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    agent: Any = torch.distributed
    return agent.TCPStore(*place, is_master=False, timeout=timedelta(seconds=_SECONDS))
