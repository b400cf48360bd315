"""What each host gets of a channel under ShardedByS3Key: objects are dealt out, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.console import human_bytes
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.s3.listing import listing
from launcher.preflight.s3.manifests import FormError, named_objects
from launcher.preflight.uses import channels, hosts_that_share
from launcher.request.view import Entry
from launcher.s3.uri import Place

_MUCH = 64e6  # bytes; below this nobody waits for the host that has the most
_UNEVEN = 1.5  # times the mean


def ask_shares(subject: Subject) -> Iterator[Found]:
    """Each channel that is dealt out, from what the other checks have listed."""
    shared = [
        (entry, place)
        for data_type in ("S3Prefix", "ManifestFile")
        for entry, place in channels(subject, data_type)
        if hosts_that_share(subject, entry) > 1
    ]
    for (entry, _), outcome in at_once(lambda each: list(_shares(subject, *each)), shared):
        try:
            yield from outcome.result()
        except FormError:
            continue  # of which `manifests` tells
        except AwsError as error:
            if error.status != 404:  # of which `buckets` and `manifests` tell
                subject.could_not_ask(entry.path("s3_uri"), error)


def _shares(subject: Subject, entry: Entry, place: Place) -> Iterator[Found]:
    if entry.get("S3DataType") == "S3Prefix":
        found = listing(subject, place)
        yield from _judged(
            entry, found.count if found.is_complete else None, found.host_bytes(hosts_that_share(subject, entry))
        )
        return
    named = named_objects(subject, entry, place)
    if named is not None:
        yield from _judged(entry, named.count, named.host_bytes if named.is_complete else [0] * len(named.host_bytes))


def _judged(entry: Entry, count: int | None, host_bytes: Sequence[int]) -> Iterator[Found]:
    """`count` is None where it is not known to the end, and then large; `host_bytes` is what each host gets, in bytes."""
    hosts, path = len(host_bytes), entry.path("s3_data_distribution_type")
    if count is not None and 0 < count < hosts:
        of = "1 object" if count == 1 else f"{count} objects"
        message = (
            f"ShardedByS3Key has {of} for {hosts} hosts, so {hosts - count} would get nothing; split the data into at least "
            f"{hosts} objects, take fewer hosts, or use FullyReplicated"
        )
        yield path, "share-empty", message
        return
    most, mean = max(host_bytes), sum(host_bytes) / hosts
    if mean * hosts >= _MUCH and most > _UNEVEN * mean:
        message = (
            f"ShardedByS3Key deals out objects, whatever their size: dealt out in order, one of {hosts} hosts would get "
            f"{human_bytes(most)}, {most / mean:.1f} times the mean, and the others wait for it; make objects of like size"
        )
        yield path, "share-uneven", message


CHECK = Check(
    "shares",
    ask_shares,
    {
        "share-empty": (
            "warning",
            "ShardedByS3Key deals out fewer objects than there are hosts: some get nothing, and are paid for.",
        ),
        "share-uneven": (
            "warning",
            "ShardedByS3Key deals out objects, not bytes: one host would get far more than the others.",
        ),
    },
)
