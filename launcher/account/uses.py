"""Every place in S3 that a request reads or writes: channels, the connector's, the code, outputs, checkpoints, debugger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from launcher.account.check import Subject
from launcher.checks.channels.uris import uris
from launcher.errors import RefusedError, SpecPath
from launcher.request.build import connector_variables
from launcher.request.view import Entry
from launcher.s3.uri import S3Location, parse_s3_uri
from sagemaker_channels import contract


class Use(NamedTuple):
    """One place in S3 that the job uses."""

    path: SpecPath
    place: S3Location
    by: Literal["SageMaker", "script"]  # which of them reads or writes it


def uses(subject: Subject) -> Iterable[Use]:
    """Return what the job reads or writes, once for each path in the spec."""
    found = {path: Use(path, place, "script") for path, place in connectors(subject)}
    code: list[tuple[SpecPath, str]] = [(code_path(subject), subject.code_uri)] if subject.code_uri else []
    code_channel = ("channels", contract.CODE_CHANNEL, "s3_uri")
    for path, uri in (*code, *uris(subject.draft)):
        if (place := place_of(uri)) and not (code and path == code_channel):
            found.setdefault(path, Use(path, place, "SageMaker"))
    return found.values()


def place_of(uri: str | None) -> S3Location | None:
    """Return the bucket (or the ARN of an access point) and the key of a URI; None if it is not one, which a rule reports."""
    try:
        place = parse_s3_uri(uri or "")
    except RefusedError:
        return None
    if place.bucket.startswith("arn:"):
        name, _, key = place.key.partition("/")
        return S3Location(f"{place.bucket}/{name}", key)
    return place


def as_folder(key: str) -> str:
    """Return a key with a '/' at its end; an empty key, which means the whole bucket, as it is."""
    return key if not key or key.endswith("/") else f"{key}/"


def code_path(subject: Subject) -> SpecPath:
    """Return the path in the spec that sets where the code is stored."""
    code = subject.draft.spec.code
    return ("code", "s3_uri") if code is not None and code.s3_uri is not None else ("code",)


def channels(subject: Subject, *data_types: str) -> Iterator[tuple[Entry, S3Location]]:
    """Yield the channels of some S3DataTypes that SageMaker reads; not the code channel, whose objects are uploaded later."""
    for entry in subject.draft.entries:
        place = place_of(entry.get("S3Uri"))
        is_code = subject.code_uri is not None and entry.name == contract.CODE_CHANNEL
        if place and entry.get("S3DataType") in data_types and not is_code:
            yield entry, place


def hosts_that_share(subject: Subject, entry: Entry) -> int:
    """Return the number of hosts that a channel's objects are divided among; 1 if each host gets all."""
    return (subject.draft.hosts_of(entry) or 1) if entry.is_sharded else 1


def connectors(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the channels that the script reads itself."""
    environment = subject.draft.request.get("Environment", {})
    for variable, name in connector_variables(subject.draft.spec).items():
        settings = json.loads(environment[variable]) if variable in environment else {}
        if place := place_of(settings.get(contract.CONNECTOR_S3_URI)):
            yield ("channels", name, "s3_uri"), place


def prefixes_read(subject: Subject) -> list[tuple[SpecPath, S3Location]]:
    """Return the prefixes that SageMaker or the script reads."""
    return [(entry.path("s3_uri"), place) for entry, place in channels(subject, "S3Prefix")] + [*connectors(subject)]
