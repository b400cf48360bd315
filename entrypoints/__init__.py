"""The container's side of a job: channels under /opt/ml as samples.

    from entrypoints import open_channel
    for sample in open_channel("train"):
        ...

Names are imported when they are first used, so importing the package is fast and needs only the standard library.

An old public module has the same name (entrypoints 0.4: get_single, get_group_all and others), and many images have it for other
packages. So other names are looked up in that module, if it is elsewhere on the path, and scripts for both work.
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
    from entrypoints.errors import ChannelError as ChannelError
    from entrypoints.errors import CorruptError as CorruptError
    from entrypoints.job.environment import Channel as Channel
    from entrypoints.job.environment import Environment as Environment
    from entrypoints.job.environment import load_environment as load_environment
    from entrypoints.order.sampling import Reading as Reading
    from entrypoints.records.shards import write_shards as write_shards
    from entrypoints.samples.channel import open_channel as open_channel
    from entrypoints.samples.lst import read_lst as read_lst
    from entrypoints.torch_data.dataset import ChannelDataset as ChannelDataset
    from entrypoints.torch_data.dataset import MixedDataset as MixedDataset
    from entrypoints.torch_data.dataset import uneven_ranks as uneven_ranks
    from entrypoints.torch_data.loader import ThreadLoader as ThreadLoader
    from entrypoints.torch_data.loader import even_batches as even_batches
    from entrypoints.torch_data.map import ConnectorMapDataset as ConnectorMapDataset
    from entrypoints.torch_data.map import MountedMapDataset as MountedMapDataset

# The public names and their modules.
_EXPORTS = {
    "open_channel": "samples.channel",
    "Channel": "job.environment",
    "Environment": "job.environment",
    "load_environment": "job.environment",
    "ChannelError": "errors",
    "CorruptError": "errors",
    "read_lst": "samples.lst",
    "MixedDataset": "torch_data.dataset",
    "Reading": "order.sampling",
    "ThreadLoader": "torch_data.loader",
    "even_batches": "torch_data.loader",
    "uneven_ranks": "torch_data.dataset",
    "write_shards": "records.shards",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
    "ChannelDataset": "torch_data.dataset",
    "ConnectorMapDataset": "torch_data.map",
    "MountedMapDataset": "torch_data.map",
}

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
    """The old module `entrypoints.py`, if it is in a directory of the path."""
    if _OLD_MODULE in sys.modules:
        return sys.modules[_OLD_MODULE]
    for directory in sys.path:
        file = Path(directory or ".") / "entrypoints.py"
        if file.is_file():
            spec = importlib.util.spec_from_file_location(_OLD_MODULE, file)
            if spec is None or spec.loader is None:
                return None
            module = importlib.util.module_from_spec(spec)
            sys.modules[_OLD_MODULE] = module
            spec.loader.exec_module(module)
            return module
    return None
