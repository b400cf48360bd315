"""KMS keys that no spec names: those that encrypted the data, and the default keys of the buckets written to.

Reading an object needs kms:Decrypt on its key, and S3 encrypts with the bucket's default key if a request names none. A role
without permission for these keys is denied even if it may do everything in S3. A key that is disabled or scheduled for deletion
makes the data it encrypted unreadable, whatever the role may do. What you may not see of them is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.iam.keys import described_key, named_keys, unusable
from launcher.preflight.uses import place_of, prefixes_read
from launcher.s3.uri import S3Location

OUTPUT_KEY: SpecPath = ("output_data_config", "kms_key_id")
_KMS = ("aws:kms", "aws:kms:dsse")


def keys_of_data(subject: Subject) -> Iterator[tuple[SpecPath, str]]:
    """Yield the ARN of the key of one object below each prefix that is read, if KMS encrypted it."""
    for (path, _), outcome in at_once(lambda read: _key_of_object(subject, read[1]), prefixes_read(subject)):
        if arn := outcome.result():
            yield path, arn


def default_keys(subject: Subject) -> Iterator[tuple[SpecPath, str]]:
    """Yield the ARNs of the default keys of buckets to which the job writes without naming a key."""
    written: list[tuple[SpecPath, str]] = [(("checkpoint_config", "s3_uri"), "CheckpointConfig.S3Uri")]
    if OUTPUT_KEY not in dict(named_keys(subject)):
        written.insert(0, (("output_data_config", "s3_output_path"), "OutputDataConfig.S3OutputPath"))
    for path, member in written:
        place = place_of(subject.draft.get(member))
        if place is not None and (arn := _key_of_bucket(subject, place.bucket)):
            yield path, arn


def first_keys(subject: Subject, place: S3Location) -> list[str]:
    """Return the keys of some objects below a prefix, without folder markers. Raises AwsError."""
    page = subject.ask("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key, MaxKeys=10)
    return [each["Key"] for each in page.get("Contents", ()) if not each["Key"].endswith("/")]


def _key_of_object(subject: Subject, place: S3Location) -> str | None:
    def look() -> str | None:
        for key in first_keys(subject, place)[:1]:
            head = subject.ask("s3", "head_object", Bucket=place.bucket, Key=key)
            if head.get("ServerSideEncryption") in _KMS:
                return head.get("SSEKMSKeyId")
        return None

    return _visible_arn(subject, look)


def _key_of_bucket(subject: Subject, bucket: str) -> str | None:
    def look() -> str | None:
        answer = subject.ask("s3", "get_bucket_encryption", Bucket=bucket)
        for rule in answer["ServerSideEncryptionConfiguration"]["Rules"]:
            default = rule.get("ApplyServerSideEncryptionByDefault", {})
            if default.get("SSEAlgorithm") in _KMS and default.get("KMSMasterKeyID"):
                return str(default["KMSMasterKeyID"])
        return None

    return _visible_arn(subject, look)


def _visible_arn(subject: Subject, look: Callable[[], str | None]) -> str | None:
    """Return the ARN of the key that `look` returns; None if AWS refuses. Raises AwsError if the credentials have expired."""
    try:
        key = look()
        return str(described_key(subject, key)["Arn"]) if key else None
    except AwsError as error:
        if error.is_expired:
            raise
        return None


def _ask(subject: Subject) -> Iterator[Finding]:
    for path, arn in keys_of_data(subject):
        if wrong := unusable(described_key(subject, arn)):
            yield path, "data-key-disabled", f"the KMS key of the data, {arn}, {wrong}"
    for path, arn in default_keys(subject):
        if wrong := unusable(described_key(subject, arn)):
            yield path, "bucket-key-disabled", f"the default KMS key of the bucket, {arn}, {wrong}"


CHECK = Check(
    "keys of buckets",
    "Can the KMS keys of the data and of the buckets be used now?",
    _ask,
    errors={"data-key-disabled": "The KMS key of data that the job reads cannot decrypt now."},
    warnings={"bucket-key-disabled": "The default KMS key of a bucket that the job writes to cannot encrypt now."},
)
