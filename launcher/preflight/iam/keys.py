"""KMS keys: whether each that the request names exists here, is enabled, and is of the kind that encrypts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.asking import each
from launcher.preflight.check import Check, Found, Subject

STATES = {
    "Disabled": ("is disabled", "enable it: aws kms enable-key --key-id {key}"),
    "PendingDeletion": ("is about to be deleted", "name another, or: aws kms cancel-key-deletion --key-id {key}"),
    "PendingReplicaDeletion": ("is about to be deleted", "name another"),
    "PendingImport": ("has no key material yet", "import it, or name another"),
    "Unavailable": ("is unavailable, as its key store is disconnected", "connect the store, or name another"),
}


def named_keys(subject: Subject) -> list[tuple[SpecPath, str]]:
    """The keys that the request names, with their places in the spec."""
    said = (
        (("output_data_config", "kms_key_id"), subject.draft.get("OutputDataConfig.KmsKeyId")),
        (("resource_config", "volume_kms_key_id"), subject.draft.get("ResourceConfig.VolumeKmsKeyId")),
    )
    return [(path, key) for path, key in said if key]


def described_key(subject: Subject, key: str) -> dict[str, Any]:
    """KMS's description of a key, whichever way it is named: id, alias, or the ARN of either. Raises AwsError."""
    known: dict[str, Any] = subject.ask("kms", "describe_key", KeyId=key)["KeyMetadata"]
    return known


def keys_can_encrypt(subject: Subject) -> Iterator[Found]:
    """Ask KMS about each key."""

    def look(path: SpecPath, key: str) -> Iterator[Found]:
        here, elsewhere = subject.account.region, re.match(r"arn:[^:]*:kms:([^:]+):", key)
        if elsewhere and elsewhere[1] != here:
            yield path, "key-region", f"lies in {elsewhere[1]}, but the job runs in {here}; name a key of {here}"
            return
        try:
            known = described_key(subject, key)
        except AwsError as error:
            if error.code != "NotFoundException":
                raise
            yield (
                path,
                "key-missing",
                f"{key!r} is no key of this account in {here}; `aws kms list-aliases` shows those there are",
            )
            return
        yield from _unfit(path, key, known)

    yield from each(subject, named_keys(subject), look)


def _unfit(path: SpecPath, key: str, known: dict[str, Any]) -> Iterator[Found]:
    state = known.get("KeyState", "Enabled")
    if state in STATES:
        wrong, remedy = STATES[state]
        yield path, "key-disabled", f"{key!r} {wrong}; {remedy.format(key=known.get('KeyId', key))}"
    usage, spec = known.get("KeyUsage", "ENCRYPT_DECRYPT"), known.get("KeySpec", "SYMMETRIC_DEFAULT")
    if usage != "ENCRYPT_DECRYPT" or spec != "SYMMETRIC_DEFAULT":
        yield (
            path,
            "key-kind",
            f"{key!r} is a key of {spec} for {usage}; name one of SYMMETRIC_DEFAULT for ENCRYPT_DECRYPT",
        )


CHECK = Check(
    "keys",
    keys_can_encrypt,
    {
        "key-region": ("error", "A KMS key works in the region where it was made only."),
        "key-missing": ("error", "There is no such KMS key or alias in this account and region."),
        "key-disabled": (
            "error",
            "The KMS key cannot encrypt now: disabled, without material, or about to be deleted.",
        ),
        "key-kind": ("error", "S3 and EBS encrypt with symmetric KMS keys only."),
    },
)
