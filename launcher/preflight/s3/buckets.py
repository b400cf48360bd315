"""Does every bucket exist, in the job's region, and for whom?

One question a bucket (HeadBucket), whose answer is an existing bucket's region, 404 for none, or 403 where the caller may not
look. That says nothing of the job's role, which the check `role` asks about; but a bucket that is not even among the account's
own is another's, and then it is most often a misspelt name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.errors import dotted
from launcher.nearest import did_you_mean
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.s3.directory_buckets import zone_of
from launcher.preflight.uses import Use, uses


def ask_buckets(subject: Subject) -> Iterator[Found]:
    """Each bucket once, at the first place of the spec that names it."""
    by_bucket: dict[str, list[Use]] = {}
    for use in uses(subject):
        by_bucket.setdefault(use.place.bucket, []).append(use)
    for bucket, answer in at_once(lambda bucket: subject.ask("s3", "head_bucket", Bucket=bucket), list(by_bucket)):
        try:
            yield from _in_region(subject, bucket, answer.result(), by_bucket[bucket])
        except AwsError as error:
            yield from _refused(subject, bucket, error, by_bucket[bucket])


def _in_region(subject: Subject, bucket: str, answer: dict[str, Any], used: list[Use]) -> Iterator[Found]:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("BucketRegion") or headers.get("x-amz-bucket-region")
    ours = subject.account.region
    if not region or region == ours:
        return  # stores other than AWS's name no region
    by_service = [use for use in used if use.by == "SageMaker"]
    if by_service:
        message = (
            f"bucket {bucket!r} lies in {region}, but the job in {ours}, and SageMaker reads and writes in its own region "
            f"only; run the job in {region}, or copy the data to a bucket in {ours}"
        )
        yield by_service[0].path, "bucket-region", message + _also(by_service)
    else:
        message = (
            f"bucket {bucket!r} lies in {region}, but the job in {ours}; the script must name {region} to its client, and "
            "the transfer is billed; a bucket in the job's region needs neither"
        )
        yield used[0].path, "bucket-region-connector", message + _also(used)


def _refused(subject: Subject, bucket: str, error: AwsError, used: list[Use]) -> Iterator[Found]:
    path = used[0].path
    if error.status == 404:
        near = did_you_mean(bucket, _own_buckets(subject) or ())
        make = "" if zone_of(bucket) else f" (aws s3 mb s3://{bucket})"
        message = f"there is no bucket {bucket!r}{near}; correct the name, or make it{make}"
        yield path, "bucket-missing", message + _also(used)
    elif (
        error.status == 403
        and not zone_of(bucket)  # ListBuckets leaves directory buckets out
        and (own := _own_buckets(subject)) is not None
        and bucket not in own
    ):
        message = (
            f"bucket {bucket!r} belongs to another account, and you may not look into it (403){did_you_mean(bucket, own)}; "
            "correct the name, or have its owner's bucket policy let the job's role in"
        )
        yield path, "bucket-forbidden", message + _also(used)
    else:
        subject.could_not_ask(path, error)


def _own_buckets(subject: Subject) -> list[str] | None:
    """The names of the account's buckets; None where the caller may not list them."""
    try:
        answer = subject.ask("s3", "list_buckets")
    except AwsError:
        return None
    return [bucket["Name"] for bucket in answer.get("Buckets", ())]


def _also(used: list[Use]) -> str:
    """Words for the other places that name the same bucket."""
    others = [dotted(use.path) for use in used[1:]]
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f" (also {', '.join(others[:3])}{more})" if others else ""


CHECK = Check(
    "buckets",
    ask_buckets,
    {
        "bucket-missing": ("error", "A bucket that the job reads or writes does not exist."),
        "bucket-forbidden": (
            "warning",
            "A bucket is none of the account's own, and refuses the caller; the role may be let in all the same.",
        ),
        "bucket-region": (
            "error",
            "A bucket lies in another region than the job; SageMaker reads and writes in its own region only.",
        ),
        "bucket-region-connector": (
            "warning",
            "A bucket that the script reads by itself lies in another region than the job.",
        ),
    },
)
