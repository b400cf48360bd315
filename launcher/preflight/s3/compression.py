"""Whether a channel that is declared as gzipped really is: the first two bytes of its first object show it."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.listing import listing, some_bytes
from launcher.preflight.uses import channels
from launcher.s3.uri import S3Location

GZIP = b"\x1f\x8b"  # RFC 1952


def ask_compression(subject: Subject) -> Iterator[Finding]:
    """Look into each channel that Pipe mode decompresses."""

    def look(path: SpecPath, place: S3Location) -> Iterator[Finding]:
        keys = listing(subject, place).some
        if keys and some_bytes(subject, S3Location(place.bucket, keys[0]), "0-1") != GZIP:
            message = f"is Gzip, but {keys[0]!r} is not gzipped, so Pipe cannot decompress it; gzip the objects, or delete this key"
            yield path, "channel-not-gzip", message

    zipped = [
        (entry.path("compression_type"), place)
        for entry, place in channels(subject, "S3Prefix")
        if entry.get("CompressionType") == "Gzip" and entry.get("InputMode") == "Pipe"
    ]
    yield from subject.each(zipped, look)


CHECK = Check(
    "compression",
    "Are the objects of a channel with compression_type Gzip really gzipped?",
    ask_compression,
    {
        "channel-not-gzip": (
            "warning",
            "The first object of a Pipe channel with `compression_type: Gzip` is not a gzip file.",
        )
    },
)
