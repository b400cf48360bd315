"""The card of a way to read samples into PyTorch, and what a way reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from sagemaker_channels.formats import SHORT_NAMES
from sagemaker_channels.job.environment import Channel, Environment
from sagemaker_channels.readers import mounted, s3
from sagemaker_channels.sample import DATA, Sample

# The channels by which the same objects arrive, as `launch measure` names them in the request. `s3` is an S3Connector channel,
# which copies nothing: it passes the prefix to ways that read S3 themselves. `efs` and `fsx` are channels of a user's spec.
FOLDERS = ("fast_file", "file", "efs", "fsx")
ARRIVALS = (*FOLDERS, "pipe", "s3")


@dataclass(frozen=True)
class Need:
    """A package or program that a way needs and that may be missing."""

    name: str  # what is imported, or the program on the PATH
    install: str  # the command that installs it
    is_program: bool = False

    def is_met(self) -> bool:
        """Return whether it is installed, without importing it."""
        return (shutil.which(self.name) if self.is_program else find_spec(self.name)) is not None


@dataclass(frozen=True)
class Source:
    """What a way reads, and the loader that reads it."""

    environment: Environment
    channel: Channel  # the first of the way's arrivals in this job: its `path` is the folder, its `s3_uri` the prefix
    format: str  # of an object, in a word of records.SHORT_NAMES or of a library: objects, tar, mds, litdata, ...
    batch_size: int = 4
    workers: int = 4
    epoch: int = 0  # each run of a Pipe reads an epoch of its own
    exits: ExitStack = field(default_factory=ExitStack)  # closed after the run: mounts, temporary folders

    def paths(self) -> list[str]:
        """Return the paths of the channel's files, in the order of our own readers."""
        return [str(self.channel.path / path) for path in mounted.objects(self.channel)]

    def urls(self) -> list[str]:
        """Return the URLs of the objects under the channel's prefix."""
        bucket = str(self.channel.s3_uri).removeprefix("s3://").partition("/")[0]
        return [f"s3://{bucket}/{listed.key}" for listed in s3.objects(self.channel)]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to read samples: a new one is a card in WAYS."""

    name: str  # as in `--ways`
    title: str
    row: int  # of the systems in tests/README.md
    arrivals: tuple[str, ...]  # names out of ARRIVALS, the preferred one first
    # Returns a torch dataset, which a DataLoader with `workers` reads, or a loader: an iterable of batches that are lists of items.
    # An iterable dataset divides its objects among torch's workers. It imports what it needs when it is called.
    open: Callable[[Source], Any]
    needs: tuple[Need, ...] = ()
    formats: tuple[str, ...] = ()  # that it can read; empty: all of records.SHORT_NAMES
    start_method: str | None = None  # of the DataLoader's workers, such as spawn; None: torch's default

    def missing(self) -> str | None:
        """Return how to install what is missing, or None if nothing is."""
        install = "; ".join(need.install for need in self.needs if not need.is_met())
        return f"it is not installed; {install}" if install else None

    def why_not(self, arrivals: Collection[str], format: str) -> str | None:
        """Return why it cannot read objects of this format that arrive by these channels, or None if it can."""
        if not set(arrivals).intersection(self.arrivals):
            return f"it reads a channel on {' or '.join(self.arrivals)}; measure a spec that has one"
        if format not in (formats := self.formats or tuple(SHORT_NAMES)):
            return f"it reads {', '.join(formats)}, not {format}; choose another format or way"
        return None


def plain(item: Any) -> Sample:
    """Return an item as fields of bytes: a mapping without names like `__key__`, or the bytes of a whole object."""
    fields = item if isinstance(item, Mapping) else {DATA: item}
    return {name: bytes(value) for name, value in fields.items() if not name.startswith("__")}
