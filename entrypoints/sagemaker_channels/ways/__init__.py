"""Ways to read samples into PyTorch: one card each, and one row in this table.

Here: how each library or input mode opens the data, and one measured run (`measuring.py`); `entrypoints/measure.py` does all runs.
A card imports torch and its library only when it is opened, so that a way that is not installed still has its row.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from sagemaker_channels.errors import ConfigError
from sagemaker_channels.ways import energon, fuse, openers, ours, own_formats, plain_connector, web_dataset
from sagemaker_channels.ways.card import Way

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
        *fuse.WAYS,
        energon.WAY,
        own_formats.MDS,
        own_formats.LITDATA,
    )
}

# What people still find in articles, but can no longer install: the name, and the way that replaces it.
REMOVED: Mapping[str, str] = {
    "awsio": "connector-iterable",
    "S3FileLoader": "connector-tar",
    "S3FileLister": "connector-map",
}


def ways_of(names: str) -> list[Way]:
    """Return the cards of names that are separated by commas. Raises ConfigError for a name that is none's."""
    chosen = list(dict.fromkeys(name for part in names.split(",") if (name := part.strip())))
    for name in chosen or [names]:
        if name in REMOVED:
            raise ConfigError(f"{name}: its authors removed it; measure {REMOVED[name]}, which replaces it")
        if name not in WAYS:
            near = difflib.get_close_matches(name, WAYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(WAYS)}"
            raise ConfigError(f"{name!r} is not a way to read samples; {hint}")
    return [WAYS[name] for name in chosen]


def step_seconds(step: str) -> float | None:
    """Return the seconds of a step such as `20ms`, or None for `module:function`. Raises ConfigError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)ms|[\w.]+:[\w.]+", step)
    if found is None:
        raise ConfigError(f"--step {step}: is neither a function nor a time; write module:function, or a time: 20ms")
    return float(found[1]) / 1000 if found[1] else None
