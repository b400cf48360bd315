"""What each host gets of a channel under ShardedByS3Key: SageMaker divides the objects, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.console import human_bytes
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.listing import listing
from launcher.preflight.s3.manifests import named_objects
from launcher.preflight.uses import channels, hosts_that_share
from launcher.request.view import Entry
from launcher.s3.uri import S3Location

_MUCH = 64e6  # bytes; with less, the other hosts hardly wait for the fullest one
_UNEVEN = 1.5  # times the mean


def _sharded(subject: Subject) -> Iterator[tuple[SpecPath, tuple[Entry, S3Location]]]:
    for entry, place in channels(subject, "S3Prefix", "ManifestFile"):
        if hosts_that_share(subject, entry) > 1:
            yield entry.path("s3_data_distribution_type"), (entry, place)


def _ask(subject: Subject, path: SpecPath, channel: tuple[Entry, S3Location]) -> Iterator[Finding]:
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


CHECK = Check("shares", _ask, _sharded)
