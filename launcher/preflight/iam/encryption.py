"""KMS keys that no spec names: those that encrypted the data, and the default keys of the buckets written to.

Reading an object needs kms:Decrypt on its key, and S3 encrypts with the bucket's default key if a request names none. A role
without permission for these keys is denied even if it may do everything in S3.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.errors import SpecPath
from launcher.preflight.check import Subject
from launcher.preflight.iam.keys import described_key
from launcher.s3.uri import S3Location

_KMS = ("aws:kms", "aws:kms:dsse")


def keys_of_data(subject: Subject, reads: list[tuple[SpecPath, S3Location]]) -> Iterator[tuple[SpecPath, str]]:
    """Yield the ARN of the key of one object below each prefix, if KMS encrypted it; prefixes that you may not read are skipped."""
    for (path, _), outcome in at_once(lambda read: _key_of_object(subject, read[1]), reads):
        if arn := outcome.result():
            yield path, arn


def key_of_bucket(subject: Subject, bucket: str) -> str | None:
    """Return the ARN of the bucket's default key, if KMS encrypts it."""
    try:
        answer = subject.ask("s3", "get_bucket_encryption", Bucket=bucket)
        for rule in answer["ServerSideEncryptionConfiguration"]["Rules"]:
            default = rule.get("ApplyServerSideEncryptionByDefault", {})
            if default.get("SSEAlgorithm") in _KMS and default.get("KMSMasterKeyID"):
                return str(described_key(subject, default["KMSMasterKeyID"])["Arn"])
    except AwsError as error:
        _ignore(error)
    return None


def first_keys(subject: Subject, place: S3Location) -> list[str]:
    """Return some keys below a prefix, without folder markers. Raises AwsError."""
    page = subject.ask("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key, MaxKeys=10)
    return [each["Key"] for each in page.get("Contents", ()) if not each["Key"].endswith("/")]


def _key_of_object(subject: Subject, place: S3Location) -> str | None:
    try:
        for key in first_keys(subject, place)[:1]:
            head = subject.ask("s3", "head_object", Bucket=place.bucket, Key=key)
            if head.get("ServerSideEncryption") in _KMS and head.get("SSEKMSKeyId"):
                return str(described_key(subject, head["SSEKMSKeyId"])["Arn"])
    except AwsError as error:
        _ignore(error)
    return None


def _ignore(error: AwsError) -> None:
    """Ignore an error: what you may not see says nothing about the role. Raises it if the credentials have expired."""
    if error.is_expired:
        raise error
