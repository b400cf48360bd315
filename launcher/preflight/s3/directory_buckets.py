"""S3 Express One Zone: directory buckets, whose prefixes are folders and which are in one availability zone.

Source: S3 user guide, directory-bucket-naming-rules and s3-express-differences. The check `permissions` covers what the job's
role needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.network.vpc import subnets, zone
from launcher.preflight.uses import Use, as_folder, channels, uses

_NAME = re.compile(r".*--([a-z0-9-]+)--x-s3")


def zone_of(bucket: str) -> str | None:
    """Return the ID of a directory bucket's zone, such as `use1-az4`; None for any other bucket."""
    found = _NAME.fullmatch(bucket)
    return found[1] if found else None


def directory_buckets(subject: Subject) -> dict[str, Use]:
    """Return the directory buckets that the job uses, each with its first use."""
    found: dict[str, Use] = {}
    for use in uses(subject):
        if zone_of(use.place.bucket) is not None:
            found.setdefault(use.place.bucket, use)
    return found


def _ask(subject: Subject) -> Iterator[Finding]:
    for entry, place in channels(subject, "S3Prefix"):
        if zone_of(place.bucket) is not None and place.key != as_folder(place.key):
            wrong = f"{place} is in a directory bucket, which lists only folders"
            remedy = f"write {place}/, or list the keys in a manifest"
            yield entry.path("s3_uri"), "directory-bucket-prefix", f"{wrong}; {remedy}"
    for bucket, use in directory_buckets(subject).items():
        zones = sorted({zone(subnet) for subnet in subnets(subject)})
        if zones and zone_of(bucket) not in zones:
            message = (
                f"bucket {bucket!r} is in the zone {zone_of(bucket)}, but the job's subnets are in {', '.join(zones)}, so"
                f" each request crosses zones; name a subnet in {zone_of(bucket)}"
            )
            yield use.path, "directory-bucket-zone", message


CHECK = Check(
    "directory buckets",
    "Do prefixes and subnets fit the directory buckets (S3 Express One Zone)?",
    _ask,
    errors={
        "directory-bucket-prefix": (
            "A prefix in a directory bucket does not end in `/`; such buckets list only folders."
        )
    },
    warnings={
        "directory-bucket-zone": "No subnet of the job is in the directory bucket's zone, so each request crosses zones.",
    },
)
