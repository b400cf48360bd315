"""Openers of iopath and fsspec, which TorchData's IoPathFileOpener and FSSpecFileOpener were, before our own formats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sagemaker_channels.ways.card import Need, Source, Way, urls
from sagemaker_channels.ways.ours import CONNECTOR


def _iopath(source: Source) -> Any:
    from iopath.common.file_io import PathManager
    from iopath.common.s3 import S3PathHandler

    manager = PathManager()
    manager.register_handler(S3PathHandler(profile=None))  # its default is a profile named saml
    return _files(source, partial(manager.open, mode="rb"))


def _by_fsspec(url: str) -> Any:
    import fsspec

    return fsspec.open(url, "rb").open()


def _files(source: Source, opened: Callable[[str], Any]) -> Any:
    from sagemaker_channels.ways.files import Files

    return Files(urls(source), opened, source.format)


IOPATH = Way(
    name="iopath",
    title="iopath file opener",
    row=16,
    arrivals=("s3",),
    needs=(CONNECTOR, Need("iopath", "pip install iopath"), Need("boto3", "pip install boto3")),
    open=_iopath,
)
FSSPEC = Way(
    name="fsspec",
    title="fsspec file opener",
    row=14,
    arrivals=("s3",),
    needs=(CONNECTOR, Need("s3fs", "pip install s3fs")),
    start_method="spawn",  # its event loop does not survive a fork
    open=lambda source: _files(source, _by_fsspec),
)
