"""What is stored below a prefix: counted page by page while it is listed, so that ten million keys need no memory.

A listing ends after 20,000 keys or 3 seconds after the first question, whichever comes first, and is then marked as
incomplete; with `--full` it continues to the end. All checks that look at a prefix share one listing of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from launcher.account.check import Subject
from launcher.account.places import as_folder
from launcher.console import human_bytes
from launcher.errors import did_you_mean
from launcher.s3.uri import S3Location, is_clutter

MAX_KEYS = 20_000
MAX_SECONDS = 3.0
_EXAMPLES = 3
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")  # storage classes that need a restore; GLACIER_IR does not
RESTORE = "restore them (aws s3api restore-object), or copy them to S3 Standard"


@dataclass
class Keys:
    """Keys of one kind: their number and the first few."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, key: str) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(key)


@dataclass
class Listing:
    """What is known of the keys that begin with a prefix; empty markers of folders do not count as objects."""

    place: S3Location
    count: int = 0
    bytes: int = 0
    markers: int = 0  # empty objects that hold no data: the console's `x/`, Hadoop's `_SUCCESS` and `x_$folder$`
    newest: datetime | None = None
    is_complete: bool = True
    empty: Keys = field(default_factory=Keys)  # other objects of 0 bytes
    clutter: Keys = field(default_factory=Keys)  # files of macOS and Windows, which the job reads as data
    archived: Keys = field(default_factory=Keys)  # objects of a storage class that needs a restore

    def add(self, found: Mapping[str, Any]) -> None:
        key, size = found["Key"], int(found["Size"])
        if not size and (key.rpartition("/")[2] in ("", "_SUCCESS") or key.endswith("_$folder$")):
            self.markers += 1
            return
        self.count += 1
        self.bytes += size
        if is_clutter(key):
            self.clutter.add(key)
        elif not size:
            self.empty.add(key)
        if found.get("StorageClass") in _ARCHIVES:
            self.archived.add(key)
        if (when := found.get("LastModified")) and (self.newest is None or when > self.newest):
            self.newest = when

    @property
    def least(self) -> str:
        """`at least ` if the listing is incomplete, to put before a number."""
        return "" if self.is_complete else "at least "

    def described(self) -> str:
        """Return `12,345 objects, 45.2 GB`, with `at least` if the listing is incomplete."""
        objects = "object" if self.count == 1 else "objects"
        return f"{self.least}{self.count:,} {objects}, {human_bytes(self.bytes)}"


def listing(subject: Subject, place: S3Location) -> Listing:
    """Return what is stored below a prefix; listed once for all checks. Raises AwsError."""
    known: Listing = subject.once(repr(("listing", place)), lambda: _list(subject, place))
    return known


def _list(subject: Subject, place: S3Location) -> Listing:
    found = Listing(place)
    for page in subject.account.pages("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key):
        for each in page.get("Contents", ()):
            found.add(each)
        subject.answers.looked_at[place] = found.count
        seconds = time.monotonic() - subject.answers.started
        if page.get("IsTruncated") and not subject.full and (found.count >= MAX_KEYS or seconds > MAX_SECONDS):
            found.is_complete = False
            break
    return found


def first_keys(ask: Callable[..., dict[str, Any]], place: S3Location) -> list[str]:
    """Return the keys of some objects below a prefix, without folder markers; `ask` is a subject's `ask` or `try_to_ask`."""
    page = ask("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key, MaxKeys=10)
    return [each["Key"] for each in page.get("Contents", ()) if not each["Key"].endswith("/")]


def beside(ask: Callable[..., dict[str, Any]], place: S3Location) -> list[str]:
    """Return the names that begin with a prefix, folders with their '/', as far as one page contains them."""
    page = ask("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key, Delimiter="/")
    names = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
    return names + [each["Key"] for each in page.get("Contents", ())]


def near(subject: Subject, place: S3Location) -> tuple[list[str], str]:
    """Return the names in the folder of a key that does not exist, and `; did you mean ...?`; empty if they cannot be listed."""
    folder = place.key.rstrip("/").rpartition("/")[0]
    names = beside(subject.try_to_ask, S3Location(place.bucket, as_folder(folder)))
    return names, did_you_mean(place.key, names)


def some_bytes(subject: Subject, place: S3Location, span: str) -> bytes:
    """Read a range of an object's bytes, such as `0-1`, or `-1` for the last byte. Raises AwsError."""
    get = {"Bucket": place.bucket, "Key": place.key, "Range": f"bytes={span}"}
    data: bytes = subject.account.attempt("s3", "get_object", lambda client: client.get_object(**get)["Body"].read())
    return data


def archive_of(head: Mapping[str, Any]) -> str | None:
    """Return the archive that an object is in, from HeadObject's answer; None if the object can be read."""
    is_restored = 'ongoing-request="false"' in str(head.get("Restore", ""))
    return str(head["StorageClass"]) if head.get("StorageClass") in _ARCHIVES and not is_restored else None
