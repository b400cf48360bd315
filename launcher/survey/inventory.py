"""Taking the inventory of a prefix or a folder: one listing, and the first bytes of a sample of its objects.

The listing ends after MAX_KEYS objects, unless it is asked to go on; the numbers are then lower bounds and are reported so.
"""

from __future__ import annotations

import random
import re
import zlib
from collections import Counter
from collections.abc import Collection
from itertools import islice

from launcher.advice.facts import Inventory, Quantiles
from launcher.aws.threads import concurrently
from launcher.console import counted
from launcher.errors import RefusedError
from launcher.lists.list_files import ending_of
from launcher.local.channels.objects import Objects
from launcher.s3.uri import S3Location, is_clutter
from sagemaker_channels import contract
from sagemaker_channels.formats import FORMATS, gunzip, recordio, recordio_protobuf

MAX_KEYS = 200_000  # 200 requests
_SAMPLE = 10_000  # objects whose sizes give the quantiles
_OPENED = 24  # objects whose first bytes are read
_HEAD = 512  # bytes: a tar's first header
_NO_DATA = re.compile(r"(.*/)?(README|LICEN[CS]E|NOTICE|CITATION)(\..*)?", re.I | re.S)
_BEGINNINGS = {
    b"\xff\xd8\xff": "jpeg",
    b"\x89PNG": "png",
    b"GIF8": "gif",
    b"PK\x03\x04": "zip",
    b"PAR1": "parquet",
    b"\x93NUMPY": "npy",
    b"\x89HDF": "hdf5",
}

# Of formats with the same ending, the first counts. A .txt can be anything.
_ENDINGS = {form.ending: form.name for form in reversed(FORMATS) if form.ending not in (None, ".txt")}
_ENDINGS |= {".ndjson": "jsonl", ".tfrecords": "tfrecord", ".tgz": "tar"}


def take_inventory(
    objects: Objects,
    place: S3Location,
    storage: str,
    *,
    named: Collection[str] | None = None,
    most: int | None = MAX_KEYS,
) -> Inventory:
    """Return what is stored below a prefix.

    `named` are the keys that a manifest names, None for all; the listing ends after `most` objects, None for no limit. Raises
    RefusedError if the prefix is empty, or the store refuses to list it.
    """
    count = total = largest = 0
    least, classes, unknown = 1 << 62, Counter[str](), []
    sample: list[tuple[str, int]] = []
    clutter: list[str] = []
    choice, is_complete = random.Random(0), True
    for key, size, _, storage_class in objects.entries(place):
        if (key.endswith("/") and not size) or (named is not None and key not in named):
            continue
        if is_clutter(key):
            clutter.append(key)
            continue
        if count == most:
            is_complete = False
            unknown.append(f"there are more than {count:,} objects; --full lists them all")
            break
        count, total = count + 1, total + size
        least, largest = min(least, size), max(largest, size)
        classes[storage_class] += 1
        if len(sample) < _SAMPLE:
            sample.append((key, size))
        elif (index := choice.randrange(count)) < _SAMPLE:
            sample[index] = key, size
    if not count:
        raise RefusedError(f"{place}: {objects.missing(place)}, or correct the URI")
    if clutter:
        others = f"{counted(len(clutter), 'file')} of macOS or Windows, such as {clutter[0]}"
        unknown.append(f"{others}, are not counted, but a job reads them as data; delete them")
    sizes = sorted(size for _, size in sample)
    low, middle, high = (sizes[int(share * (len(sizes) - 1))] for share in (0.1, 0.5, 0.9))
    drawn = choice.sample(sample, len(sample))
    weights, of_endings = Counter[str](), dict[str, str]()
    for key, size in drawn:
        weights[ending_of(key)] += 0 if _NO_DATA.fullmatch(key) else size
        if size:
            of_endings.setdefault(ending_of(key), key)
    keys = dict.fromkeys((*of_endings.values(), *(key for key, size in drawn if size)))  # one of each ending first
    opened = [S3Location(place.bucket, key) for key in islice(keys, _OPENED)]
    formats, why = _formats(objects, opened, weights)
    unknown += [why] if why else []
    if len(formats) > 1 and count > len(opened):
        unknown.append(f"the shares of the formats are those of a sample of {sum(formats.values())} objects")
    return Inventory(
        objects=count,
        bytes=total,
        sizes=Quantiles(least, low, middle, high, largest),
        formats=formats,
        storage_classes={name: number for name, number in classes.most_common() if name},
        place="S3Express" if place.bucket.endswith(contract.DIRECTORY_BUCKET) else storage,
        is_complete=is_complete,
        unknown=tuple(unknown),
    )


def _formats(objects: Objects, opened: list[S3Location], weights: Counter[str]) -> tuple[dict[str, int], str]:
    """Return the formats of the objects that can be read, that of the heaviest ending first, and why others cannot."""
    found, weight, why = Counter[str](), Counter[str](), ""
    for each, head in concurrently(lambda each: objects.head(each, _HEAD), opened):
        try:
            name = format_of(head.result(), each.key)
        except RefusedError as error:
            why = f"some formats are unknown: {error}"
            continue
        found[name] += 1
        weight[name] = max(weight[name], weights[ending_of(each.key)])
    return {name: found[name] for name, _ in weight.most_common()}, why


def format_of(head: bytes, key: str) -> str:
    """Return the format of an object by its first 512 bytes; by the ending of its key if they have no mark of one."""
    for beginning, name in _BEGINNINGS.items():
        if head.startswith(beginning):
            return name
    if head.startswith(gunzip.MAGIC):
        inside = format_of(_unzipped(head), re.sub(r"\.gz$", "", key, flags=re.I))
        return inside if any(form.name == inside and form.boundaries for form in FORMATS) else "gzip"
    if head.startswith(b"RIFF"):
        return "webp" if head[8:12] == b"WEBP" else "wav"
    if (own := next((form.name for form in FORMATS if form.begins(head)), None)) is not None:
        # A protobuf record begins with an entry of the map `features` (field 1), whose first part is its name (field 1).
        is_protobuf = own == recordio.FORMAT.name and head[8:9] == b"\n" and b"\n" in head[10:14]
        return recordio_protobuf.FORMAT.name if is_protobuf else own
    return format_of_name(key) or ending_of(key).removeprefix(".") or "unknown"


def _unzipped(head: bytes) -> bytes:
    """Return the beginning of what a gzip stream holds; nothing if it is damaged."""
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD)
    except zlib.error:
        return b""


def format_of_name(key: str) -> str | None:
    """Return the short name of the format that the ending of a key stands for; None for another ending."""
    return _ENDINGS.get(ending_of(key))
