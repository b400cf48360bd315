"""Is what a channel calls gzipped really gzipped? Two bytes of its first object tell."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.s3.listing import listing
from launcher.preflight.uses import channels
from launcher.s3.uri import Place

_MAGIC = b"\x1f\x8b"  # RFC 1952


def ask_compression(subject: Subject) -> Iterator[Found]:
    """Each channel that Pipe is to unzip."""
    zipped = [
        (entry, place)
        for entry, place in channels(subject, "S3Prefix")
        if entry.get("CompressionType") == "Gzip" and entry.get("InputMode") == "Pipe"
    ]
    for (entry, _), outcome in at_once(lambda each: _look(subject, each[1]), zipped):
        try:
            key = outcome.result()
        except AwsError as error:
            if error.code != "NoSuchBucket":  # of which `buckets` tells
                subject.could_not_ask(entry.path("compression_type"), error)
            continue
        if key is not None:
            message = f"is Gzip, but {key!r} is not gzipped, so that Pipe cannot unzip it; zip the objects, or delete this key"
            yield entry.path("compression_type"), "channel-not-gzip", message


def _look(subject: Subject, place: Place) -> str | None:
    """The key of the first object with bytes, where that is no gzip file. Raises AwsError."""
    keys = listing(subject, place).some
    if not keys:
        return None
    key = keys[0]
    beginning: bytes = subject.account.attempt(
        "s3",
        "get_object",
        lambda client: client.get_object(Bucket=place.bucket, Key=key, Range="bytes=0-1")["Body"].read(),
    )
    return None if beginning == _MAGIC else key


CHECK = Check(
    "compression",
    ask_compression,
    {
        "channel-not-gzip": (
            "warning",
            "The first object of a channel that Pipe is to unzip (`compression_type: Gzip`) is no gzip file.",
        )
    },
)
