"""The checkpoints of a place. One exists if its manifest does, and all files that it lists have the size that it states.

The manifest is written after all other files. So neither a process that is killed nor SageMaker, which copies the files of
/opt/ml/checkpoints in any order, also half-written ones, makes a checkpoint of what is incomplete. A name is never used twice, so
files of two saves do not mix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sagemaker_channels.checkpointing.place import Bucket, Folder
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.fetching.silence import warn_once

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"step-(\d{10,})-\d{8}T\d{12}")


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint."""

    name: str
    step: int
    manifest: dict[str, Any]


def new_name(step: int) -> str:
    """Return the name of a new checkpoint; names sort by step, and then by time."""
    return f"step-{step:010}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S%f}"


def complete(place: Folder | Bucket) -> Iterator[Saved]:
    """Yield the complete checkpoints, the newest first. The log names each incomplete one before them and what it lacks."""
    sizes = place.sizes()
    for name in _newest_first(sizes):
        try:
            yield Saved(name, _step(name), _manifest(place, name, sizes))
        except CorruptError as error:
            ignore(place, name, error)


def ignore(place: Folder | Bucket, name: str, why: object) -> None:
    """Log why a checkpoint is not loaded."""
    warn_once(f"the checkpoint {place}/{name} is ignored: {why}".replace("//step-", "/step-"))


def expired(place: Folder | Bucket, newest: str, keep: int) -> list[str]:
    """Return what is older than the last `keep` checkpoints up to `newest`, also what an interrupted save left.

    What the manifests list is not looked for: a host's own folder lacks the other hosts' files.
    """
    sizes = place.sizes()
    names = [name for name in _newest_first(sizes) if _order(name) <= _order(newest)]
    committed = [name for name in names if f"{name}/{MANIFEST}" in sizes]
    return [name for name in names if name not in committed[:keep]]


def _newest_first(sizes: dict[str, int]) -> list[str]:
    return sorted(
        {name for name, _, _ in (file.partition("/") for file in sizes) if _NAME.fullmatch(name)}, key=_order
    )[::-1]


def _order(name: str) -> tuple[int, str]:
    return _step(name), name


def _step(name: str) -> int:
    return int(name.split("-")[1])


def _manifest(place: Folder | Bucket, name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Return a checkpoint's manifest. Raises CorruptError if it or a file that it lists is incomplete."""
    if f"{name}/{MANIFEST}" not in sizes:
        raise CorruptError(f"it has no {MANIFEST}, so its save did not end")
    try:
        manifest: dict[str, Any] = json.loads(place.read(f"{name}/{MANIFEST}"))
    except (ValueError, FileNotFoundError) as error:
        raise CorruptError(f"its {MANIFEST} is incomplete: {error}") from error
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise CorruptError(f"its {MANIFEST} is not a manifest")
    if manifest["format"] != FORMAT:
        raise CorruptError(f"its format is {manifest['format']}, and this version of sagemaker_channels reads {FORMAT}")
    for file, size in manifest["files"].items():
        found = sizes.get(f"{name}/{file}")
        if found != size:
            raise CorruptError(f"{file} is missing" if found is None else f"{file} has {found:,} of {size:,} bytes")
    return manifest
