"""The position in the data that a rank loads: its part of what all ranks have left, or of a loader that is not ours its own."""

from __future__ import annotations

from typing import Any

from sagemaker_channels.epoch.states import merge_states
from sagemaker_channels.errors import ChannelError


def is_ours(state: Any) -> bool:
    """Return whether a position is of one of our loaders or datasets, so that those of all ranks merge."""
    return isinstance(state, dict) and {"version", "epoch", "of", "at"} <= state.keys()


def state_of(loader: Any) -> Any:
    """Return a loader's position. Raises ChannelError if it does not know it, or only that of one rank."""
    from sagemaker_channels.torch_data.frameworks import check_stateful

    check_stateful(loader)
    return loader.state_dict()


def load(loader: Any, everyone: list[Any], rank: int | None) -> None:
    """Continue at the position of all ranks; `everyone` has that of each rank that has saved.

    `loader` is a ThreadLoader, WorkerLoader or dataset, a DataLoader of such a dataset, or anything that loads a state of its own:
    that of the same `rank`, None if there are other ranks now. Raises ChannelError if the positions cannot be merged, or if
    accelerate has prepared the loader.
    """
    from sagemaker_channels.torch_data.frameworks import check_not_prepared

    check_not_prepared(loader)
    target = loader if hasattr(loader, "load_state_dict") else loader.dataset
    if not is_ours(everyone[0]) and rank is not None:
        target.load_state_dict(everyone[rank])
        return
    try:
        merged = merge_states(everyone)
    except ChannelError as error:
        raise ChannelError(
            f"the checkpoint has the data position of {len(everyone)} ranks, which cannot be merged: {error}; load without loader="
            " to begin an epoch"
        ) from error
    target.load_state_dict(merged)
