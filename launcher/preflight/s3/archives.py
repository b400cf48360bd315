"""Objects that S3 keeps in an archive: listed like all others, but not readable until they are restored.

A listing contains the storage class. It contains neither whether an object in GLACIER has been restored nor whether
Intelligent-Tiering has archived one. HeadObject returns both (Restore, ArchiveStatus), so the check asks about a few objects.
Objects in GLACIER_IR are readable like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.listing import ARCHIVES, listing
from launcher.preflight.uses import prefixes_read
from launcher.s3.uri import S3Location

REMEDY = "restore them (aws s3api restore-object), or copy them to S3 Standard"


def archive_of(head: Mapping[str, Any]) -> str | None:
    """Return the archive that an object is in, from HeadObject's answer; None if the object can be read."""
    if 'ongoing-request="false"' in str(head.get("Restore", "")):
        return None
    if head.get("ArchiveStatus"):
        return str(head["ArchiveStatus"])
    return str(head["StorageClass"]) if head.get("StorageClass") in ARCHIVES else None


def _ask(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Finding]:
    found = listing(subject, place)
    archived = f"{found.least}{found.archived.count:,} of {found.count:,} objects"
    for what, kind in ((archived, found.archived), ("objects", found.tiered)):
        for key in kind.examples:
            if archive := archive_of(subject.ask("s3", "head_object", Bucket=place.bucket, Key=key)):
                wrong = f"below {place}, {what} are archived ({archive}), such as {key!r}"
                yield path, "objects-archived", f"{wrong}, and cannot be read; {REMEDY}"
                return


CHECK = Check("archives", _ask, prefixes_read)
