"""Amazon's S3 Connector for PyTorch as its documentation uses it: one object is one sample."""

from __future__ import annotations

import os
from typing import Any

from entrypoints.readers.s3_settings import place
from entrypoints.ways.card import Source, Way
from entrypoints.ways.ours import CONNECTOR, OBJECTS


def _read(reader: Any) -> bytes:
    return bytes(reader.read())


def _dataset(source: Source, name: str, **options: Any) -> Any:
    import s3torchconnector

    endpoint, region = place(os.environ)
    config = s3torchconnector.S3ClientConfig(force_path_style=endpoint is not None)
    dataset = getattr(s3torchconnector, name)
    return dataset.from_prefix(
        source.channel.s3_uri, region=region, endpoint=endpoint, transform=_read, s3client_config=config, **options
    )


ITERABLE = Way(
    name="s3-iterable-dataset",
    title="plain S3IterableDataset",
    row=8,
    arrivals=("s3",),
    needs=(CONNECTOR,),
    formats=OBJECTS,
    open=lambda source: _dataset(source, "S3IterableDataset", enable_sharding=True),
)
MAP = Way(
    name="s3-map-dataset",
    title="plain S3MapDataset",
    row=7,
    arrivals=("s3",),
    needs=(CONNECTOR,),
    formats=OBJECTS,
    open=lambda source: _dataset(source, "S3MapDataset"),
)
