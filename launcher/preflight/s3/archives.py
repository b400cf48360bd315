"""Objects that S3 keeps in an archive: listed like all others, but not readable until they are restored.

A listing contains the storage class. It contains neither whether an object in GLACIER has been restored nor whether
Intelligent-Tiering has archived one. HeadObject returns both (Restore, ArchiveStatus), so the check asks about a few objects.
Objects in GLACIER_IR are readable like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Severity, Subject
from launcher.preflight.s3.listing import ARCHIVES, listing
from launcher.preflight.uses import prefixes_read
from launcher.s3.uri import S3Location

ARCHIVED: tuple[Severity, str] = (
    "error",
    "Objects are in an archive (GLACIER, DEEP_ARCHIVE, or Intelligent-Tiering's) and cannot be read until they are restored.",
)
REMEDY = "restore them (aws s3api restore-object), or copy them to S3 Standard"


def archive_of(head: Mapping[str, Any]) -> str | None:
    """Return the archive that an object is in, from HeadObject's answer; None if the object can be read."""
    if 'ongoing-request="false"' in str(head.get("Restore", "")):
        return None
    if head.get("ArchiveStatus"):
        return str(head["ArchiveStatus"])
    return str(head["StorageClass"]) if head.get("StorageClass") in ARCHIVES else None


def ask_archives(subject: Subject) -> Iterator[Finding]:
    """Look into the listing of each prefix that is read."""

    def look(path: SpecPath, place: S3Location) -> Iterator[Finding]:
        if wrong := _archived(subject, place):
            yield path, "objects-archived", f"below {place}, {wrong}, and cannot be read; {REMEDY}"

    yield from subject.each(prefixes_read(subject), look)


def _archived(subject: Subject, place: S3Location) -> str | None:
    """Return how many objects are archived, as far as known, and where. Raises AwsError."""
    found = listing(subject, place)
    for count, examples in ((found.archived.count, found.archived.examples), (0, found.tiered.examples)):
        for key in examples:
            archive = archive_of(subject.ask("s3", "head_object", Bucket=place.bucket, Key=key))
            if archive:
                least = "" if found.is_complete else "at least "
                many = f"{least}{count:,} of {found.count:,} objects are" if count else "objects are"
                return f"{many} archived ({archive}), such as {key!r}"
    return None


CHECK = Check(
    "archives", "Can the objects be read without restoring them?", ask_archives, {"objects-archived": ARCHIVED}
)
