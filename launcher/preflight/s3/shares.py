"""What each host gets of a channel under ShardedByS3Key: SageMaker divides the objects, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.aws.account import AwsError
from launcher.console import human_bytes
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.listing import listing
from launcher.preflight.s3.manifests import FormError, named_objects
from launcher.preflight.uses import channels, hosts_that_share
from launcher.request.view import Entry
from launcher.s3.uri import S3Location

_MUCH = 64e6  # bytes; with less, the other hosts hardly wait for the fullest one
_UNEVEN = 1.5  # times the mean


def ask_shares(subject: Subject) -> Iterator[Finding]:
    """Look at each sharded channel, using what the other checks have listed."""

    def look(_: SpecPath, channel: tuple[Entry, S3Location]) -> Iterator[Finding]:
        try:
            yield from _shares(subject, *channel)
        except FormError:
            return  # reported by `manifests`
        except AwsError as error:
            if error.status != 404:  # reported by `buckets` and `manifests`
                raise

    sharded = [
        (entry.path("s3_uri"), (entry, place))
        for data_type in ("S3Prefix", "ManifestFile")
        for entry, place in channels(subject, data_type)
        if hosts_that_share(subject, entry) > 1
    ]
    yield from subject.each(sharded, look)


def _shares(subject: Subject, entry: Entry, place: S3Location) -> Iterator[Finding]:
    if entry.get("S3DataType") == "S3Prefix":
        found = listing(subject, place)
        yield from _judged(
            entry, found.count if found.is_complete else None, found.host_bytes(hosts_that_share(subject, entry))
        )
        return
    named = named_objects(subject, entry, place)
    if named is not None:
        yield from _judged(entry, named.count, named.host_bytes if named.is_complete else [0] * len(named.host_bytes))


def _judged(entry: Entry, count: int | None, host_bytes: Sequence[int]) -> Iterator[Finding]:
    """Judge the division of `count` objects (None if the listing is incomplete, so many); `host_bytes` are bytes per host."""
    hosts, path = len(host_bytes), entry.path("s3_data_distribution_type")
    if count is not None and 0 < count < hosts:
        objects = "1 object" if count == 1 else f"{count} objects"
        message = (
            f"ShardedByS3Key has {objects} for {hosts} hosts, so {hosts - count} would get nothing; split the data into at least "
            f"{hosts} objects, use fewer hosts, or use FullyReplicated"
        )
        yield path, "share-empty", message
        return
    most, mean = max(host_bytes), sum(host_bytes) / hosts
    if mean * hosts >= _MUCH and most > _UNEVEN * mean:
        message = (
            f"ShardedByS3Key divides objects, whatever their size: assigned in order, one of {hosts} hosts would get "
            f"{human_bytes(most)}, {most / mean:.1f} times the mean, and the others wait for it; make the objects similar in size"
        )
        yield path, "share-uneven", message


CHECK = Check(
    "shares",
    "Does ShardedByS3Key give every host a similar amount of data?",
    ask_shares,
    {
        "share-empty": (
            "warning",
            "ShardedByS3Key has fewer objects than hosts: some hosts get nothing, and are paid for.",
        ),
        "share-uneven": (
            "warning",
            "ShardedByS3Key divides objects, not bytes: one host would get far more than the others.",
        ),
    },
)
