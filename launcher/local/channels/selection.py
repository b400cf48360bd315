"""Which S3 objects a channel of the request selects, in which order, and which of them each host gets.

SageMaker decides this on its side, so the local run repeats its rules once for all providers: a prefix is only the beginning of a
key (`train` also selects `train_old/`), folder markers are not data, and the path of an object below the channel's directory
depends on where the prefix ends. Augmented manifests do not list objects; `launcher.s3.manifests` reads them.

`sample` applies first, then the epoch's order, then the host's shard.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from launcher.errors import RefusedError
from launcher.local.channels.objects import Objects
from launcher.request.view import s3_source
from launcher.s3.manifests import read_manifest
from launcher.s3.uri import S3Location, parse_s3_uri
from sagemaker_channels.sources.items import evenly_spaced

T = TypeVar("T")


class NoObjectsError(RefusedError):
    """The channel's URI selects no object."""


@dataclass(frozen=True, slots=True)
class S3Object:
    """One object of a channel; `path` is relative to the channel's directory, `size` is in bytes."""

    bucket: str
    key: str
    size: int
    path: str

    @property
    def place(self) -> S3Location:
        return S3Location(self.bucket, self.key)


def relative_path(prefix: str, key: str) -> str:
    """Return the path of `key`, which begins with `prefix`, relative to the channel's directory.

    If the prefix is a folder, the rest of the key remains (`train`, `train/a/b` -> `a/b`). If it ends within a name, or is a
    whole key, the last part of the key remains (`data/part-`, `data/part-000` -> `part-000`).
    """
    rest = key[len(prefix) :]
    if not prefix or prefix.endswith("/"):
        return rest
    return rest[1:] if rest.startswith("/") else key[prefix.rfind("/") + 1 :]


def list_objects(channel: Mapping[str, Any], objects: Objects, sample: int | None = None) -> Sequence[S3Object]:
    """Return the objects of an S3Prefix or ManifestFile channel, in the order of S3 or the manifest.

    A `sample` is evenly spaced over all, since a data set is often sorted by class. Raises NoObjectsError if there are none,
    RefusedError if the store refuses or the manifest is malformed.
    """
    source, name = s3_source(channel), channel["ChannelName"]
    find = {"S3Prefix": _of_prefix, "ManifestFile": _of_manifest}.get(source["S3DataType"])
    if find is None:
        remedy = "use InputMode Pipe for an AugmentedManifestFile"
        raise RefusedError(f"channel {name!r}: {source['S3DataType']} does not list whole objects; {remedy}")
    try:
        return find(source["S3Uri"], objects, sample)
    except NoObjectsError as error:
        raise NoObjectsError(f"{error}; or read files of your own: --channel {name}=PATH") from None


def list_prefix(objects: Objects, place: S3Location) -> Iterator[S3Object]:
    """Yield every object whose key begins with the place's key, except folder markers (keys that end in `/`)."""
    bucket, prefix = place
    for key, size, *_ in objects.entries(place):
        if not key.endswith("/"):
            yield S3Object(bucket, key, size, relative_path(prefix, key))


def _of_prefix(uri: str, objects: Objects, sample: int | None) -> Sequence[S3Object]:
    place = parse_s3_uri(uri)
    found = evenly_spaced(list(list_prefix(objects, place)), sample)
    if not found:
        raise NoObjectsError(f"{uri}: {objects.missing(place)}")
    return found


def _of_manifest(uri: str, objects: Objects, sample: int | None) -> list[S3Object]:
    (bucket, prefix), entries = read_manifest(objects.read, uri)
    keys = evenly_spaced([prefix + entry for entry in entries if not entry.endswith("/")], sample)
    sizes = objects.sizes(S3Location(bucket, key) for key in keys)
    found = [S3Object(bucket, key, size, relative_path(prefix, key)) for key, size in zip(keys, sizes, strict=True)]
    if not found:
        raise NoObjectsError(f"{uri}: the manifest names no objects; list keys after its prefix")
    return found


def as_tree(objects: Iterable[S3Object]) -> list[S3Object]:
    """Return the objects as files of one directory, each once.

    Raises RefusedError, which names the key, if a path leaves the directory, cannot be a path, or is a file and a folder at once,
    or if two keys have one path.
    """
    keys: dict[str, S3Object] = {}
    for found in objects:
        if "\0" in found.path or any(part in ("", ".", "..") for part in found.path.split("/")):
            what = f"{found.path!r} is not a valid file path below a directory"
            remedy = "rename the object (no '//', '.', '..' or leading '/' in it); a channel can use Pipe"
            raise RefusedError(f"{found.place}: {what}; {remedy}")
        other = keys.setdefault(found.path, found)
        if other.key != found.key:
            what = f"{other.place} has the same path {found.path!r} below a directory"
            raise RefusedError(f"{found.place}: {what}; use a prefix that ends with '/'")
    for found in keys.values():
        parent = found.path
        while parent := parent.rpartition("/")[0]:
            if parent in keys:
                what = f"this key is an object and also a folder (it holds {found.key})"
                raise RefusedError(f"{keys[parent].place}: {what}, which no directory can show; rename one")
    return list(keys.values())


@contextmanager
def written_as(found: S3Object, path: Path) -> Iterator[BinaryIO]:
    """Open a new file for an object. Raises RefusedError, with the object's name, if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file
    except OSError as error:
        what = f"{found.place}: cannot be written as {path}: {error.strerror}"
        raise RefusedError(f"{what}; free space there, or rename the object") from error


def epoch_order(items: Sequence[T], seed: int, epoch: int) -> list[T]:
    """Return the items in the order of one epoch: shuffled by `seed` and the epoch's number."""
    return random.Random(f"{seed}/{epoch}").sample(items, len(items))
