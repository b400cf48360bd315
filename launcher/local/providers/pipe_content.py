"""The bytes of one epoch of a FIFO: the objects one after another, unzipped and wrapped as the channel states.

An epoch is a sequence of streams, one per object or value of a manifest's line. A stream opens its object when its first chunk is
requested, and holds one chunk at a time; `launcher.local.providers.read_ahead` reads a few of them concurrently.
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from launcher.checks.channels.content_types import LINES
from launcher.errors import RefusedError
from launcher.local.data.delivery import Delivery
from launcher.request.view import media_type, s3_source
from launcher.s3.manifests import AugmentedManifest
from launcher.s3.reading import CHUNK, Stream
from launcher.s3.uri import S3Location

Epochs = Callable[[int], Iterator[Stream]]  # the epoch's number, from 0 -> its streams, in order

MAGIC = struct.pack("<I", 0xCED7230A)
_LENGTH_LIMIT = 1 << 29  # bytes; a RecordIO header has 29 bits for a length
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)  # the other 3 bits: which part of a record follows
_IN_MEMORY = 4 << 20  # maximum bytes of a record in memory; a longer one is written to disk


@contextmanager
def open_epochs(delivery: Delivery) -> Iterator[Epochs]:
    """Yield a function: epoch -> the byte streams that this host gets in it.

    Args:
        delivery: The channel, its host, and the store that it reads from.

    Raises:
        RefusedError: There are no objects, a manifest is malformed, or an object is too long for a record.
    """
    source = s3_source(delivery.channel)
    delivery.scratch.mkdir(parents=True, exist_ok=True)
    if source["S3DataType"] == "AugmentedManifestFile":
        read, names = delivery.store.objects.read, source.get("AttributeNames", ())
        with closing(AugmentedManifest(read, source["S3Uri"], names, delivery.sample, delivery.scratch)) as manifest:

            def of_manifest(epoch: int) -> Iterator[Stream]:
                for index in delivery.select(range(len(manifest)), epoch):
                    for value in manifest.values(index):
                        yield _stream(delivery, value)

            yield of_manifest
        return
    objects = delivery.store.listed(delivery.channel, delivery.sample)
    if _wrapped(delivery) and not _zipped(delivery):
        for found in objects:
            _check_length(found.size, str(found.place))
    joins_lines = _joins_lines(delivery) and len(objects) > 1
    warned: set[S3Location] = set()

    def of_objects(epoch: int) -> Iterator[Stream]:
        for found in delivery.select(objects, epoch):
            stream = _stream(delivery, found.place)
            yield _checked_line_end(stream, delivery, found.place, warned) if joins_lines else stream

    yield of_objects


def _zipped(delivery: Delivery) -> bool:
    return delivery.channel.get("CompressionType") == "Gzip"


def _wrapped(delivery: Delivery) -> bool:
    return delivery.channel.get("RecordWrapperType") == "RecordIO"


def _joins_lines(delivery: Delivery) -> bool:
    return media_type(delivery.channel.get("ContentType")) in LINES and not _wrapped(delivery)


def _checked_line_end(stream: Stream, delivery: Delivery, place: S3Location, warned: set[S3Location]) -> Stream:
    """Yield the stream unchanged; warn, once for all objects, if it does not end with a line feed."""
    is_gzip, last = None, b"\n"
    for chunk in stream:
        if chunk:
            is_gzip = chunk.startswith(b"\x1f\x8b") if is_gzip is None else is_gzip
            last = chunk[-1:]
        yield chunk
    if last != b"\n" and not is_gzip and not warned:
        warned.add(place)
        effect = "so a Pipe makes one line of its last line and the next object's first"
        remedy = "end every object with a line feed, or use input_mode: FastFile"
        delivery.on_warning(f"channel {delivery.name!r}: {place} does not end with a line feed, {effect}; {remedy}")


def _check_length(length: int, what: str) -> None:
    if length >= _LENGTH_LIMIT:
        reason = f"{_LENGTH_LIMIT} bytes or more do not fit into a RecordIO record"
        raise RefusedError(f"{what}: {reason}; split the object, or use RecordWrapperType None")


def _stream(delivery: Delivery, value: bytes | S3Location) -> Stream:
    """Return the bytes that the pipe sends for one object, or for one value of a manifest."""
    if isinstance(value, bytes):
        stream, what = (chunk for chunk in (value,)), "a value of the manifest"
    else:
        stream, what = delivery.store.objects.read(value), str(value)
        if _zipped(delivery):
            stream = gunzip(stream, what)
    return as_record(stream, what, delivery.scratch) if _wrapped(delivery) else stream


def gunzip(chunks: Stream, what: str) -> Stream:
    """Yield the unzipped bytes of any number of gzip members, at most CHUNK at a time; zeros after a member are padding.

    Raises:
        RefusedError: The bytes are not gzip, damaged, or truncated; the message names `what`.
    """
    member, started = None, False
    for chunk in chunks:
        data, more = chunk, True
        while more:
            if member is None:
                data = data.lstrip(b"\0") if started else data
                if not data:
                    break
                member, started = zlib.decompressobj(wbits=31), True
            try:
                out = member.decompress(data, CHUNK)
            except zlib.error as error:
                reason = f"not readable as gzip ({error})"
                raise RefusedError(f"{what}: {reason}; zip it, or use CompressionType None") from error
            if out:
                yield out
            if member.eof:
                data, member = member.unused_data, None
            else:  # zlib can keep more output, even if it has consumed all input
                data = member.unconsumed_tail
                more = bool(data) or len(out) == CHUNK
    if member is not None:
        raise RefusedError(f"{what}: ends in the middle of its gzip data; upload it again")


def as_record(chunks: Stream, what: str, scratch: Path) -> Stream:
    """Yield one RecordIO record of all the bytes: header, payload, padding to 4 bytes.

    If the payload contains the magic word at a multiple of 4, it is split there into parts without that word, as MXNet does, so
    that readers which search for the magic find no false one. The first header depends on this, so the payload is kept in memory,
    or in `scratch` if it is long.

    Raises:
        RefusedError: There are 2^29 bytes or more.
    """
    with SpooledTemporaryFile(_IN_MEMORY, mode="w+b", dir=str(scratch)) as payload:
        length = 0
        for chunk in chunks:
            length += len(chunk)
            _check_length(length, what)
            payload.write(chunk)
        cuts = _find_magic(payload)
        start = 0
        for index, end in enumerate([*cuts, length]):
            part = _WHOLE if not cuts else _FIRST if index == 0 else _LAST if index == len(cuts) else _MIDDLE
            yield from _part(payload, start, end, part)
            start = end + len(MAGIC)


def _find_magic(payload: IO[bytes]) -> array[int]:
    """Return the offsets, multiples of 4, of the magic word. CHUNK is such a multiple, so no chunk splits a word."""
    places, base = array("Q"), 0
    payload.seek(0)
    while chunk := payload.read(CHUNK):
        found = (match.start() for match in re.finditer(re.escape(MAGIC), chunk))
        places.extend(base + at for at in found if at % 4 == 0)
        base += len(chunk)
    return places


def _part(payload: IO[bytes], start: int, end: int, part: int) -> Stream:
    left = end - start
    head = MAGIC + struct.pack("<I", part << 29 | left)
    padding = bytes(-left % 4)
    payload.seek(start)
    while left > CHUNK:
        chunk = payload.read(CHUNK)
        left -= len(chunk)
        yield head + chunk
        head = b""
    yield head + payload.read(left) + padding
