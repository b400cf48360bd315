"""The container's side of a job: channels under /opt/ml as samples.

    from entrypoints import open_channel
    for sample in open_channel("train"):
        ...

Names are imported when they are first used, so importing the package is fast and needs only the standard library.

An old public module has the same name (entrypoints 0.4: get_single, get_group_all and others), and many images have it for other
packages. Names that are not ours are looked up in that module, if it is on the path, so that those packages work, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrypoints.checkpoint import load_checkpoint as load_checkpoint
    from entrypoints.checkpoint import save_checkpoint as save_checkpoint
    from entrypoints.checkpointing.checkpoints import Checkpoints as Checkpoints
    from entrypoints.errors import ChannelError as ChannelError
    from entrypoints.errors import CorruptError as CorruptError
    from entrypoints.job.environment import Channel as Channel
    from entrypoints.job.environment import Environment as Environment
    from entrypoints.job.environment import load_environment as load_environment
    from entrypoints.order.merging import merge_states as merge_states
    from entrypoints.order.sampling import Reading as Reading
    from entrypoints.records.shards import write_shards as write_shards
    from entrypoints.samples.channel import open_channel as open_channel
    from entrypoints.samples.class_folders import class_index as class_index
    from entrypoints.samples.class_folders import find_classes as find_classes
    from entrypoints.samples.lst import read_lst as read_lst
    from entrypoints.timed_loader import timed as timed
    from entrypoints.torch_data.dataset import ChannelDataset as ChannelDataset
    from entrypoints.torch_data.even_loader import EvenLoader as EvenLoader
    from entrypoints.torch_data.even_loader import LightningLoader as LightningLoader
    from entrypoints.torch_data.loader import ThreadLoader as ThreadLoader
    from entrypoints.torch_data.map import ConnectorMapDataset as ConnectorMapDataset
    from entrypoints.torch_data.map import MountedMapDataset as MountedMapDataset
    from entrypoints.torch_data.mixed import MixedDataset as MixedDataset
    from entrypoints.torch_data.ranks import even_batches as even_batches
    from entrypoints.torch_data.ranks import gather_state as gather_state
    from entrypoints.torch_data.ranks import load_state as load_state
    from entrypoints.torch_data.ranks import uneven_ranks as uneven_ranks

_NAMES_OF = {
    "checkpoint": "load_checkpoint save_checkpoint",
    "checkpointing.checkpoints": "Checkpoints",
    "errors": "ChannelError CorruptError",
    "job.environment": "Channel Environment load_environment",
    "order.merging": "merge_states",
    "order.sampling": "Reading",
    "records.shards": "write_shards",
    "samples.channel": "open_channel",
    "samples.class_folders": "class_index find_classes",
    "samples.lst": "read_lst",
    "torch_data.dataset": "ChannelDataset",
    "torch_data.even_loader": "EvenLoader LightningLoader",
    "torch_data.loader": "ThreadLoader",
    "torch_data.ranks": "even_batches gather_state load_state uneven_ranks",
    "torch_data.map": "ConnectorMapDataset MountedMapDataset",
    "torch_data.mixed": "MixedDataset",
    "timed_loader": "timed",
}
_EXPORTS = {name: module for module, names in _NAMES_OF.items() for name in names.split()}  # public names

_OLD_MODULE = "entrypoints._old_module"  # the old module's name in sys.modules


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
        globals()[name] = value
        return value
    # Python looks up `__path__`, `__wrapped__` and so on in every module, and `from entrypoints import records` calls this before
    # it looks for the file.
    here = Path(__file__).parent
    if not name.startswith("__") and not (here / f"{name}.py").is_file() and not (here / name).is_dir():
        old = _old_module()
        if old is not None and hasattr(old, name):
            return getattr(old, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


def _old_module() -> ModuleType | None:
    """Return the old module `entrypoints.py`, if it is in a directory of the path."""
    if _OLD_MODULE not in sys.modules:
        files = (Path(directory or ".") / "entrypoints.py" for directory in sys.path)
        file = next((file for file in files if file.is_file()), None)
        spec = file and importlib.util.spec_from_file_location(_OLD_MODULE, file)
        if not spec or spec.loader is None:
            return None
        sys.modules[_OLD_MODULE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_OLD_MODULE])
    return sys.modules[_OLD_MODULE]
