"""Is each manifest there, is it of the right form, and does what it names exist?

A manifest can name a million objects: without `--full`, the check looks at some of them, evenly spread, and says at how many.
Of an augmented manifest it reads the beginning.
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
from launcher.errors import RefusedError, SpecPath
from launcher.nearest import did_you_mean
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.s3.archives import ARCHIVED, REMEDY, archive_of
from launcher.preflight.s3.listing import beside
from launcher.preflight.uses import channels, hosts_that_share, place_of
from launcher.request.view import Entry
from launcher.s3.manifests import REFERENCE, read_manifest
from launcher.s3.reading import read_object
from launcher.s3.uri import Place

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_LARGEST = 8_000_000  # bytes of a manifest that is read without --full
_BEGINNING = 256 * 1024  # bytes of an augmented manifest
_LINES = 100  # of an augmented manifest that are looked at
_LOOKED_AT = 100  # objects that are asked for without --full
_AT_ONCE = 16  # questions


@dataclass
class Named:
    """What is known of the objects that a manifest names."""

    count: int
    looked_at: int = 0
    bytes: int = 0  # of those that were looked at
    host_bytes: list[int] = field(default_factory=list)
    missing: list[Place] = field(default_factory=list)
    archived: list[Place] = field(default_factory=list)
    refused: AwsError | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all of them were looked at."""
        return self.looked_at == self.count and self.refused is None


class FormError(RefusedError):
    """What a manifest holds is not what it should."""


def ask_manifests(subject: Subject) -> Iterator[Found]:
    """Each channel that names a manifest, at the same time."""
    plain = list(channels(subject, "ManifestFile"))
    augmented = list(channels(subject, "AugmentedManifestFile"))
    looks = [(entry, place, _of_manifest) for entry, place in plain]
    looks += [(entry, place, _of_augmented) for entry, place in augmented]
    for (entry, place, _), outcome in at_once(lambda each: list(each[2](subject, each[0], each[1])), looks):
        path = entry.path("s3_uri")
        try:
            yield from outcome.result()
        except FormError as error:
            yield path, "manifest-form", str(error)
        except AwsError as error:
            if error.status == 404 and error.code != "NoSuchBucket" and _has_bucket(subject, place):
                near = _near(subject, place)
                yield (
                    path,
                    "manifest-missing",
                    f"there is no object {place}{near}; correct the URI, or upload the manifest",
                )
            elif error.status != 404:
                subject.could_not_ask(path, error)


def named_objects(subject: Subject, entry: Entry, place: Place) -> Named | None:
    """What a ManifestFile names; None where it is too large to be read. Raises RefusedError."""
    hosts = hosts_that_share(subject, entry)
    named: Named | None = subject.once(repr(("manifest", place, hosts)), lambda: _read(subject, place, hosts))
    return named


def _read(subject: Subject, place: Place, hosts: int) -> Named | None:
    size = subject.ask("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"]
    if size > _LARGEST and not subject.full:
        return None
    try:
        places: list[Place] = subject.account.attempt("s3", "get_object", lambda client: _named(client, place))
    except RefusedError as error:
        if _is_of_the_store(error):
            raise AwsError(str(error), call="s3:GetObject") from error
        if isinstance(error, AwsError):
            raise
        raise FormError(str(error)) from error
    return _look_at(subject, places, hosts, place)


def _named(client: S3Client, place: Place) -> list[Place]:
    (bucket, prefix), entries = read_manifest(partial(read_object, client), str(place))
    return [Place(bucket, prefix + entry) for entry in entries if not entry.endswith("/")]


def _is_of_the_store(error: RefusedError) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    return isinstance(error.__cause__, BotoCoreError | ClientError)


def _look_at(subject: Subject, places: Sequence[Place], hosts: int, manifest: Place) -> Named:
    """Ask for each object, or for some of them; those that are missing are told, in their order."""
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
    """At most `most` of the numbers below `count`, evenly spread, the first and the last among them."""
    return list(range(count)) if count <= most else [index * (count - 1) // (most - 1) for index in range(most)]


def _of_manifest(subject: Subject, entry: Entry, place: Place) -> Iterator[Found]:
    path = entry.path("s3_uri")
    named = named_objects(subject, entry, place)
    if named is None:
        subject.note(path, f"a manifest of more than {human_bytes(_LARGEST)}, not read; --full reads it")
        return
    if named.count == 0:
        yield path, "manifest-form", f"{place} names no objects; list keys after its prefix"
        return
    if named.is_complete:
        subject.note(path, f"{named.count:,} objects in the manifest, {human_bytes(named.bytes)}")
    else:
        subject.note(path, f"{named.count:,} objects in the manifest; looked at {named.looked_at:,}, evenly spread")
    yield from _missing(subject, path, named, f"{place} names")


def _missing(subject: Subject, path: SpecPath, named: Named, what: str) -> Iterator[Found]:
    if named.refused is not None:
        subject.could_not_ask(path, named.refused)
    if named.missing:
        of = f"{named.looked_at:,}" if named.is_complete else f"{named.looked_at:,} looked at (of {named.count:,})"
        shown = ", ".join(map(str, named.missing[:3]))
        message = (
            f"{len(named.missing):,} of the {of} objects that {what} do not exist, such as {shown}; upload them, or write the "
            "manifest anew"
        )
        yield path, "manifest-keys-missing", message
    if named.archived:
        shown = ", ".join(map(str, sorted(named.archived)[:3]))
        message = (
            f"{len(named.archived):,} of the objects that {what} are archived, such as {shown}, and cannot be read"
        )
        yield path, "objects-archived", f"{message}; {REMEDY}"


def _of_augmented(subject: Subject, entry: Entry, place: Place) -> Iterator[Found]:
    path, names = entry.path("s3_uri"), entry.get("AttributeNames") or ()
    size = subject.ask("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"]
    lines = _beginning(subject, place, size) if size else []
    if not lines:
        raise FormError(f"{place} has no lines; write one JSON object per line")
    subject.note(path, f"an augmented manifest of {human_bytes(size)}; looked at its first {len(lines)} lines")
    references: list[Place] = []
    for name in names:
        yield from _attribute(entry, name, lines)
        if name.endswith(REFERENCE):
            found = [(number, line[name]) for number, line in enumerate(lines, 1) if name in line]
            for number, value in found:
                reference = place_of(value) if isinstance(value, str) else None
                if reference is None:
                    raise FormError(
                        f"{place}: line {number}: {name!r} is {repr(value)[:100]}, no S3 URI; write s3://bucket/key"
                    )
                references.append(reference)
    if references:
        yield from _missing(subject, path, _look_at(subject, references, 1, place), f"the first lines of {place} name")


def _beginning(subject: Subject, place: Place, size: int) -> list[dict[str, Any]]:
    """The first lines of an augmented manifest, but for one that was cut. Raises FormError, AwsError."""
    text: bytes = subject.account.attempt(
        "s3",
        "get_object",
        lambda client: client.get_object(Bucket=place.bucket, Key=place.key, Range=f"bytes=0-{_BEGINNING - 1}")[
            "Body"
        ].read(),
    )
    lines = text.split(b"\n")
    if len(text) < size:
        lines.pop()
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if line.strip() and len(parsed) < _LINES:
            parsed.append(_object(place, number, line))
    return parsed


def _object(place: Place, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise FormError(f"{place}: line {number} is no JSON ({error}); write one JSON object per line") from None
    if not isinstance(value, dict):
        raise FormError(f"{place}: line {number} is no JSON object; write one JSON object per line")
    return value


def _attribute(entry: Entry, name: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[Found]:
    lacking = [number for number, line in enumerate(lines, 1) if name not in line]
    if not lacking:
        return
    path = entry.path("attribute_names")
    known = sorted({key for line in lines for key in line})
    near = did_you_mean(name, known) or f"; it has {', '.join(known[:5])}"
    if len(lacking) == len(lines):
        message = f"{name!r} is in none of the manifest's first {len(lines)} lines{near}; correct the name"
        yield path, "manifest-attribute", message
    else:
        message = (
            f"{name!r} is missing in {len(lacking)} of the manifest's first {len(lines)} lines, the first of them line "
            f"{lacking[0]}; give every line each attribute"
        )
        yield path, "manifest-attribute-gaps", message


def _has_bucket(subject: Subject, place: Place) -> bool:
    """Whether the bucket is there, so that a 404 means the object; of a missing bucket `buckets` tells."""
    try:
        subject.ask("s3", "head_bucket", Bucket=place.bucket)
    except AwsError as error:
        return error.status != 404
    return True


def _near(subject: Subject, place: Place) -> str:
    folder = place.key.rpartition("/")[0]
    try:
        return did_you_mean(place.key, beside(subject, Place(place.bucket, f"{folder}/" if folder else "")))
    except AwsError:
        return ""


CHECK = Check(
    "manifests",
    ask_manifests,
    {
        "manifest-missing": ("error", "The object that a channel names as its manifest does not exist."),
        "manifest-form": (
            "error",
            "A manifest is no JSON, or not of the form that its kind has, or names nothing.",
        ),
        "manifest-keys-missing": ("error", "Objects that a manifest names do not exist."),
        "objects-archived": ARCHIVED,
        "manifest-attribute": ("error", "No line of an augmented manifest has one of the `attribute_names`."),
        "manifest-attribute-gaps": (
            "warning",
            "Some lines of an augmented manifest lack one of the `attribute_names`.",
        ),
    },
)
