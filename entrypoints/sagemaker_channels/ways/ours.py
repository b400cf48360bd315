"""Our own datasets, by each way in which a channel arrives, and the plain file opener beside them."""

from __future__ import annotations

from functools import partial
from typing import Any

from sagemaker_channels.records import SHORT_NAMES, objects
from sagemaker_channels.ways.card import Need, Source, Way, paths

CONNECTOR = Need("s3torchconnector", "pip install s3torchconnector")
OBJECTS = (objects.FORMAT.name,)
SHARDS = tuple(name for name in SHORT_NAMES if name not in OBJECTS)
FOLDERS = ("fast_file", "file", "efs", "fsx")  # the arrivals with a folder
BY_CONNECTOR = partial(Way, arrivals=("s3",), needs=(CONNECTOR,))


def _iterable(source: Source) -> Any:
    from sagemaker_channels.torch_data.dataset import ChannelDataset

    dataset = ChannelDataset(source.channel.name, format=source.format, environment=source.environment)
    dataset.set_epoch(source.epoch)
    return dataset


def _map(source: Source) -> Any:
    from sagemaker_channels.torch_data.map import ChannelMapDataset

    return ChannelMapDataset(source.channel.name, environment=source.environment)


def plain_files(source: Source) -> Any:
    """Return the files of the channel's folder, opened by `open()`."""
    from sagemaker_channels.ways.files import Files

    return Files(paths(source), partial(open, mode="rb"), source.format)


FILE = Way(name="file", title="File mode", row=1, arrivals=("file",), open=_iterable)
FAST_FILE = Way(name="fast-file", title="FastFile mode", row=2, arrivals=("fast_file",), open=_iterable)
PIPE = Way(name="pipe", title="Pipe mode", row=3, arrivals=("pipe",), open=_iterable)
EFS = Way(name="efs", title="Amazon EFS", row=4, arrivals=("efs",), open=_iterable)
FSX = Way(name="fsx", title="Amazon FSx for Lustre", row=5, arrivals=("fsx",), open=_iterable)
PLAIN_FILE = Way(name="plain-file", title="plain open() over a folder", row=16, arrivals=FOLDERS, open=plain_files)
CONNECTOR_MAP = BY_CONNECTOR(name="connector-map", title="S3 Connector, map style", row=7, formats=OBJECTS, open=_map)
CONNECTOR_ITERABLE = BY_CONNECTOR(
    name="connector-iterable", title="S3 Connector, iterable style", row=8, formats=OBJECTS, open=_iterable
)
CONNECTOR_TAR = BY_CONNECTOR(
    name="connector-tar", title="S3 Connector + shards", row=10, formats=SHARDS, open=_iterable
)
