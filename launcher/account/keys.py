"""KMS keys: those that the request names, those that encrypted the data, and the default keys of the buckets written to.

Reading an object needs kms:Decrypt on its key, and S3 encrypts with the bucket's default key if a request names none. A role
without permission for these keys is denied even if it may do everything in S3. A key that is disabled or scheduled for deletion
makes the data it encrypted unreadable, whatever the role may do. What you may not see of them is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from launcher.account.check import Subject
from launcher.account.listing import first_keys
from launcher.account.places import place_of, prefixes_read
from launcher.aws.threads import concurrently
from launcher.errors import Problem, SpecPath
from launcher.s3.uri import S3Location

OUTPUT_KEY: SpecPath = ("output_data_config", "kms_key_id")
_KMS = ("aws:kms", "aws:kms:dsse")
_STATES = {
    "Disabled": ("is disabled", "run aws kms enable-key --key-id {key}"),
    "PendingDeletion": ("is scheduled for deletion", "name another, or run aws kms cancel-key-deletion --key-id {key}"),
    "PendingReplicaDeletion": ("is scheduled for deletion", "name another"),
    "PendingImport": ("has no key material yet", "import it, or name another"),
    "Unavailable": ("is unavailable because its key store is disconnected", "connect the store, or name another"),
}


def named_keys(subject: Subject) -> list[tuple[SpecPath, str]]:
    """Return the keys that the request names, each with its path in the spec."""
    named = (
        (OUTPUT_KEY, subject.draft.get("OutputDataConfig.KmsKeyId")),
        (("resource_config", "volume_kms_key_id"), subject.draft.get("ResourceConfig.VolumeKmsKeyId")),
    )
    return [(path, key) for path, key in named if key]


def keys(subject: Subject, path: SpecPath, key: str) -> Iterator[Problem]:
    """Does each KMS key that the spec names exist, and can it encrypt?"""
    here, elsewhere = subject.account.region, re.match(r"arn:[^:]*:kms:([^:]+):", key)
    if elsewhere and elsewhere[1] != here:
        message = f"is in {elsewhere[1]}, but the job runs in {here}; name a key in {here}"
        yield Problem(path, message, "key-region")
        return
    answer = subject.find("kms", "describe_key", KeyId=key)
    if answer is None:
        message = (
            f"this account has no key {key!r} in {here}; `aws kms list-aliases{subject.account.options}` lists its keys"
        )
        yield Problem(path, message, "key-missing")
        return
    if wrong := _unusable(subject, answer):
        yield Problem(path, f"{key!r} {wrong}", "key-disabled")
    known = answer["KeyMetadata"]
    usage, spec = known.get("KeyUsage", "ENCRYPT_DECRYPT"), known.get("KeySpec", "SYMMETRIC_DEFAULT")
    if (usage, spec) != ("ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT"):
        message = f"{key!r} is a {spec} key for {usage}; name a SYMMETRIC_DEFAULT key for ENCRYPT_DECRYPT"
        yield Problem(path, message, "key-kind")


def _unusable(subject: Subject, answer: dict[str, Any]) -> str | None:
    """Return why the key in DescribeKey's answer cannot be used now, and what to do; None if it can."""
    known = answer["KeyMetadata"]
    wrong, remedy = _STATES.get(known.get("KeyState", ""), ("", ""))
    return f"{wrong}; {remedy.format(key=known['KeyId'] + subject.account.options)}" if wrong else None


def keys_of_data(subject: Subject) -> Iterator[tuple[SpecPath, str]]:
    """Yield the ARN of the key of one object below each prefix that is read, if KMS encrypted it."""
    for (path, _), outcome in concurrently(lambda read: _key_of_object(subject, read[1]), prefixes_read(subject)):
        if arn := outcome.result():
            yield path, arn


def _key_of_object(subject: Subject, place: S3Location) -> str | None:
    found = first_keys(subject.try_to_ask, place)
    head = subject.try_to_ask("s3", "head_object", Bucket=place.bucket, Key=found[0]) if found else {}
    return visible_arn(subject, head.get("SSEKMSKeyId")) if head.get("ServerSideEncryption") in _KMS else None


def default_keys(subject: Subject) -> Iterator[tuple[SpecPath, str]]:
    """Yield the ARNs of the default keys of buckets to which the job writes without naming a key."""
    written: list[tuple[SpecPath, str]] = [(("checkpoint_config", "s3_uri"), "CheckpointConfig.S3Uri")]
    if OUTPUT_KEY not in dict(named_keys(subject)):
        written.insert(0, (("output_data_config", "s3_output_path"), "OutputDataConfig.S3OutputPath"))
    for path, member in written:
        place = place_of(subject.draft.get(member))
        if place is not None and (arn := _key_of_bucket(subject, place.bucket)):
            yield path, arn


def _key_of_bucket(subject: Subject, bucket: str) -> str | None:
    answer = subject.try_to_ask("s3", "get_bucket_encryption", Bucket=bucket)
    for rule in answer.get("ServerSideEncryptionConfiguration", {}).get("Rules", ()):
        default = rule.get("ApplyServerSideEncryptionByDefault", {})
        if default.get("SSEAlgorithm") in _KMS and default.get("KMSMasterKeyID"):
            return visible_arn(subject, default["KMSMasterKeyID"])
    return None


def visible_arn(subject: Subject, key: str | None) -> str | None:
    """Return the ARN of a key; None if there is no such key, or if you may not see it."""
    known = subject.try_to_ask("kms", "describe_key", KeyId=key) if key else {}
    arn: str | None = known.get("KeyMetadata", {}).get("Arn")
    return arn


def keys_of_buckets(subject: Subject) -> Iterator[Problem]:
    """Can the KMS keys of the data and of the buckets be used now?"""
    for code, what, found in (
        ("data-key-disabled", "the KMS key of the data", keys_of_data(subject)),
        ("bucket-key-disabled", "the default KMS key of the bucket", default_keys(subject)),
    ):
        for path, arn in found:
            if wrong := _unusable(subject, subject.ask("kms", "describe_key", KeyId=arn)):
                yield Problem(path, f"{what}, {arn}, {wrong}", code)
