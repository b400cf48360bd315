"""The KMS keys that nobody names in a spec: those with which the data is encrypted, and those of the buckets written to.

Reading an object needs kms:Decrypt on its key, and S3 encrypts with the bucket's own key where a request names none. Whoever
forgot either has a role that may do all to S3, and is denied all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.errors import SpecPath
from launcher.preflight.check import Subject
from launcher.preflight.iam.keys import described_key
from launcher.s3.uri import Place

_KMS = ("aws:kms", "aws:kms:dsse")


def keys_of_data(subject: Subject, reads: list[tuple[SpecPath, Place]]) -> Iterator[tuple[SpecPath, str]]:
    """The key's ARN of one object below each prefix, where KMS encrypted it; what cannot be asked is passed over."""
    for (path, _), outcome in at_once(lambda read: _key_of_object(subject, read[1]), reads):
        if arn := outcome.result():
            yield path, arn


def key_of_bucket(subject: Subject, bucket: str) -> str | None:
    """The ARN of the key with which S3 encrypts what is written to a bucket without a word of keys, if KMS does it."""
    try:
        answer = subject.ask("s3", "get_bucket_encryption", Bucket=bucket)
        for rule in answer["ServerSideEncryptionConfiguration"]["Rules"]:
            default = rule.get("ApplyServerSideEncryptionByDefault", {})
            if default.get("SSEAlgorithm") in _KMS and default.get("KMSMasterKeyID"):
                return str(described_key(subject, default["KMSMasterKeyID"])["Arn"])
    except AwsError as error:
        _pass_over(error)
    return None


def first_keys(subject: Subject, place: Place) -> list[str]:
    """Some keys below a prefix, without folder markers. Raises AwsError."""
    page = subject.ask("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key, MaxKeys=10)
    return [each["Key"] for each in page.get("Contents", ()) if not each["Key"].endswith("/")]


def _key_of_object(subject: Subject, place: Place) -> str | None:
    try:
        for key in first_keys(subject, place)[:1]:
            head = subject.ask("s3", "head_object", Bucket=place.bucket, Key=key)
            if head.get("ServerSideEncryption") in _KMS and head.get("SSEKMSKeyId"):
                return str(described_key(subject, head["SSEKMSKeyId"])["Arn"])
    except AwsError as error:
        _pass_over(error)
    return None


def _pass_over(error: AwsError) -> None:
    """What the caller may not see is no news about the role."""
    if error.is_expired:
        raise error
