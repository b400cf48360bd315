"""What is stored below a prefix, and the objects that a manifest names.

A prefix is counted page by page while it is listed, so that ten million keys need no memory. A listing ends after 20,000 keys or
3 seconds after the first question, and is then marked as incomplete; with `--full` it continues to the end. All checks that look
at a prefix share one listing of it.

A manifest can name a million objects. Without `--full` the check looks at some of them, evenly spread, and reports how many.
Of an augmented manifest it reads only the beginning, by the parser of local runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from launcher.account.check import Subject
from launcher.account.storage import as_folder, channels
from launcher.aws.session import AwsError
from launcher.aws.threads import concurrently
from launcher.console import counted, human_bytes
from launcher.errors import Problem, RefusedError, SpecPath, did_you_mean
from launcher.request.view import Entry
from launcher.s3.manifests import AugmentedManifest, read_manifest
from launcher.s3.uri import S3Location, is_clutter
from sagemaker_channels.sources.items import evenly_spaced

MAX_KEYS = 20_000
MAX_SECONDS = 3.0
_EXAMPLES = 3
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")  # storage classes that need a restore; GLACIER_IR does not
RESTORE = "restore them (aws s3api restore-object), or copy them to S3 Standard"
_LARGEST = 8_000_000  # bytes; larger manifests are read only with --full
_BEGINNING = 256 * 1024  # bytes read of an augmented manifest
_LOOKED_AT = 100  # objects, or lines of an augmented manifest, that are looked at without --full
_AT_ONCE = 16  # questions at the same time


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
        return f"{self.least}{counted(self.count, 'object')}, {human_bytes(self.bytes)}"


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


@dataclass
class Named:
    """The known facts about the objects that a manifest names."""

    count: int
    bytes: int = 0  # of the objects that were looked at
    looked_at: int = 0
    missing: list[S3Location] = field(default_factory=list)
    archived: list[S3Location] = field(default_factory=list)
    refused: AwsError | None = None

    @property
    def is_complete(self) -> bool:
        return self.looked_at == self.count and self.refused is None


def with_manifest(subject: Subject) -> Iterator[tuple[SpecPath, tuple[Entry, S3Location]]]:
    for entry, place in channels(subject, "ManifestFile", "AugmentedManifestFile"):
        yield entry.path("s3_uri"), (entry, place)


def manifests(subject: Subject, path: SpecPath, manifest: tuple[Entry, S3Location]) -> Iterator[Problem]:
    """Does each manifest exist, is it well-formed, and do the objects it names exist?"""
    entry, place = manifest
    look = _of_augmented if entry.is_augmented else _of_manifest
    try:
        yield from look(subject, entry, place)
    except AwsError as error:
        if error.status != 404:
            raise
        # A 404 to HEAD may be about the bucket, which `buckets` reports.
        if subject.try_to_ask("s3", "head_bucket", Bucket=place.bucket):
            _, meant = near(subject, place)
            message = f"there is no object {place}{meant}; correct the URI, or upload the manifest"
            yield Problem(path, message, "manifest-missing")
    except RefusedError as error:
        yield Problem(path, str(error), "manifest-form")


def named_objects(subject: Subject, place: S3Location) -> Named | None:
    """Return what a ManifestFile names; None if it is too large to be read. Raises RefusedError, also if it is not well-formed."""
    named: Named | None = subject.once(repr(("manifest", place)), lambda: _read(subject, place))
    return named


def _size(subject: Subject, place: S3Location) -> int:
    return int(subject.ask("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"])


def _read(subject: Subject, place: S3Location) -> Named | None:
    size = _size(subject, place)
    if size > _LARGEST and not subject.full:
        return None
    whole = some_bytes(subject, place, "0-") if size else b""
    (bucket, prefix), entries = read_manifest(lambda _: (each for each in [whole]), str(place))
    places = [S3Location(bucket, prefix + entry) for entry in entries if not entry.endswith("/")]
    return _look_at(subject, places, place)


def _look_at(subject: Subject, places: Sequence[S3Location], manifest: S3Location) -> Named:
    """Request the metadata of all objects with --full, else of an evenly spread sample; list missing objects in manifest order."""
    named, missing = Named(len(places)), []
    chosen = evenly_spaced(range(len(places)), None if subject.full else _LOOKED_AT)

    def head(index: int) -> dict[str, Any]:
        return subject.account.call("s3", "head_object", Bucket=places[index].bucket, Key=places[index].key)

    for index, outcome in concurrently(head, chosen, threads=_AT_ONCE):
        try:
            found = outcome.result()
        except AwsError as error:
            if error.status != 404:
                named.refused = error
                continue
            missing.append(index)
        else:
            if archive_of(found):
                named.archived.append(places[index])
            named.bytes += found["ContentLength"]
        named.looked_at += 1
        subject.answers.looked_at[manifest] = named.looked_at
    named.missing = [places[index] for index in sorted(missing)]
    return named


def _of_manifest(subject: Subject, entry: Entry, place: S3Location) -> Iterator[Problem]:
    path, named = entry.path("s3_uri"), named_objects(subject, place)
    if named is None:
        subject.note(path, f"the manifest is larger than {human_bytes(_LARGEST)} and was not read; --full reads it")
        return
    if named.count == 0:
        raise RefusedError(f"{place} names no objects; list keys after its prefix")
    looked = f"; looked at {named.looked_at:,}, evenly spread"
    known = f", {human_bytes(named.bytes)}" if named.is_complete else looked
    subject.note(path, f"{named.count:,} objects in the manifest{known}")
    yield from _unreadable(subject, path, named, f"{place} names")


def _of_augmented(subject: Subject, entry: Entry, place: S3Location) -> Iterator[Problem]:
    path = entry.path("s3_uri")
    size, names = _size(subject, place), entry.get("AttributeNames") or ()
    if not names:
        return  # reported by a rule
    text = some_bytes(subject, place, f"0-{_BEGINNING - 1}") if size else b""
    text = text if len(text) == size else text[: text.rfind(b"\n") + 1]  # without a line that is cut off
    lines = AugmentedManifest(lambda _: (each for each in [text]), str(place), names, _LOOKED_AT)
    references = [each for index in range(len(lines)) for each in lines.values(index)]
    subject.note(path, f"an augmented manifest of {human_bytes(size)}; looked at {len(lines)} lines")
    named = _look_at(subject, [each for each in references if isinstance(each, S3Location)], place)
    yield from _unreadable(subject, path, named, f"the first lines of {place} name")


def _unreadable(subject: Subject, path: SpecPath, named: Named, what: str) -> Iterator[Problem]:
    if named.refused is not None:
        subject.could_not_ask(path, named.refused)
    if named.missing:
        of = f"{named.looked_at:,}" if named.is_complete else f"{named.looked_at:,} looked at (of {named.count:,})"
        shown = ", ".join(map(str, named.missing[:3]))
        wrong = f"{len(named.missing):,} of the {of} objects that {what} do not exist, such as {shown}"
        yield Problem(path, f"{wrong}; upload them, or write a new manifest", "manifest-keys-missing")
    if named.archived:
        shown = ", ".join(map(str, sorted(named.archived)[:3]))
        wrong = f"{len(named.archived):,} of the objects that {what} are archived, such as {shown}, and cannot be read"
        yield Problem(path, f"{wrong}; {RESTORE}", "objects-archived")
