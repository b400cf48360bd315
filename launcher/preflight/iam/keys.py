"""KMS keys that the request names: whether each exists here, is enabled, and can encrypt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject

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
        (("output_data_config", "kms_key_id"), subject.draft.get("OutputDataConfig.KmsKeyId")),
        (("resource_config", "volume_kms_key_id"), subject.draft.get("ResourceConfig.VolumeKmsKeyId")),
    )
    return [(path, key) for path, key in named if key]


def unusable(answer: dict[str, Any]) -> str | None:
    """Return why the key in DescribeKey's answer cannot be used now, and what to do; None if it can."""
    known = answer["KeyMetadata"]
    wrong, remedy = _STATES.get(known.get("KeyState", ""), ("", ""))
    return f"{wrong}; {remedy.format(key=known['KeyId'])}" if wrong else None


def _ask(subject: Subject, path: SpecPath, key: str) -> Iterator[Finding]:
    here, elsewhere = subject.account.region, re.match(r"arn:[^:]*:kms:([^:]+):", key)
    if elsewhere and elsewhere[1] != here:
        yield path, "key-region", f"is in {elsewhere[1]}, but the job runs in {here}; name a key in {here}"
        return
    answer = subject.find("kms", "describe_key", KeyId=key)
    if answer is None:
        message = f"this account has no key {key!r} in {here}; `aws kms list-aliases` lists its keys"
        yield path, "key-missing", message
        return
    if wrong := unusable(answer):
        yield path, "key-disabled", f"{key!r} {wrong}"
    known = answer["KeyMetadata"]
    usage, spec = known.get("KeyUsage", "ENCRYPT_DECRYPT"), known.get("KeySpec", "SYMMETRIC_DEFAULT")
    if (usage, spec) != ("ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT"):
        message = f"{key!r} is a {spec} key for {usage}; name a SYMMETRIC_DEFAULT key for ENCRYPT_DECRYPT"
        yield path, "key-kind", message


CHECK = Check(
    "keys",
    "Does each KMS key that the spec names exist, and can it encrypt?",
    _ask,
    named_keys,
    errors={
        "key-region": "A KMS key works only in its own region.",
        "key-missing": "There is no such KMS key or alias in this account and region.",
        "key-disabled": "The KMS key cannot encrypt now: disabled, without material, or scheduled for deletion.",
        "key-kind": "S3 and EBS encrypt only with symmetric KMS keys.",
    },
)
