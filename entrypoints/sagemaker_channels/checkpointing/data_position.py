"""The position in the data that a rank loads: its own, or with other ranks, threads or workers a part of what all have left."""

from __future__ import annotations

from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.order.merging import merge_states


def fits(loader: Any, saved: Any) -> bool:
    """Whether a rank's position is of as many threads or workers as its loader has now."""
    names = (("threads", "threads"), ("num_workers", "workers"))
    here = next(((kind, getattr(loader, name)) for name, kind in names if hasattr(loader, name)), None)
    known = saved if isinstance(saved, dict) else {}
    if "threads" in known:
        return here == ("threads", len(known["threads"]))
    if "_snapshot" in known or "_num_yielded" in known:
        return here == ("workers", len(known.get("_snapshot", {}).get("_worker_snapshots", {})))
    if known.keys() == {"epoch"} and not hasattr(loader, "num_workers"):
        # Nothing of the epoch was read, or it begins again, also for ranks that had ended it.
        return not getattr(getattr(loader, "dataset", loader), "restarts_epoch", False)
    return here is None


def load(loader: Any, own: Any, everyone: list[Any] | None) -> None:
    """Continue at this rank's own position, or with a part of what all ranks have left, if `everyone` has their positions.

    `loader` is a ThreadLoader, dataset or StatefulDataLoader, or with its own position anything that loads a state. Raises
    ChannelError if the positions cannot be merged.
    """
    from sagemaker_channels.torch_data.ranks import load_state

    if everyone is None:
        load_state(loader, own)
        return
    try:
        merged = merge_states(everyone)
    except ChannelError as error:
        raise ChannelError(
            f"the checkpoint has the data position of {len(everyone)} ranks, and here are other ranks, threads or workers: {error};"
            " use as many, or load without loader= to begin an epoch"
        ) from error
    load_state(loader, merged)
