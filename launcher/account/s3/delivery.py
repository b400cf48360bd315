r"""Whether objects suit their delivery: a Pipe can serve them as they are stored, and ShardedByS3Key divides them evenly.

The first two bytes of a channel's first object show whether it is gzipped. The last byte of the first few objects shows whether
they end with a line feed: its lack cannot be seen in the joined stream, where "1\n2" and "3\n" become the lines 1 and 23. Gzipped
objects are skipped then, since their last byte is not content. SageMaker divides objects among hosts, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.account.check import Check, Finding, Subject
from launcher.account.s3.listing import listing, some_bytes
from launcher.account.s3.manifests import named_objects
from launcher.account.uses import channels, hosts_that_share
from launcher.checks.channels.content_types import LINES
from launcher.console import human_bytes
from launcher.errors import SpecPath
from launcher.request.view import Entry
from launcher.s3.uri import S3Location

GZIP = b"\x1f\x8b"  # RFC 1952
_MUCH = 64e6  # bytes; with less, the other hosts hardly wait for the fullest one
_UNEVEN = 1.5  # times the mean


def _zipped(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the channels that Pipe mode decompresses."""
    for entry, place in channels(subject, "S3Prefix"):
        if entry.get("CompressionType") == "Gzip" and entry.get("InputMode") == "Pipe":
            yield entry.path("compression_type"), place


def _ask_compression(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Finding]:
    for key in listing(subject, place).some[:1]:
        if some_bytes(subject, S3Location(place.bucket, key), "0-1") != GZIP:
            wrong = f"is Gzip, but {key!r} is not gzipped, so Pipe cannot decompress it"
            yield path, "channel-not-gzip", f"{wrong}; gzip the objects, or delete this key"


COMPRESSION = Check("compression", _ask_compression, _zipped)


def _joined(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the channels whose lines go through a Pipe as they are stored."""
    for entry, place in channels(subject, "S3Prefix"):
        is_stored_so = entry.get("CompressionType") != "Gzip" and entry.get("RecordWrapperType") != "RecordIO"
        if entry.get("InputMode") == "Pipe" and entry.content_type in LINES and is_stored_so:
            yield entry.path("input_mode"), place


def _ask_line_ends(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Finding]:
    found = listing(subject, place)
    for key in found.some if found.count > 1 else ():
        named = S3Location(place.bucket, key)
        if some_bytes(subject, named, "-1") != b"\n" and some_bytes(subject, named, "0-1") != GZIP:
            message = (
                f"is Pipe, which joins objects, but {key!r} does not end with a line feed, so its last line and the next"
                " object's first would become one; end every object with a line feed, or use FastFile"
            )
            yield path, "pipe-joins-lines", message
            return


LINE_ENDS = Check("line-ends", _ask_line_ends, _joined)


def _sharded(subject: Subject) -> Iterator[tuple[SpecPath, tuple[Entry, S3Location]]]:
    for entry, place in channels(subject, "S3Prefix", "ManifestFile"):
        if hosts_that_share(subject, entry) > 1:
            yield entry.path("s3_data_distribution_type"), (entry, place)


def _ask_share(subject: Subject, path: SpecPath, channel: tuple[Entry, S3Location]) -> Iterator[Finding]:
    """Judge the division of the objects, using what the other checks have listed."""
    entry, place = channel
    hosts = hosts_that_share(subject, entry)
    count: int | None  # None if there are more objects than were listed
    sizes: Sequence[int]  # bytes per host
    if entry.get("S3DataType") == "S3Prefix":
        found = listing(subject, place)
        count, sizes = found.count if found.is_complete else None, found.host_bytes(hosts)
    elif (named := named_objects(subject, entry, place)) is not None:
        count, sizes = named.count, named.host_bytes if named.is_complete else [0] * hosts
    else:
        return
    if count is not None and 0 < count < hosts:
        objects = "1 object" if count == 1 else f"{count} objects"
        message = (
            f"ShardedByS3Key has {objects} for {hosts} hosts, so {hosts - count} would get nothing; split the data into at least "
            f"{hosts} objects, use fewer hosts, or use FullyReplicated"
        )
        yield path, "share-empty", message
        return
    most, mean = max(sizes), sum(sizes) / hosts
    if mean * hosts >= _MUCH and most > _UNEVEN * mean:
        message = (
            f"ShardedByS3Key divides objects, whatever their size: assigned in order, one of {hosts} hosts would get "
            f"{human_bytes(most)}, {most / mean:.1f} times the mean, and the others wait for it; make the objects similar in size"
        )
        yield path, "share-uneven", message


SHARES = Check("shares", _ask_share, _sharded)
