"""Whether a channel that is declared as gzipped really is: the first two bytes of its first object show it."""

from __future__ import annotations

from collections.abc import Iterator

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


def _ask(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Finding]:
    for key in listing(subject, place).some[:1]:
        if some_bytes(subject, S3Location(place.bucket, key), "0-1") != GZIP:
            wrong = f"is Gzip, but {key!r} is not gzipped, so Pipe cannot decompress it"
            yield path, "channel-not-gzip", f"{wrong}; gzip the objects, or delete this key"


CHECK = Check(
    "compression",
    "Are the objects of a channel with compression_type Gzip really gzipped?",
    _ask,
    _zipped,
    warnings={
        "channel-not-gzip": "The first object of a Pipe channel with `compression_type: Gzip` is not a gzip file.",
    },
)
