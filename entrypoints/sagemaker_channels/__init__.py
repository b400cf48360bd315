"""The container's side of a job: channels under /opt/ml as samples.

    from sagemaker_channels import open_channel
    for sample in open_channel("train"):
        ...

Names are imported when they are first used, so importing the package is fast and needs only the standard library.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sagemaker_channels.checkpointing.checkpoints import Checkpoints as Checkpoints
    from sagemaker_channels.epoch.channel import open_channel as open_channel
    from sagemaker_channels.epoch.states import merge_states as merge_states
    from sagemaker_channels.errors import ChannelError as ChannelError
    from sagemaker_channels.errors import CorruptError as CorruptError
    from sagemaker_channels.formats.shards import write_shards as write_shards
    from sagemaker_channels.job.environment import Channel as Channel
    from sagemaker_channels.job.environment import Environment as Environment
    from sagemaker_channels.job.environment import load_environment as load_environment
    from sagemaker_channels.samples.class_folders import class_index as class_index
    from sagemaker_channels.samples.class_folders import find_classes as find_classes
    from sagemaker_channels.torch_data.dataset import ChannelDataset as ChannelDataset
    from sagemaker_channels.torch_data.dataset import MixedDataset as MixedDataset
    from sagemaker_channels.torch_data.loader import ThreadLoader as ThreadLoader
    from sagemaker_channels.torch_data.map import ChannelMapDataset as ChannelMapDataset
    from sagemaker_channels.torch_data.ranks import EvenLoader as EvenLoader
    from sagemaker_channels.torch_data.ranks import LightningLoader as LightningLoader
    from sagemaker_channels.torch_data.ranks import even_batches as even_batches
    from sagemaker_channels.torch_data.ranks import gather_state as gather_state
    from sagemaker_channels.torch_data.shared_tensors import collate as collate
    from sagemaker_channels.torch_data.worker_loader import WorkerLoader as WorkerLoader
    from sagemaker_channels.waits import timed as timed

_NAMES_OF = {
    "checkpointing.checkpoints": "Checkpoints",
    "epoch.channel": "open_channel",
    "epoch.states": "merge_states",
    "errors": "ChannelError CorruptError",
    "job.environment": "Channel Environment load_environment",
    "formats.shards": "write_shards",
    "samples.class_folders": "class_index find_classes",
    "torch_data.dataset": "ChannelDataset MixedDataset",
    "torch_data.loader": "ThreadLoader",
    "torch_data.ranks": "EvenLoader LightningLoader even_batches gather_state",
    "torch_data.map": "ChannelMapDataset",
    "torch_data.shared_tensors": "collate",
    "torch_data.worker_loader": "WorkerLoader",
    "waits": "timed",
}
_EXPORTS = {name: module for module, names in _NAMES_OF.items() for name in names.split()}  # public names
_OLDEST_TORCH = [2, 5]


if not TYPE_CHECKING:  # A type checker would accept any name, and knows no `__all__` that is computed.
    __all__ = [*_EXPORTS]

    def __getattr__(name: str) -> Any:
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if _EXPORTS[name].startswith(("checkpointing", "torch_data")):
            _require_torch(name)
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
        return value


def _require_torch(name: str) -> None:
    """Raise ImportError, with what to use, if torch is missing, or too old: its parts that are missing would fail one by one."""
    try:
        import torch
    except ModuleNotFoundError as error:
        what = f"torch is not installed, and {name} needs it: pip install torch" if error.name == "torch" else error.msg
        raise ModuleNotFoundError(what, name=error.name) from error

    if [*map(int, re.findall(r"\d+", torch.__version__)[:2])] < _OLDEST_TORCH:
        needed = ".".join(map(str, _OLDEST_TORCH))
        raise ImportError(f"torch {torch.__version__} is too old: {name} needs torch>={needed}; use a later image")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
