"""Whether each manifest exists and is well-formed, and whether the objects it names exist.

A manifest can name a million objects. Without `--full` the check looks at some of them, evenly spread, and reports how many.
It reads only the beginning of an augmented manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.console import human_bytes
from launcher.errors import RefusedError, SpecPath, did_you_mean
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.archives import ARCHIVED, REMEDY, archive_of
from launcher.preflight.s3.listing import beside, some_bytes
from launcher.preflight.uses import channels, hosts_that_share, place_of
from launcher.request.view import Entry
from launcher.s3.manifests import REFERENCE, read_manifest
from launcher.s3.reading import read_object
from launcher.s3.uri import S3Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_LARGEST = 8_000_000  # bytes; larger manifests are read only with --full
_BEGINNING = 256 * 1024  # bytes read of an augmented manifest
_LINES = 100  # lines of an augmented manifest that are looked at
_LOOKED_AT = 100  # objects that are looked at without --full
_AT_ONCE = 16  # questions at the same time


@dataclass
class Named:
    """What is known of the objects that a manifest names."""

    count: int
    looked_at: int = 0
    bytes: int = 0  # of the objects that were looked at
    host_bytes: list[int] = field(default_factory=list)
    missing: list[S3Location] = field(default_factory=list)
    archived: list[S3Location] = field(default_factory=list)
    refused: AwsError | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all of them were looked at."""
        return self.looked_at == self.count and self.refused is None


class FormError(RefusedError):
    """A manifest is not well-formed."""


def ask_manifests(subject: Subject) -> Iterator[Finding]:
    """Look at each channel that names a manifest."""

    def look(path: SpecPath, manifest: tuple[Entry, S3Location]) -> Iterator[Finding]:
        entry, place = manifest
        is_augmented = entry.get("S3DataType") == "AugmentedManifestFile"
        try:
            yield from list((_of_augmented if is_augmented else _of_manifest)(subject, entry, place))
        except FormError as error:
            yield path, "manifest-form", str(error)
        except AwsError as error:
            if error.status != 404:
                raise
            if error.code != "NoSuchBucket" and _has_bucket(subject, place):
                message = f"there is no object {place}{_near(subject, place)}; correct the URI, or upload the manifest"
                yield path, "manifest-missing", message

    manifests = [
        (entry.path("s3_uri"), (entry, place))
        for data_type in ("ManifestFile", "AugmentedManifestFile")
        for entry, place in channels(subject, data_type)
    ]
    yield from subject.each(manifests, look)


def named_objects(subject: Subject, entry: Entry, place: S3Location) -> Named | None:
    """Return what a ManifestFile names; None if it is too large to be read. Raises RefusedError."""
    hosts = hosts_that_share(subject, entry)
    named: Named | None = subject.once(repr(("manifest", place, hosts)), lambda: _read(subject, place, hosts))
    return named


def _read(subject: Subject, place: S3Location, hosts: int) -> Named | None:
    size = subject.ask("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"]
    if size > _LARGEST and not subject.full:
        return None
    try:
        places: list[S3Location] = subject.account.attempt("s3", "get_object", lambda client: _named(client, place))
    except RefusedError as error:
        if _is_from_aws(error):
            raise AwsError(str(error), call="s3:GetObject") from error
        if isinstance(error, AwsError):
            raise
        raise FormError(str(error)) from error
    return _look_at(subject, places, hosts, place)


def _named(client: S3Client, place: S3Location) -> list[S3Location]:
    (bucket, prefix), entries = read_manifest(partial(read_object, client), str(place))
    return [S3Location(bucket, prefix + entry) for entry in entries if not entry.endswith("/")]


def _is_from_aws(error: RefusedError) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    return isinstance(error.__cause__, BotoCoreError | ClientError)


def _look_at(subject: Subject, places: Sequence[S3Location], hosts: int, manifest: S3Location) -> Named:
    """Request the metadata of all objects with --full, else of an evenly spread sample; list missing objects in manifest order."""
    named = Named(len(places), host_bytes=[0] * hosts)
    chosen = range(len(places)) if subject.full else _spread(len(places), _LOOKED_AT)
    missing = []
    for index, outcome in at_once(
        lambda index: subject.account.call("s3", "head_object", Bucket=places[index].bucket, Key=places[index].key),
        chosen,
        threads=_AT_ONCE,
    ):
        try:
            head = outcome.result()
        except AwsError as error:
            if error.status == 404:
                missing.append(index)
            else:
                named.refused = error
                continue
        else:
            size = head["ContentLength"]
            if archive_of(head):
                named.archived.append(places[index])
            named.bytes += size
            named.host_bytes[index % hosts] += size
        named.looked_at += 1
        subject.progress[manifest] = named.looked_at, len(chosen)
    named.missing = [places[index] for index in sorted(missing)]
    return named


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` of the numbers below `count`, evenly spread, with the first and the last among them."""
    return list(range(count)) if count <= most else [index * (count - 1) // (most - 1) for index in range(most)]


def _of_manifest(subject: Subject, entry: Entry, place: S3Location) -> Iterator[Finding]:
    path = entry.path("s3_uri")
    named = named_objects(subject, entry, place)
    if named is None:
        subject.note(path, f"the manifest is larger than {human_bytes(_LARGEST)} and was not read; --full reads it")
        return
    if named.count == 0:
        yield path, "manifest-form", f"{place} names no objects; list keys after its prefix"
        return
    if named.is_complete:
        subject.note(path, f"{named.count:,} objects in the manifest, {human_bytes(named.bytes)}")
    else:
        subject.note(path, f"{named.count:,} objects in the manifest; looked at {named.looked_at:,}, evenly spread")
    yield from _missing(subject, path, named, f"{place} names")


def _missing(subject: Subject, path: SpecPath, named: Named, what: str) -> Iterator[Finding]:
    if named.refused is not None:
        subject.could_not_ask(path, named.refused)
    if named.missing:
        of = f"{named.looked_at:,}" if named.is_complete else f"{named.looked_at:,} looked at (of {named.count:,})"
        shown = ", ".join(map(str, named.missing[:3]))
        message = (
            f"{len(named.missing):,} of the {of} objects that {what} do not exist, such as {shown}; upload them, or write a new "
            "manifest"
        )
        yield path, "manifest-keys-missing", message
    if named.archived:
        shown = ", ".join(map(str, sorted(named.archived)[:3]))
        message = (
            f"{len(named.archived):,} of the objects that {what} are archived, such as {shown}, and cannot be read"
        )
        yield path, "objects-archived", f"{message}; {REMEDY}"


def _of_augmented(subject: Subject, entry: Entry, place: S3Location) -> Iterator[Finding]:
    path, names = entry.path("s3_uri"), entry.get("AttributeNames") or ()
    size = subject.ask("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"]
    lines = _beginning(subject, place, size) if size else []
    if not lines:
        raise FormError(f"{place} has no lines; write one JSON object per line")
    subject.note(path, f"an augmented manifest of {human_bytes(size)}; looked at its first {len(lines)} lines")
    references: list[S3Location] = []
    for name in names:
        yield from _attribute(entry, name, lines)
        if name.endswith(REFERENCE):
            found = [(number, line[name]) for number, line in enumerate(lines, 1) if name in line]
            for number, value in found:
                reference = place_of(value) if isinstance(value, str) else None
                if reference is None:
                    raise FormError(
                        f"{place}: line {number}: {name!r} is {repr(value)[:100]}, not an S3 URI; write s3://bucket/key"
                    )
                references.append(reference)
    if references:
        yield from _missing(subject, path, _look_at(subject, references, 1, place), f"the first lines of {place} name")


def _beginning(subject: Subject, place: S3Location, size: int) -> list[dict[str, Any]]:
    """Return the first lines of an augmented manifest, without one that is cut off. Raises FormError, AwsError."""
    text = some_bytes(subject, place, f"0-{_BEGINNING - 1}")
    lines = text.split(b"\n")
    if len(text) < size:
        lines.pop()
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if line.strip() and len(parsed) < _LINES:
            parsed.append(_object(place, number, line))
    return parsed


def _object(place: S3Location, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise FormError(f"{place}: line {number} is not JSON ({error}); write one JSON object per line") from None
    if not isinstance(value, dict):
        raise FormError(f"{place}: line {number} is not a JSON object; write one JSON object per line")
    return value


def _attribute(entry: Entry, name: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    lacking = [number for number, line in enumerate(lines, 1) if name not in line]
    if not lacking:
        return
    path = entry.path("attribute_names")
    known = sorted({key for line in lines for key in line})
    near = did_you_mean(name, known) or f"; it has {', '.join(known[:5])}"
    if len(lacking) == len(lines):
        message = f"none of the manifest's first {len(lines)} lines has {name!r}{near}; correct the name"
        yield path, "manifest-attribute", message
    else:
        message = (
            f"{name!r} is missing in {len(lacking)} of the manifest's first {len(lines)} lines, first in line "
            f"{lacking[0]}; add the attribute to every line"
        )
        yield path, "manifest-attribute-gaps", message


def _has_bucket(subject: Subject, place: S3Location) -> bool:
    """Whether the bucket exists, so that a 404 means the object; `buckets` reports a missing bucket."""
    try:
        subject.ask("s3", "head_bucket", Bucket=place.bucket)
    except AwsError as error:
        return error.status != 404
    return True


def _near(subject: Subject, place: S3Location) -> str:
    folder = place.key.rpartition("/")[0]
    try:
        return did_you_mean(place.key, beside(subject, S3Location(place.bucket, f"{folder}/" if folder else "")))
    except AwsError:
        return ""


CHECK = Check(
    "manifests",
    "Does each manifest exist, is it well-formed, and do the objects it names exist?",
    ask_manifests,
    {
        "manifest-missing": ("error", "The object that a channel names as its manifest does not exist."),
        "manifest-form": (
            "error",
            "A manifest is not JSON, does not have the form of its kind, or names nothing.",
        ),
        "manifest-keys-missing": ("error", "Objects that a manifest names do not exist."),
        "objects-archived": ARCHIVED,
        "manifest-attribute": ("error", "One of the `attribute_names` is in no line of an augmented manifest."),
        "manifest-attribute-gaps": (
            "warning",
            "Some lines of an augmented manifest lack one of the `attribute_names`.",
        ),
    },
)
