"""Objects that S3 keeps in an archive: listed like all others, and refused when they are read, until somebody restores them.

A listing tells the storage class, but neither whether an object of GLACIER was restored nor whether Intelligent-Tiering has put
one away; HeadObject tells both (Restore, ArchiveStatus), so a few objects are asked for. GLACIER_IR is read like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Found, Severity, Subject
from launcher.preflight.iam.needs import prefixes_read
from launcher.preflight.s3.listing import ARCHIVES, listing
from launcher.s3.uri import Place

ARCHIVED: tuple[Severity, str] = (
    "error",
    "Objects lie in an archive of S3 (GLACIER, DEEP_ARCHIVE, Intelligent-Tiering's), from which nothing can be read at once.",
)
REMEDY = "restore them (aws s3api restore-object), or copy them to S3 Standard"


def archive_of(head: Mapping[str, Any]) -> str | None:
    """The archive that an object lies in, by HeadObject's answer; None where it can be read."""
    if 'ongoing-request="false"' in str(head.get("Restore", "")):
        return None
    if head.get("ArchiveStatus"):
        return str(head["ArchiveStatus"])
    return str(head["StorageClass"]) if head.get("StorageClass") in ARCHIVES else None


def ask_archives(subject: Subject) -> Iterator[Found]:
    """Each prefix that is read, by what its listing shows."""
    for (path, place), outcome in at_once(lambda read: _archived(subject, read[1]), prefixes_read(subject)):
        try:
            wrong = outcome.result()
        except AwsError as error:
            if error.code != "NoSuchBucket":  # of which `buckets` tells
                subject.could_not_ask(path, error)
        else:
            if wrong:
                yield _told(path, place, wrong)


def _archived(subject: Subject, place: Place) -> str | None:
    """How many, as far as it is known, and in which archive. Raises AwsError."""
    found = listing(subject, place)
    for count, examples in ((found.archived.count, found.archived.examples), (0, found.tiered.examples)):
        for key in examples:
            archive = archive_of(subject.ask("s3", "head_object", Bucket=place.bucket, Key=key))
            if archive:
                least = "" if found.is_complete else "at least "
                many = f"{least}{count:,} of {found.count:,} objects are" if count else "objects are"
                return f"{many} archived ({archive}), such as {key!r}"
    return None


def _told(path: SpecPath, place: Place, wrong: str) -> Found:
    return path, "objects-archived", f"below {place}, {wrong}, and cannot be read; {REMEDY}"


CHECK = Check("archives", ask_archives, {"objects-archived": ARCHIVED})
