"""The KMS keys that nobody names in a spec: whether the data's own can decrypt now, and whether the buckets' can encrypt.

A key that is disabled, or about to be deleted, makes what it encrypted unreadable, whatever the role may do.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.iam.encryption import keys_of_data
from launcher.preflight.iam.keys import STATES, described_key, named_keys
from launcher.preflight.iam.needs import buckets_keys, prefixes_read


def keys_of_buckets_work(subject: Subject) -> Iterator[Found]:
    """The keys of the data that is read, and those of the buckets that are written to. Raises AwsError."""
    for path, arn in keys_of_data(subject, prefixes_read(subject)):
        if wrong := _unfit(subject, arn):
            yield path, "data-key-disabled", f"the KMS key of the data, {arn}, {wrong}"
    for path, arn in buckets_keys(subject, dict(named_keys(subject))):
        if wrong := _unfit(subject, arn):
            yield path, "bucket-key-disabled", f"the KMS key with which the bucket encrypts, {arn}, {wrong}"


def _unfit(subject: Subject, arn: str) -> str | None:
    known = described_key(subject, arn)
    if known.get("KeyState", "Enabled") not in STATES:
        return None
    wrong, remedy = STATES[known["KeyState"]]
    return f"{wrong}; {remedy.format(key=known.get('KeyId', arn))}"


CHECK = Check(
    "keys of buckets",
    keys_of_buckets_work,
    {
        "data-key-disabled": ("error", "The KMS key of data that the job reads cannot decrypt now."),
        "bucket-key-disabled": (
            "warning",
            "The KMS key with which a bucket encrypts what is written cannot do so now.",
        ),
    },
)
