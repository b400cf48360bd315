"""Whether every bucket exists, is in the job's region, and is accessible; and what is special about directory buckets.

One question per bucket (HeadBucket). The answer is an existing bucket's region, 404 if there is no such bucket, or 403 if you
may not look at it. None of this concerns the job's role, which the check `role` covers. But a bucket that is not even among the
account's own belongs to another account, and then its name is often misspelt.

Each directory bucket (S3 Express One Zone) is in one availability zone.
Source: S3 user guide, directory-bucket-naming-rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.network.vpc import subnets, zone
from launcher.account.uses import Use, uses
from launcher.aws.account import AwsError
from launcher.errors import SpecPath, did_you_mean, dotted


def _buckets(subject: Subject) -> Iterable[tuple[SpecPath, list[Use]]]:
    """Return the uses of each bucket, at the first path in the spec that names it."""
    by_bucket: dict[str, list[Use]] = {}
    for use in uses(subject):
        by_bucket.setdefault(use.place.bucket, []).append(use)
    return [(used[0].path, used) for used in by_bucket.values()]


def _ask_bucket(subject: Subject, _: SpecPath, used: list[Use]) -> Iterator[Finding]:
    bucket = used[0].place.bucket
    try:
        answer = subject.ask("s3", "head_bucket", Bucket=bucket)
    except AwsError as error:
        yield from _refused(subject, bucket, error, used)
    else:
        yield from _in_region(subject, bucket, answer, used)


def _in_region(subject: Subject, bucket: str, answer: dict[str, Any], used: list[Use]) -> Iterator[Finding]:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("BucketRegion") or headers.get("x-amz-bucket-region")
    ours = subject.account.region
    if not region or region == ours:
        return  # S3-compatible stores name no region
    by_service = [use for use in used if use.by == "SageMaker"]
    where = f"bucket {bucket!r} is in {region}, but the job in {ours}"
    if by_service:
        message = (
            f"{where}, and SageMaker reads and writes in its own region only; run the job in {region}, or copy the data to a"
            f" bucket in {ours}{_also(by_service)}"
        )
        yield by_service[0].path, "bucket-region", message
    else:
        message = (
            f"{where}; the script must name {region} to its client, and the transfer is billed; a bucket in the job's region"
            f" needs neither{_also(used)}"
        )
        yield used[0].path, "bucket-region-connector", message


def _refused(subject: Subject, bucket: str, error: AwsError, used: list[Use]) -> Iterator[Finding]:
    path, is_directory = used[0].path, zone_of(bucket) is not None
    if error.status not in (403, 404) or (error.status == 403 and is_directory):  # ListBuckets leaves such buckets out
        subject.could_not_ask(path, error)
        return
    owner = subject.account.bucket_owners.get(bucket)
    if error.status == 403 and owner and subject.try_to_ask("s3", "head_bucket", Bucket=bucket, ExpectedBucketOwner=""):
        message = (
            f"bucket {bucket!r} does not belong to account {owner}; correct the name, or if another account's is meant, name that"
            f" account: bucket_owners: {{{bucket}: ACCOUNT}}{_also(used)}"
        )
        yield path, "bucket-owner", message
        return
    listed = subject.try_to_ask("s3", "list_buckets").get("Buckets")
    own = [each["Name"] for each in listed or ()]
    if error.status == 404:
        make = "" if is_directory else f" (aws s3 mb s3://{bucket})"
        remedy = f"correct the name, or create it{make}{_also(used)}"
        yield path, "bucket-missing", f"there is no bucket {bucket!r}{did_you_mean(bucket, own)}; {remedy}"
    elif listed is not None and bucket not in own:
        message = (
            f"bucket {bucket!r} belongs to another account and denies you access (403){did_you_mean(bucket, own)}; correct the"
            f" name, or have its owner allow the job's role in the bucket policy{_also(used)}"
        )
        yield path, "bucket-forbidden", message
    else:
        subject.could_not_ask(path, error)


def _also(used: list[Use]) -> str:
    """Return the other paths that name the same bucket, in brackets."""
    others = [dotted(use.path) for use in used[1:]]
    return f" (also {joined(others, 3)})" if others else ""


CHECK = Check("buckets", _ask_bucket, _buckets)


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


def _ask_directory_buckets(subject: Subject) -> Iterator[Finding]:
    for bucket, use in directory_buckets(subject).items():
        zones = sorted({zone(subnet) for subnet in subnets(subject)})
        if zones and zone_of(bucket) not in zones:
            message = (
                f"bucket {bucket!r} is in the zone {zone_of(bucket)}, but the job's subnets are in {', '.join(zones)}, so"
                f" each request crosses zones; name a subnet in {zone_of(bucket)}"
            )
            yield use.path, "directory-bucket-zone", message


DIRECTORY_BUCKETS = Check("directory buckets", _ask_directory_buckets)
