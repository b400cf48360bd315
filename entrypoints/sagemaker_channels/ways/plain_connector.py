"""Amazon's S3 Connector for PyTorch as its documentation uses it: one object is one sample."""

from __future__ import annotations

import os
from typing import Any

from sagemaker_channels.readers.s3_settings import place
from sagemaker_channels.ways.card import Source
from sagemaker_channels.ways.ours import BY_CONNECTOR, OBJECTS


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


ITERABLE = BY_CONNECTOR(
    name="s3-iterable-dataset",
    title="plain S3IterableDataset",
    row=8,
    formats=OBJECTS,
    open=lambda source: _dataset(source, "S3IterableDataset", enable_sharding=True),
)
MAP = BY_CONNECTOR(
    name="s3-map-dataset",
    title="plain S3MapDataset",
    row=7,
    formats=OBJECTS,
    open=lambda source: _dataset(source, "S3MapDataset"),
)
