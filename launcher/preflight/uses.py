"""Every place in S3 that a request reads or writes: the channels, the connector's, the code, outputs, checkpoints, debugger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from entrypoints import contract
from launcher.checks.channels.uris import uris
from launcher.errors import RefusedError, SpecPath
from launcher.preflight.check import Subject
from launcher.request.build import connector_variables
from launcher.request.view import Draft, Entry
from launcher.s3.uri import Place, parse_s3_uri


class Use(NamedTuple):
    """One place that the job uses."""

    path: SpecPath  # in the spec
    place: Place
    by: Literal["SageMaker", "script"]  # who reads or writes it


def uses(subject: Subject) -> Iterator[Use]:
    """What the job reads or writes, each place of the spec once."""
    seen = set()
    for use in (*_of_connectors(subject), *_of_code(subject), *_of_request(subject)):
        if use.path not in seen:
            seen.add(use.path)
            yield use


def place_of(uri: str) -> Place | None:
    """The bucket (or the ARN of an access point) and the key of a URI; None for what is none, of which the rules tell."""
    try:
        place = parse_s3_uri(uri)
    except RefusedError:
        return None
    if place.bucket.startswith("arn:"):
        name, _, key = place.key.partition("/")
        return Place(f"{place.bucket}/{name}", key)
    return place


def code_place(subject: Subject) -> SpecPath:
    """Where the spec says where the code lies."""
    code = subject.plan.spec.code
    return ("code", "s3_uri") if code is not None and code.s3_uri is not None else ("code",)


def channels(subject: Subject, data_type: str) -> Iterator[tuple[Entry, Place]]:
    """The channels that SageMaker brings from S3, of one S3DataType; not the code's, which is there only after the upload."""
    for entry in subject.draft.entries:
        place = place_of(entry.get("S3Uri") or "")
        if place and entry.get("S3DataType") == data_type and not is_code(subject, entry.request):
            yield entry, place


def hosts_that_share(subject: Subject, entry: Entry) -> int:
    """The hosts among which a channel's objects are dealt out; 1 where each gets all."""
    return (subject.draft.hosts_of(entry) or 1) if entry.is_sharded else 1


def is_code(subject: Subject, entry: Mapping[str, Any]) -> bool:
    """Whether an InputDataConfig entry is the one in which our code travels."""
    return subject.plan.code_uri is not None and entry.get("ChannelName") == contract.CODE_CHANNEL


def connectors(subject: Subject) -> Iterator[tuple[str, Place]]:
    """The channels that the script reads by itself: name and place."""
    environment = subject.request.get("Environment", {})
    for variable, name in connector_variables(subject.plan.spec).items():
        told = json.loads(environment[variable]) if variable in environment else {}
        place = place_of(told.get(contract.CONNECTOR_S3_URI, ""))
        if place:
            yield name, place


def _of_connectors(subject: Subject) -> Iterator[Use]:
    for name, place in connectors(subject):
        yield Use(("channels", name, "s3_uri"), place, "script")


def _of_code(subject: Subject) -> Iterator[Use]:
    place = place_of(subject.plan.code_uri or "")
    if place:
        yield Use(code_place(subject), place, "SageMaker")


def _of_request(subject: Subject) -> Iterator[Use]:
    code: set[SpecPath] = {("channels", contract.CODE_CHANNEL, "s3_uri")} if subject.plan.code_uri else set()
    for path, uri in uris(Draft(subject.plan.spec, subject.request)):
        place = place_of(uri)
        if place and path not in code:
            yield Use(path, place, "SageMaker")
