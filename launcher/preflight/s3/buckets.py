"""Whether every bucket exists, is in the job's region, and is accessible.

One question per bucket (HeadBucket). The answer is an existing bucket's region, 404 if there is no such bucket, or 403 if you
may not look at it. None of this concerns the job's role, which the check `role` covers. But a bucket that is not even among the
account's own belongs to another account, and then its name is often misspelt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from launcher.aws.account import AwsError
from launcher.errors import SpecPath, did_you_mean, dotted
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.s3.directory_buckets import zone_of
from launcher.preflight.uses import Use, uses


def _buckets(subject: Subject) -> Iterable[tuple[SpecPath, list[Use]]]:
    """Return the uses of each bucket, at the first path in the spec that names it."""
    by_bucket: dict[str, list[Use]] = {}
    for use in uses(subject):
        by_bucket.setdefault(use.place.bucket, []).append(use)
    return [(used[0].path, used) for used in by_bucket.values()]


def _ask(subject: Subject, _: SpecPath, used: list[Use]) -> Iterator[Finding]:
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


CHECK = Check(
    "buckets",
    "Does every bucket exist, in the job's region, and may you look at it?",
    _ask,
    _buckets,
    errors={
        "bucket-missing": "A bucket that the job reads or writes does not exist.",
        "bucket-region": "A bucket is in another region; SageMaker reads and writes in its own region only.",
    },
    warnings={
        "bucket-forbidden": "Another account owns the bucket and denies you access; the job's role may still have it.",
        "bucket-region-connector": "A bucket that the script reads itself is in another region.",
    },
)
