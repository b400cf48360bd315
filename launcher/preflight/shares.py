"""What each host gets of a channel under ShardedByS3Key: objects are dealt out, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from launcher.checks.rule import Entry
from launcher.console import human_bytes
from launcher.preflight.check import Found, Severity, Subject

_MUCH = 64e6  # bytes; below this nobody waits for the host that has the most
_UNEVEN = 1.5  # times the mean

SHARES: Mapping[str, tuple[Severity, str]] = {
    "share-empty": (
        "warning",
        "ShardedByS3Key deals out fewer objects than there are hosts: some get nothing, and are paid for.",
    ),
    "share-uneven": (
        "warning",
        "ShardedByS3Key deals out objects, not bytes: one host would have far more than the others.",
    ),
}


def uneven_shares(
    subject: Subject, entry: Entry, count: int, host_bytes: Sequence[int], *, is_complete: bool
) -> Iterator[Found]:
    """What is wrong with the shares of a channel's `count` objects; `host_bytes` is what each host gets, dealt in order."""
    hosts, path = subject.draft.hosts_of(entry) or 1, entry.path("s3_data_distribution_type")
    if not entry.is_sharded or hosts < 2:
        return
    if is_complete and count < hosts:
        message = (
            f"ShardedByS3Key has {count} {'object' if count == 1 else 'objects'} for {hosts} hosts, so {hosts - count} would "
            f"get nothing; split the data into {hosts} objects or more, use at most {count} hosts, or FullyReplicated"
        )
        yield path, "share-empty", message
        return
    most, mean = max(host_bytes), sum(host_bytes) / len(host_bytes)
    if mean * hosts >= _MUCH and most > _UNEVEN * mean:
        message = (
            f"ShardedByS3Key deals out objects, whatever their size: one of {hosts} hosts would get about "
            f"{human_bytes(most)}, {most / mean:.1f} times the mean, and the others wait for it; make objects of like size"
        )
        yield path, "share-uneven", message
