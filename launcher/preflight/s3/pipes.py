r"""Whether Pipe can serve objects as they are stored: the bytes at their ends show it.

The first two bytes of a channel's first object show whether it is gzipped. The last byte of the first few objects shows whether
they end with a line feed: its lack cannot be seen in the joined stream, where "1\n2" and "3\n" become the lines 1 and 23. Gzipped
objects are skipped then, since their last byte is not content.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.channels.content_types import LINES
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.listing import listing, some_bytes
from launcher.preflight.uses import channels
from launcher.s3.uri import S3Location

GZIP = b"\x1f\x8b"  # RFC 1952


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
