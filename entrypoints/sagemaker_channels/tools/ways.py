"""The ways to read samples into PyTorch that `launch measure` compares: those that a job can use. One card each.

A card imports torch and its library only when it is opened, so that a way that is not installed still has its row.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

from sagemaker_channels.errors import ConfigError
from sagemaker_channels.formats import SHORT_NAMES, objects
from sagemaker_channels.job.environment import Channel, Environment
from sagemaker_channels.sample import DATA, Sample
from sagemaker_channels.sources import mounted, s3
from sagemaker_channels.sources.connector_client import place

Opener = Callable[[str], Any]  # from a path or URL to a file object

# The channels by which the same objects arrive, as `launch measure` names them in the request. `s3` is an S3Connector channel,
# which copies nothing: it passes the prefix to ways that read S3 themselves.
# The file systems are channels of a user's spec: name -> title, and row of the systems in docs/benchmarks.md.
FILE_SYSTEMS = {"efs": ("Amazon EFS", 4), "fsx": ("Amazon FSx for Lustre", 5)}
FOLDERS = ("fast_file", "file", *FILE_SYSTEMS)
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
    format: str  # of an object, in a word of formats.SHORT_NAMES or of a library: objects, tar, mds, litdata, ...
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
    row: int  # of the systems in docs/benchmarks.md
    arrivals: tuple[str, ...]  # names out of ARRIVALS, the preferred one first
    # Returns a torch dataset, which a DataLoader with `workers` reads, or a loader: an iterable of batches that are lists of items.
    # An iterable dataset divides its objects among torch's workers. It imports what it needs when it is called.
    open: Callable[[Source], Any]
    needs: tuple[Need, ...] = ()
    formats: tuple[str, ...] = ()  # that it can read; empty: all of formats.SHORT_NAMES
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
    """Return an item as fields, buffers as bytes: a mapping without names like `__key__`, or the bytes of a whole object."""
    fields = item if isinstance(item, Mapping) else {DATA: item}
    return {name: _raw(value) for name, value in fields.items() if not name.startswith("__")}


def _raw(value: Any) -> Any:
    """Return the bytes of a buffer, such as an array of numbers; any other value as it is, for the digest."""
    try:
        view = memoryview(value)
    except (TypeError, ValueError):  # no buffer, or one of times
        return value
    return value if "O" in view.format else view.tobytes()


CONNECTOR = Need("s3torchconnector", "pip install s3torchconnector")
WEBDATASET = Need("webdataset", "pip install webdataset")
_OBJECTS = (objects.FORMAT.name,)
_SHARDS = tuple(name for name in SHORT_NAMES if name not in _OBJECTS)


def _iterable(source: Source) -> Any:
    from sagemaker_channels import ChannelDataset

    dataset = ChannelDataset(source.channel.name, format=source.format, environment=source.environment)
    dataset.set_epoch(source.epoch)
    return dataset


def _map(source: Source) -> Any:
    from sagemaker_channels import ChannelMapDataset

    return ChannelMapDataset(source.channel.name, environment=source.environment)


def plain_files(source: Source) -> Any:
    """Return the files of the channel's folder, opened by `open()`."""
    from sagemaker_channels.tools.opened_files import Files

    return Files(source.paths(), partial(open, mode="rb"), source.format)


def _amazons(name: str, source: Source, **options: Any) -> Any:
    """Return a dataset of Amazon's connector as its documentation uses it."""
    import s3torchconnector

    endpoint, region = place(os.environ)
    config = s3torchconnector.S3ClientConfig(force_path_style=endpoint is not None)
    made = getattr(s3torchconnector, name).from_prefix
    uri = source.channel.s3_uri
    return made(uri, region=region, endpoint=endpoint, transform=_whole, s3client_config=config, **options)


def _whole(reader: Any) -> bytes:
    return bytes(reader.read())


def _gopen() -> Opener:
    import webdataset

    opener: Opener = webdataset.gopen
    return opener


def web_dataset(names: Iterable[str], opener: Callable[[], Opener] = _gopen) -> Any:
    """Return WebDataset's pipeline; `opener` returns, in each worker, what replaces WebDataset's own opener."""
    import webdataset
    from webdataset.tariterators import group_by_keys, tar_file_expander

    opened = partial(_opened, opener=opener)
    shards = webdataset.SimpleShardList(list(names))
    return webdataset.DataPipeline(shards, webdataset.split_by_worker, opened, tar_file_expander, group_by_keys)


def _opened(shards: Iterable[Mapping[str, Any]], opener: Callable[[], Opener]) -> Iterator[dict[str, Any]]:
    open_url = opener()
    for shard in shards:
        yield {**shard, "stream": open_url(shard["url"])}


def _boto3() -> Opener:
    import boto3

    client = boto3.client("s3")

    def opened(url: str) -> io.BytesIO:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        stream = io.BytesIO()
        client.download_fileobj(bucket, key, stream)
        stream.seek(0)
        return stream

    return opened


_connector = partial(Way, arrivals=("s3",), needs=(CONNECTOR,), open=_iterable)
_webdataset = partial(Way, formats=("tar",))
WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        Way(name="file", title="File mode", row=1, arrivals=("file",), open=_iterable),
        Way(name="fast-file", title="FastFile mode", row=2, arrivals=("fast_file",), open=_iterable),
        Way(name="pipe", title="Pipe mode", row=3, arrivals=("pipe",), open=_iterable),
        *(
            Way(name=name, title=title, row=row, arrivals=(name,), open=_iterable)
            for name, (title, row) in FILE_SYSTEMS.items()
        ),
        _connector(name="connector-map", title="S3 Connector, map style", row=7, formats=_OBJECTS, open=_map),
        _connector(name="connector-iterable", title="S3 Connector, iterable style", row=8, formats=_OBJECTS),
        _connector(name="connector-tar", title="S3 Connector + shards", row=10, formats=_SHARDS),
        _connector(
            name="s3-map-dataset",
            title="plain S3MapDataset",
            row=7,
            formats=_OBJECTS,
            open=partial(_amazons, "S3MapDataset"),
        ),
        _connector(
            name="s3-iterable-dataset",
            title="plain S3IterableDataset",
            row=8,
            formats=_OBJECTS,
            open=partial(_amazons, "S3IterableDataset", enable_sharding=True),
        ),
        _webdataset(
            name="webdataset-aws-cli",
            title="WebDataset over pipe:aws s3 cp",
            row=12,
            arrivals=("s3",),
            needs=(CONNECTOR, WEBDATASET, Need("aws", "pip install awscli", is_program=True)),
            open=lambda source: web_dataset(f"pipe:aws s3 cp {shlex.quote(url)} -" for url in source.urls()),
        ),
        _webdataset(
            name="webdataset-folder",
            title="WebDataset over a folder",
            row=12,
            arrivals=FOLDERS,
            needs=(WEBDATASET,),
            open=lambda source: web_dataset(source.paths()),
        ),
        _webdataset(
            name="webdataset-boto3",
            title="WebDataset, boto3 download_fileobj",
            row=13,
            arrivals=("s3",),
            needs=(CONNECTOR, WEBDATASET, Need("boto3", "pip install boto3")),
            open=lambda source: web_dataset(source.urls(), _boto3),
        ),
        Way(name="plain-file", title="plain open() over a folder", row=16, arrivals=FOLDERS, open=plain_files),
    )
}

# What people still find in articles, but can no longer install: the name, and the way that replaces it.
REMOVED: Mapping[str, str] = {
    "awsio": "connector-iterable",
    "S3FileLoader": "connector-tar",
    "S3FileLister": "connector-map",
}


def ways_of(names: str) -> list[Way]:
    """Return the cards of names that are separated by commas. Raises ConfigError for an unknown name."""
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
