"""Whether every bucket exists, is in the job's region, and is accessible.

One question per bucket (HeadBucket). The answer is an existing bucket's region, 404 if there is no such bucket, or 403 if you
may not look at it. None of this concerns the job's role, which the check `role` covers. But a bucket that is not even among the
account's own belongs to another account, and then its name is often misspelt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.aws.account import AwsError
from launcher.errors import SpecPath, did_you_mean, dotted
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.directory_buckets import zone_of
from launcher.preflight.uses import Use, uses


def ask_buckets(subject: Subject) -> Iterator[Finding]:
    """Ask about each bucket once, at the first path in the spec that names it."""
    by_bucket: dict[str, list[Use]] = {}
    for use in uses(subject):
        by_bucket.setdefault(use.place.bucket, []).append(use)

    def look(_: SpecPath, used: list[Use]) -> Iterator[Finding]:
        bucket = used[0].place.bucket
        try:
            answer = subject.ask("s3", "head_bucket", Bucket=bucket)
        except AwsError as error:
            yield from _refused(subject, bucket, error, used)
        else:
            yield from _in_region(subject, bucket, answer, used)

    yield from subject.each([(used[0].path, used) for used in by_bucket.values()], look)


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
            f" bucket in {ours}"
        )
        yield by_service[0].path, "bucket-region", message + _also(by_service)
    else:
        message = (
            f"{where}; the script must name {region} to its client, and the transfer is billed; a bucket in the job's region"
            " needs neither"
        )
        yield used[0].path, "bucket-region-connector", message + _also(used)


def _refused(subject: Subject, bucket: str, error: AwsError, used: list[Use]) -> Iterator[Finding]:
    path = used[0].path
    if error.status == 404:
        near = did_you_mean(bucket, _own_buckets(subject) or ())
        make = "" if zone_of(bucket) else f" (aws s3 mb s3://{bucket})"
        message = f"there is no bucket {bucket!r}{near}; correct the name, or create it{make}"
        yield path, "bucket-missing", message + _also(used)
    elif (
        error.status == 403
        and not zone_of(bucket)  # ListBuckets leaves directory buckets out
        and (own := _own_buckets(subject)) is not None
        and bucket not in own
    ):
        message = (
            f"bucket {bucket!r} belongs to another account and denies you access (403){did_you_mean(bucket, own)}; correct the"
            " name, or have its owner allow the job's role in the bucket policy"
        )
        yield path, "bucket-forbidden", message + _also(used)
    else:
        subject.could_not_ask(path, error)


def _own_buckets(subject: Subject) -> list[str] | None:
    """Return the names of the account's buckets; None if you may not list them."""
    try:
        answer = subject.ask("s3", "list_buckets")
    except AwsError:
        return None
    return [bucket["Name"] for bucket in answer.get("Buckets", ())]


def _also(used: list[Use]) -> str:
    """Return the other paths that name the same bucket, in brackets."""
    others = [dotted(use.path) for use in used[1:]]
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f" (also {', '.join(others[:3])}{more})" if others else ""


CHECK = Check(
    "buckets",
    "Does every bucket exist, in the job's region, and may you look at it?",
    ask_buckets,
    {
        "bucket-missing": ("error", "A bucket that the job reads or writes does not exist."),
        "bucket-forbidden": (
            "warning",
            "Another account owns the bucket and denies you access; the job's role may still have it.",
        ),
        "bucket-region": ("error", "A bucket is in another region; SageMaker reads and writes in its own region only."),
        "bucket-region-connector": ("warning", "A bucket that the script reads itself is in another region."),
    },
)
