"""Do the objects that a Pipe joins end with a line feed? The last byte of each of the first few objects shows it.

In the joined stream a missing line feed cannot be seen: "1\\n2" and "3\\n" are the lines 1 and 23. Gzipped objects are
passed over, since their last byte is none of their content's.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.checks.job.code import LINES
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.s3.listing import listing
from launcher.preflight.uses import channels
from launcher.s3.uri import Place

_GZIP = b"\x1f\x8b"  # RFC 1952


def ask_line_ends(subject: Subject) -> Iterator[Found]:
    """Each channel whose lines go through a Pipe as they are stored."""
    joined = [
        (entry, place)
        for entry, place in channels(subject, "S3Prefix")
        if entry.get("InputMode") == "Pipe"
        and entry.content_type in LINES
        and entry.get("CompressionType") != "Gzip"
        and entry.get("RecordWrapperType") != "RecordIO"
    ]
    for (entry, _), outcome in at_once(lambda each: _look(subject, each[1]), joined):
        try:
            key = outcome.result()
        except AwsError as error:
            if error.code != "NoSuchBucket":  # which the check `buckets` reports
                subject.could_not_ask(entry.path("input_mode"), error)
            continue
        if key is not None:
            message = (
                f"is Pipe, which joins objects, but {key!r} does not end with a line feed, so its last line and the next object's "
                "first would be one; end every object with a line feed, or use FastFile"
            )
            yield entry.path("input_mode"), "pipe-joins-lines", message


def _look(subject: Subject, place: Place) -> str | None:
    """The first of a few objects that ends without a line feed, if there are several objects. Raises AwsError."""
    found = listing(subject, place)

    def part(key: str, span: str) -> bytes:
        get = {"Bucket": place.bucket, "Key": key, "Range": f"bytes={span}"}
        data: bytes = subject.account.attempt(
            "s3", "get_object", lambda client: client.get_object(**get)["Body"].read()
        )
        return data

    keys = found.some if found.count > 1 else []
    return next((key for key in keys if part(key, "-1") != b"\n" and part(key, "0-1") != _GZIP), None)


CHECK = Check(
    "line-ends",
    ask_line_ends,
    {
        "pipe-joins-lines": (
            "warning",
            "A Pipe joins objects as they are: without a line feed at an object's end two lines become one.",
        )
    },
)
