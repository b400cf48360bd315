"""The bytes of one epoch of a FIFO: the objects one after another, unzipped and wrapped as the channel states.

An epoch is a sequence of streams, one per object or value of a manifest's line. A stream opens its object when its first chunk is
requested.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from gzip import BadGzipFile, GzipFile

from launcher.errors import RefusedError
from launcher.local.channels.delivery import Delivery
from launcher.request.view import media_type, s3_source
from launcher.rules.channels.content_types import LINES
from launcher.s3.manifests import AugmentedManifest
from launcher.s3.reading import CHUNK, Stream, as_file
from launcher.s3.uri import S3Location
from sagemaker_channels.formats.recordio import MAX_LENGTH, encode

Epochs = Callable[[int], Iterator[Stream]]  # the epoch's number, from 0 -> its streams, in order

_JOINED = 1 << 16  # minimum bytes of a chunk, since each wakes the reader of the pipe


def epochs_of(delivery: Delivery) -> Epochs:
    """Return a function: epoch -> the byte streams that this host gets in it.

    Raises RefusedError if there are no objects, a manifest is malformed, or an object is too long for a record.
    """
    source = s3_source(delivery.channel)
    if source["S3DataType"] == "AugmentedManifestFile":
        read, names = delivery.store.objects.read, source.get("AttributeNames", ())
        manifest = AugmentedManifest(read, source["S3Uri"], names, delivery.sample)

        def of_manifest(epoch: int) -> Iterator[Stream]:
            for index in delivery.select(range(len(manifest)), epoch):
                for value in manifest.values(index):
                    yield _stream(delivery, value)

        return of_manifest
    objects = delivery.store.listed(delivery.channel, delivery.sample)
    if _wrapped(delivery) and not _zipped(delivery):
        for found in objects:
            _check_length(found.size, str(found.place))
    has_lines = media_type(delivery.channel.get("ContentType")) in LINES and not _wrapped(delivery)
    joins_lines = has_lines and len(objects) > 1
    warned: set[S3Location] = set()

    def of_objects(epoch: int) -> Iterator[Stream]:
        for found in delivery.select(objects, epoch):
            stream = _stream(delivery, found.place)
            yield _checked_line_end(stream, delivery, found.place, warned) if joins_lines else stream

    return of_objects


def _zipped(delivery: Delivery) -> bool:
    return delivery.channel.get("CompressionType") == "Gzip"


def _wrapped(delivery: Delivery) -> bool:
    return delivery.channel.get("RecordWrapperType") == "RecordIO"


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
    if length > MAX_LENGTH:
        reason = f"{MAX_LENGTH + 1} bytes or more do not fit into a RecordIO record"
        raise RefusedError(f"{what}: {reason}; split the object, or use RecordWrapperType None")


def _stream(delivery: Delivery, value: bytes | S3Location) -> Stream:
    """Return the bytes that the pipe sends for one object, or for one value of a manifest."""
    if isinstance(value, bytes):
        stream, what = (chunk for chunk in (value,)), "a value of the manifest"
    else:
        stream, what = delivery.store.objects.read(value), str(value)
        if _zipped(delivery):
            stream = gunzip(stream, what)
    return as_record(stream, what) if _wrapped(delivery) else stream


def gunzip(chunks: Stream, what: str) -> Stream:
    """Yield the unzipped bytes of any number of gzip members, at most CHUNK at a time; zeros after a member are padding.

    Raises RefusedError, which names `what`, if the bytes are not gzip, damaged, or truncated.
    """
    try:
        with GzipFile(fileobj=as_file(chunks)) as file:
            while chunk := file.read1(CHUNK):
                yield chunk
    except EOFError:
        raise RefusedError(f"{what}: ends in the middle of its gzip data; upload it again") from None
    except (BadGzipFile, zlib.error) as error:
        reason = f"not readable as gzip ({error})"
        raise RefusedError(f"{what}: {reason}; zip it, or use CompressionType None") from error


def as_record(chunks: Stream, what: str) -> Stream:
    """Yield one RecordIO record of all the bytes. Raises RefusedError if there are more than one record can have."""
    payload = bytearray()
    for chunk in chunks:
        payload += chunk
        _check_length(len(payload), what)
    yield b"".join(encode(bytes(payload)))


def joined(streams: Iterator[Stream]) -> Stream:
    """Yield the bytes of all streams in order, small chunks joined; those before an error are yielded first."""
    held = bytearray()
    try:
        for stream in streams:
            for chunk in stream:
                held += chunk
                if len(held) >= _JOINED:
                    yield bytes(held)
                    held.clear()
    except Exception:
        yield bytes(held)
        raise
    yield bytes(held)
