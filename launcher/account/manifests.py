"""Whether each manifest exists and is well-formed, and whether the objects it names exist.

A manifest can name a million objects. Without `--full` the check looks at some of them, evenly spread, and reports how many.
It reads only the beginning of an augmented manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from launcher.account.check import Subject
from launcher.account.listing import RESTORE, archive_of, near, some_bytes
from launcher.account.places import channels, hosts_that_share, place_of
from launcher.aws.account import AwsError
from launcher.aws.threads import concurrently
from launcher.console import human_bytes
from launcher.errors import Problem, RefusedError, SpecPath, did_you_mean
from launcher.request.view import Entry
from launcher.s3.manifests import REFERENCE, read_manifest
from launcher.s3.uri import S3Location
from sagemaker_channels.sources.items import evenly_spaced

_LARGEST = 8_000_000  # bytes; larger manifests are read only with --full
_BEGINNING = 256 * 1024  # bytes read of an augmented manifest
_LINES = 100  # lines of an augmented manifest that are looked at
_LOOKED_AT = 100  # objects that are looked at without --full
_AT_ONCE = 16  # questions at the same time


@dataclass
class _Named:
    """The known facts about the objects that a manifest names."""

    count: int
    host_bytes: list[int]  # of the objects that were looked at
    looked_at: int = 0
    missing: list[S3Location] = field(default_factory=list)
    archived: list[S3Location] = field(default_factory=list)
    refused: AwsError | None = None

    @property
    def is_complete(self) -> bool:
        return self.looked_at == self.count and self.refused is None


class _FormError(RefusedError):
    """A manifest is not well-formed."""


def with_manifest(subject: Subject) -> Iterator[tuple[SpecPath, tuple[Entry, S3Location]]]:
    """Yield the channels that name a manifest."""
    for entry, place in channels(subject, "ManifestFile", "AugmentedManifestFile"):
        yield entry.path("s3_uri"), (entry, place)


def manifests(subject: Subject, path: SpecPath, manifest: tuple[Entry, S3Location]) -> Iterator[Problem]:
    """Does each manifest exist, is it well-formed, and do the objects it names exist?"""
    entry, place = manifest
    look = _of_augmented if entry.get("S3DataType") == "AugmentedManifestFile" else _of_manifest
    try:
        yield from list(look(subject, entry, place))
    except _FormError as error:
        yield Problem(path, str(error), "manifest-form")
    except AwsError as error:
        if error.status != 404:
            raise
        if error.code != "NoSuchBucket" and _has_bucket(subject, place):
            _, meant = near(subject, place)
            message = f"there is no object {place}{meant}; correct the URI, or upload the manifest"
            yield Problem(path, message, "manifest-missing")


def _has_bucket(subject: Subject, place: S3Location) -> bool:
    """Return whether the bucket exists, so that a 404 means the object; `buckets` reports a missing bucket."""
    try:
        subject.ask("s3", "head_bucket", Bucket=place.bucket)
    except AwsError as error:
        return error.status != 404
    return True


def named_objects(subject: Subject, entry: Entry, place: S3Location) -> _Named | None:
    """Return what a ManifestFile names; None if it is too large to be read, or not well-formed. Raises AwsError."""
    try:
        return _named_objects(subject, entry, place)
    except _FormError:
        return None


def _named_objects(subject: Subject, entry: Entry, place: S3Location) -> _Named | None:
    hosts = hosts_that_share(subject, entry)
    named: _Named | None = subject.once(repr(("manifest", place, hosts)), lambda: _read(subject, place, hosts))
    return named


def _read(subject: Subject, place: S3Location, hosts: int) -> _Named | None:
    size = subject.ask("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"]
    if size > _LARGEST and not subject.full:
        return None
    whole = some_bytes(subject, place, "0-") if size else b""
    try:
        (bucket, prefix), entries = read_manifest(lambda _: (each for each in [whole]), str(place))
        places = [S3Location(bucket, prefix + entry) for entry in entries if not entry.endswith("/")]
    except RefusedError as error:
        raise _FormError(str(error)) from error
    return _look_at(subject, places, hosts, place)


def _look_at(subject: Subject, places: Sequence[S3Location], hosts: int, manifest: S3Location) -> _Named:
    """Request the metadata of all objects with --full, else of an evenly spread sample; list missing objects in manifest order."""
    named, missing = _Named(len(places), [0] * hosts), []
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
            named.host_bytes[index % hosts] += found["ContentLength"]
        named.looked_at += 1
        subject.answers.looked_at[manifest] = named.looked_at
    named.missing = [places[index] for index in sorted(missing)]
    return named


def _of_manifest(subject: Subject, entry: Entry, place: S3Location) -> Iterator[Problem]:
    path = entry.path("s3_uri")
    named = _named_objects(subject, entry, place)
    if named is None:
        subject.note(path, f"the manifest is larger than {human_bytes(_LARGEST)} and was not read; --full reads it")
        return
    if named.count == 0:
        raise _FormError(f"{place} names no objects; list keys after its prefix")
    looked = f"; looked at {named.looked_at:,}, evenly spread"
    known = f", {human_bytes(sum(named.host_bytes))}" if named.is_complete else looked
    subject.note(path, f"{named.count:,} objects in the manifest{known}")
    yield from _unreadable(subject, path, named, f"{place} names")


def _unreadable(subject: Subject, path: SpecPath, named: _Named, what: str) -> Iterator[Problem]:
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


def _of_augmented(subject: Subject, entry: Entry, place: S3Location) -> Iterator[Problem]:
    path = entry.path("s3_uri")
    size = subject.ask("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"]
    lines = _beginning(subject, place, size) if size else []
    if not lines:
        raise _FormError(f"{place} has no lines; write one JSON object per line")
    subject.note(path, f"an augmented manifest of {human_bytes(size)}; looked at its first {len(lines)} lines")
    references: list[S3Location] = []
    for name in entry.get("AttributeNames") or ():
        yield from _attribute(entry, name, lines)
        for number, line in enumerate(lines, 1) if name.endswith(REFERENCE) else ():
            if name in line:
                reference = place_of(line[name]) if isinstance(line[name], str) else None
                if reference is None:
                    wrong = f"{name!r} is {repr(line[name])[:100]}, not an S3 URI"
                    raise _FormError(f"{place}: line {number}: {wrong}; write s3://bucket/key")
                references.append(reference)
    if references:
        named = _look_at(subject, references, 1, place)
        yield from _unreadable(subject, path, named, f"the first lines of {place} name")


def _beginning(subject: Subject, place: S3Location, size: int) -> list[dict[str, Any]]:
    """Return the first lines of an augmented manifest, without one that is cut off. Raises _FormError, AwsError."""
    text = some_bytes(subject, place, f"0-{_BEGINNING - 1}")
    lines = text.split(b"\n")
    if len(text) < size:
        lines.pop()
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    return [_object(place, number, line) for number, line in islice(numbered, _LINES)]


def _object(place: S3Location, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except ValueError as error:
        raise _FormError(f"{place}: line {number} is not JSON ({error}); write one JSON object per line") from None
    if not isinstance(value, dict):
        raise _FormError(f"{place}: line {number} is not a JSON object; write one JSON object per line")
    return value


def _attribute(entry: Entry, name: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    path, first = entry.path("attribute_names"), f"the manifest's first {len(lines)} lines"
    lacking = [number for number, line in enumerate(lines, 1) if name not in line]
    if len(lacking) == len(lines):
        known = sorted({key for line in lines for key in line})
        meant = did_you_mean(name, known) or f"; it has {', '.join(known[:5])}"
        yield Problem(path, f"none of {first} has {name!r}{meant}; correct the name", "manifest-attribute")
    elif lacking:
        wrong = f"{name!r} is missing in {len(lacking)} of {first}, first in line {lacking[0]}"
        yield Problem(path, f"{wrong}; add the attribute to every line", "manifest-attribute-gaps")
