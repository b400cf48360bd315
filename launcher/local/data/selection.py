"""Which S3 objects a channel of the request means, in which order, and which of them a host gets.

SageMaker answers these questions on its side of the wire, so the local run has to answer them the same way, once, for
every provider: a prefix is only the beginning of a key (`train` also takes `train_old/`), folder markers are no data,
and what a key becomes below the channel's directory depends on where the prefix ends. Augmented manifests are no list
of objects; `launcher.s3.manifests` reads them.

Selecting is pure: `sample` first, then the epoch's order, then the host's share.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, tee
from typing import TYPE_CHECKING, Any, TypeVar

from entrypoints.contract import SHARDED
from launcher.errors import RefusedError
from launcher.s3.manifests import AugmentedManifest, read_manifest
from launcher.s3.uri import Place, parse_s3_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.local.data.delivery import Delivery, Objects, Store

T = TypeVar("T")


class NoObjectsError(RefusedError):
    """The channel's URI means no object."""


@dataclass(frozen=True, slots=True)
class S3Object:
    """One object of a channel; `path` is its place below the channel's directory, `size` is in bytes."""

    bucket: str
    key: str
    size: int
    path: str

    @property
    def place(self) -> Place:
        """Where it lies."""
        return Place(self.bucket, self.key)


def relative_path(prefix: str, key: str) -> str:
    """The place of `key`, which begins with `prefix`, below the channel's directory.

    What continues a folder keeps the rest (`train`, `train/a/b` -> `a/b`); a partial name keeps its last part whole
    (`data/part-`, `data/part-000` -> `part-000`), and so does an exact object.
    """
    rest = key[len(prefix) :]
    if not prefix or prefix.endswith("/"):
        return rest
    return rest[1:] if rest.startswith("/") else key[prefix.rfind("/") + 1 :]


def list_objects(channel: Mapping[str, Any], objects: Objects, sample: int | None = None) -> list[S3Object]:
    """The objects of an S3Prefix or ManifestFile channel, in S3's or the manifest's order; the first `sample` of them.

    Raises NoObjectsError if there are none, RefusedError if the store refuses or the manifest is malformed.
    """
    source, what = channel["DataSource"]["S3DataSource"], f"channel {channel['ChannelName']!r}"
    find = {"S3Prefix": _of_prefix, "ManifestFile": _of_manifest}.get(source["S3DataType"])
    if find is None:
        raise RefusedError(
            f"{what}: {source['S3DataType']} is no list of whole objects; use InputMode Pipe for an AugmentedManifestFile"
        )
    try:
        return find(source["S3Uri"], objects, sample)
    except NoObjectsError as error:
        raise NoObjectsError(f"{error}, or read files of your own: --channel {channel['ChannelName']}=PATH") from None


def list_prefix(objects: Objects, place: Place) -> Iterator[S3Object]:
    """Every object whose key begins with the place's, without folder markers (keys that end in `/`)."""
    bucket, prefix = place
    for key, size in objects.keys(place):
        if not key.endswith("/"):
            yield S3Object(bucket, key, size, relative_path(prefix, key))


def _of_prefix(uri: str, objects: Objects, sample: int | None) -> list[S3Object]:
    place = parse_s3_uri(uri)
    found = list(islice(list_prefix(objects, place), sample))
    if not found:
        raise NoObjectsError(f"{uri}: {objects.missing(place)}")
    return found


def _of_manifest(uri: str, objects: Objects, sample: int | None) -> list[S3Object]:
    (bucket, prefix), entries = read_manifest(objects.read, uri)
    keys, asked = tee(islice((prefix + entry for entry in entries if not entry.endswith("/")), sample))
    # As the manifest is read: of a million names, the first that is missing ends it.
    sizes = objects.sizes(Place(bucket, key) for key in asked)
    found = [S3Object(bucket, key, size, relative_path(prefix, key)) for key, size in zip(keys, sizes, strict=True)]
    if not found:
        raise NoObjectsError(f"{uri}: the manifest names no objects; list keys after its prefix")
    return found


def total_bytes(channel: Mapping[str, Any], store: Store, sample: int | None = None) -> int:
    """What one full pass over the channel reads from S3, all hosts together, in bytes; nothing for EFS and FSx.

    Raises RefusedError as `list_objects` does.
    """
    source = channel["DataSource"].get("S3DataSource")
    if source is None:
        return 0
    if source["S3DataType"] != "AugmentedManifestFile":
        return sum(found.size for found in store.listed(channel, sample))
    with AugmentedManifest(store.objects.read, source["S3Uri"], source["AttributeNames"], sample) as manifest:
        places: list[Place] = []
        total = 0
        for index in range(len(manifest)):
            for value in manifest.values(index):
                if isinstance(value, bytes):
                    total += len(value)
                else:
                    places.append(value)
    return total + sum(store.objects.sizes(places))


def as_tree(objects: Iterable[S3Object]) -> list[S3Object]:
    """The objects as files of one directory, each once.

    Raises RefusedError, naming the key, where a path would leave the directory, could not be a path, or would be a
    file and a folder at once, or where two keys have one path.
    """
    keys: dict[str, S3Object] = {}
    for found in objects:
        if "\0" in found.path or any(part in ("", ".", "..") for part in found.path.split("/")):
            raise RefusedError(
                f"{found.place}: this key cannot be the file {found.path!r} below the channel's directory; "
                "rename the object (no '//', '.', '..' or leading '/' in it), or read the channel by Pipe"
            )
        other = keys.setdefault(found.path, found)
        if other.key != found.key:
            raise RefusedError(f"{found.place}: {other.place} has the same path {found.path!r} below the "
                               "channel's directory; use a prefix that ends with '/'")  # fmt: skip
    for found in keys.values():
        parent = found.path.rpartition("/")[0]
        while parent:
            if parent in keys:
                raise RefusedError(f"{keys[parent].place}: this key is an object and also a folder (it "
                                   f"holds {found.key}), which no directory can show; rename one")  # fmt: skip
            parent = parent.rpartition("/")[0]
    return list(keys.values())


def epoch_order(items: Sequence[T], seed: int, epoch: int) -> list[T]:
    """The items in the order of one epoch: by `seed`, and another order in every epoch that follows.

    A plain shuffle of two or three items often repeats itself, so the item that comes first goes round.
    """
    order = list(items)
    random.Random(f"{seed}").shuffle(order)
    if order:
        first = order.pop(epoch % len(order))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        order.insert(0, first)
    return order


def host_share(items: Sequence[T], index: int, count: int) -> list[T]:
    """What host `index` (from 0) of `count` gets under ShardedByS3Key: about 1/count of the items, none twice.

    Every count-th item rather than a run of them, since neighbours in the listing tend to be of one kind and size.
    """
    return list(items[index::count])


def is_sharded(channel: Mapping[str, Any]) -> bool:
    """Whether each host gets a part of the channel rather than all of it."""
    return channel["DataSource"]["S3DataSource"].get("S3DataDistributionType") == SHARDED  # type: ignore[no-any-return]


def host_items(items: Sequence[T], delivery: Delivery, epoch: int = 0) -> list[T]:
    """The items that this delivery's host gets in an epoch, in order.

    The shuffle comes before the split, so under ShardedByS3Key a host gets other objects in the next epoch, as the
    description of CreateTrainingJob's ShuffleConfig says.
    """
    channel = delivery.channel
    ordered = list(items)
    if shuffle := channel.get("ShuffleConfig"):
        ordered = epoch_order(ordered, shuffle["Seed"], epoch)
    if is_sharded(channel):
        ordered = host_share(ordered, delivery.hosts.index(delivery.host), len(delivery.hosts))
    return ordered
