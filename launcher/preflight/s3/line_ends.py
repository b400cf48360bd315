r"""Whether objects that a Pipe joins end with a line feed: the last byte of each of the first few objects shows it.

A missing line feed cannot be seen in the joined stream: "1\n2" and "3\n" become the lines 1 and 23. Gzipped objects are
skipped, since their last byte is not content.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.channels.content_types import LINES
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.compression import GZIP
from launcher.preflight.s3.listing import listing, some_bytes
from launcher.preflight.uses import channels
from launcher.s3.uri import S3Location


def _joined(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the channels whose lines go through a Pipe as they are stored."""
    for entry, place in channels(subject, "S3Prefix"):
        is_stored_so = entry.get("CompressionType") != "Gzip" and entry.get("RecordWrapperType") != "RecordIO"
        if entry.get("InputMode") == "Pipe" and entry.content_type in LINES and is_stored_so:
            yield entry.path("input_mode"), place


def _ask(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Finding]:
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


CHECK = Check(
    "line-ends",
    "Do the objects of a Pipe channel of lines end with a line feed?",
    _ask,
    _joined,
    warnings={
        "pipe-joins-lines": (
            "A Pipe joins objects as they are: without a line feed at the end of an object two lines become one."
        )
    },
)
