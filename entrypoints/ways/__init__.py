"""Ways to read samples into PyTorch: one card each, and one row in this table.

Here: how each library or input mode opens the data, and one measured run (`measuring.py`); `entrypoints.measure` does all runs. A
card imports torch and its library only when it is opened, so that a way that is not installed still has its row.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoints.ways import openers, ours, plain_connector, web_dataset
from entrypoints.ways.card import Way

WAYS: Mapping[str, Way] = {
    way.name: way
    for way in (
        ours.FILE,
        ours.FAST_FILE,
        ours.PIPE,
        ours.EFS,
        ours.FSX,
        ours.CONNECTOR_MAP,
        ours.CONNECTOR_ITERABLE,
        ours.CONNECTOR_TAR,
        plain_connector.MAP,
        plain_connector.ITERABLE,
        web_dataset.AWS_CLI,
        web_dataset.FOLDER,
        web_dataset.IN_MEMORY,
        web_dataset.BY_S3FS,
        ours.PLAIN_FILE,
        openers.IOPATH,
        openers.FSSPEC,
    )
}

# What people still find in articles, but can no longer install: the name, and the way that replaces it.
REMOVED: Mapping[str, str] = {
    "awsio": "connector-iterable",
    "S3FileLoader": "connector-tar",
    "S3FileLister": "connector-map",
}
