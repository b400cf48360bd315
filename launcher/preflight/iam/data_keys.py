"""KMS keys that no spec names: whether those of the data can decrypt now, and whether those of the buckets can encrypt.

A key that is disabled or scheduled for deletion makes the data it encrypted unreadable, whatever the role may do.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.iam.encryption import keys_of_data
from launcher.preflight.iam.keys import STATES, described_key, named_keys
from launcher.preflight.iam.needs import default_keys
from launcher.preflight.uses import prefixes_read


def bucket_keys_work(subject: Subject) -> Iterator[Finding]:
    """Look at the keys of the data that is read and of the buckets that are written to. Raises AwsError."""
    for path, arn in keys_of_data(subject, prefixes_read(subject)):
        if wrong := _unfit(subject, arn):
            yield path, "data-key-disabled", f"the KMS key of the data, {arn}, {wrong}"
    for path, arn in default_keys(subject, dict(named_keys(subject))):
        if wrong := _unfit(subject, arn):
            yield path, "bucket-key-disabled", f"the default KMS key of the bucket, {arn}, {wrong}"


def _unfit(subject: Subject, arn: str) -> str | None:
    known = described_key(subject, arn)
    if known.get("KeyState", "Enabled") not in STATES:
        return None
    wrong, remedy = STATES[known["KeyState"]]
    return f"{wrong}; {remedy.format(key=known.get('KeyId', arn))}"


CHECK = Check(
    "keys of buckets",
    "Can the KMS keys of the data and of the buckets be used now?",
    bucket_keys_work,
    {
        "data-key-disabled": ("error", "The KMS key of data that the job reads cannot decrypt now."),
        "bucket-key-disabled": (
            "warning",
            "The default KMS key of a bucket that the job writes to cannot encrypt now.",
        ),
    },
)
