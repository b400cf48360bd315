"""Every place in S3 that a request reads or writes: channels, the connector's, the code, outputs, checkpoints, debugger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from entrypoints import contract
from launcher.checks.channels.uris import uris
from launcher.errors import RefusedError, SpecPath
from launcher.preflight.check import Subject
from launcher.request.build import connector_variables
from launcher.request.view import Entry
from launcher.s3.uri import S3Location, parse_s3_uri


class Use(NamedTuple):
    """One place in S3 that the job uses."""

    path: SpecPath
    place: S3Location
    by: Literal["SageMaker", "script"]  # which of them reads or writes it


def uses(subject: Subject) -> Iterator[Use]:
    """Yield what the job reads or writes, once for each path in the spec."""
    seen = set()
    for use in (*_of_connectors(subject), *_of_code(subject), *_of_request(subject)):
        if use.path not in seen:
            seen.add(use.path)
            yield use


def place_of(uri: str) -> S3Location | None:
    """Return the bucket (or the ARN of an access point) and the key of a URI; None if it is not one, which a rule reports."""
    try:
        place = parse_s3_uri(uri)
    except RefusedError:
        return None
    if place.bucket.startswith("arn:"):
        name, _, key = place.key.partition("/")
        return S3Location(f"{place.bucket}/{name}", key)
    return place


def code_path(subject: Subject) -> SpecPath:
    """Return the path in the spec that sets where the code is stored."""
    code = subject.draft.spec.code
    return ("code", "s3_uri") if code is not None and code.s3_uri is not None else ("code",)


def channels(subject: Subject, data_type: str) -> Iterator[tuple[Entry, S3Location]]:
    """Yield the channels of one S3DataType that SageMaker reads; not the code channel, whose objects are uploaded later."""
    for entry in subject.draft.entries:
        place = place_of(entry.get("S3Uri") or "")
        if place and entry.get("S3DataType") == data_type and not _is_code(subject, entry.request):
            yield entry, place


def hosts_that_share(subject: Subject, entry: Entry) -> int:
    """Return the number of hosts that a channel's objects are divided among; 1 if each host gets all."""
    return (subject.draft.hosts_of(entry) or 1) if entry.is_sharded else 1


def connectors(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the channels that the script reads itself."""
    environment = subject.request.get("Environment", {})
    for variable, name in connector_variables(subject.draft.spec).items():
        settings = json.loads(environment[variable]) if variable in environment else {}
        place = place_of(settings.get(contract.CONNECTOR_S3_URI, ""))
        if place:
            yield ("channels", name, "s3_uri"), place


def prefixes_read(subject: Subject) -> list[tuple[SpecPath, S3Location]]:
    """Return the prefixes that SageMaker or the script reads."""
    return [(entry.path("s3_uri"), place) for entry, place in channels(subject, "S3Prefix")] + [*connectors(subject)]


def _is_code(subject: Subject, entry: Mapping[str, Any]) -> bool:
    return subject.code_uri is not None and entry.get("ChannelName") == contract.CODE_CHANNEL


def _of_connectors(subject: Subject) -> Iterator[Use]:
    for path, place in connectors(subject):
        yield Use(path, place, "script")


def _of_code(subject: Subject) -> Iterator[Use]:
    place = place_of(subject.code_uri or "")
    if place:
        yield Use(code_path(subject), place, "SageMaker")


def _of_request(subject: Subject) -> Iterator[Use]:
    code: set[SpecPath] = {("channels", contract.CODE_CHANNEL, "s3_uri")} if subject.code_uri else set()
    for path, uri in uris(subject.draft):
        place = place_of(uri)
        if place and path not in code:
            yield Use(path, place, "SageMaker")
