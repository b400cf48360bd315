"""From a CreateTrainingJob request to a spec whose plan is that request: `launch import request.json`.

Accepts the arguments of boto3 or the CLI, a Step Functions state, a template or pipeline, in which unknown values become
variables, and DescribeTrainingJob's response, whose read-only members are dropped. Members become keys of the spec if it has
them; the others are written under `request:`, found by planning the keys and comparing. An invalid request is imported as it is:
the plan reports its problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.errors import SpecError
from launcher.importing.unknown import Unknowns
from launcher.parsing.parser import parse_spec
from launcher.parsing.validation import without
from launcher.request.build import build_request, channel_variables
from launcher.request.forms import FoundRequest, find_request
from launcher.spec.channels import KINDS, source_of_entry
from launcher.spec.job import JobSpec
from launcher.spec.model import Section, aws_name, section_of, spec_name, value_at
from launcher.spec.names import base_of
from launcher.spec.structures import members
from launcher.spec.values import WRONG_TYPE
from sagemaker_channels import contract

# Problems of a value's form; the plan reports the others.
_SHAPE_CODES = {WRONG_TYPE, "invalid-value", "unknown-key", "unknown-source", "unknown-value"}


def import_request(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec, as plain data, whose plan is the request in `data`. Raises InputError if `data` has no request."""
    return spec_of(find_request(data), Unknowns())


def spec_of(found: FoundRequest, unknowns: Unknowns) -> dict[str, Any]:
    """Return the spec of a request, as plain data. Of a name that can be used only once, it has the beginning."""
    friendly, planned = _valid_keys({**found.keys, **_spec_keys(found.request)})
    patch = _difference(planned, found.request)
    name = friendly.get("training_job_name")
    base = name and base_of(unknowns.without_time(name))
    if name is not None and (found.is_past or base != name):
        friendly = {"base_name": base, **friendly}
        del friendly["training_job_name"]
    return dict(unknowns.written({**friendly, "request": patch} if patch else friendly))


def escaped(spec: dict[str, Any]) -> dict[str, Any]:
    """Escape `${` in texts: it begins a variable in a spec, but not in a request."""
    return dict(Unknowns().written(spec))


def _spec_keys(request: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a spec for a request's members, as far as it has them."""
    spec: dict[str, Any] = {}
    for key, place in members().items():
        value = value_at(request, place)
        if key == "tags":
            value = _tags(value)
        if value is not None and key != "channels":
            spec[key] = _keyed(value, JobSpec.model_fields[key].annotation)
    algorithm = request.get("AlgorithmSpecification")
    mode = algorithm.get("TrainingInputMode") if isinstance(algorithm, dict) else None
    if mode == "File":
        del spec["training_input_mode"]
    elif mode is None and "ServerlessJobConfig" not in request:
        spec["training_input_mode"] = None
    if (channels := _channels(request.get("InputDataConfig"), mode)) is not None:
        spec["channels"] = channels
        _remove_derived_variables(spec, request["InputDataConfig"])
    return spec


def _remove_derived_variables(spec: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """Remove the environment variables that the plan derives from the channels; `request:` gets those that differ."""
    variables = spec.get("environment")
    if isinstance(variables, dict) and contract.CODE_CHANNEL in spec["channels"]:
        derived = channel_variables(entries).items()
        variables = {name: text for name, text in variables.items() if (name, text) not in derived}
        spec["environment"] = variables
        if not variables:
            del spec["environment"]


def _keyed(value: Any, annotation: Any) -> Any:
    """Return a member's value with the spec's keys, as far as its class has them; `request:` gets the rest."""
    section = section_of(annotation)
    if section is None:
        return value
    if isinstance(value, list):
        whole = all(isinstance(item, dict) and _has_keys(item, section) for item in value)
        return [_keyed(item, section) for item in value] if whole else []
    if not isinstance(value, dict):
        return value
    names = {spec_name(member): item for member, item in value.items()}
    return {key: _keyed(names[key], field.annotation) for key, field in section.model_fields.items() if key in names}


def _has_keys(value: dict[str, Any], section: type[Section]) -> bool:
    return all(aws_name(spec_name(member)) == member and spec_name(member) in section.model_fields for member in value)


def _tags(tags: Any) -> dict[str, str] | None:
    if not isinstance(tags, list) or not all(isinstance(tag, dict) and set(tag) == {"Key", "Value"} for tag in tags):
        return None
    pairs = [(tag["Key"], tag["Value"]) for tag in tags]
    if not all(isinstance(key, str) for key, _ in pairs):
        return None
    return dict(pairs) if len(dict(pairs)) == len(pairs) else None


def _channels(entries: Any, mode: Any) -> dict[str, Any] | None:
    """Return the channels by name; None if the spec has no keys for an entry, or two entries share a name."""
    if not isinstance(entries, list):
        return None
    channels: dict[str, Any] = {}
    for entry in entries:
        channel = _channel(entry, mode) if isinstance(entry, dict) else None
        name = entry.get("ChannelName") if isinstance(entry, dict) else None
        if channel is None or not isinstance(name, str) or name in channels:
            return None
        channels[name] = channel
    return channels


def _channel(entry: dict[str, Any], mode: Any) -> dict[str, Any] | str | None:
    """Return a channel in its shortest form: without the job's own input mode, and as a bare URI if it has only that."""
    if (kind := source_of_entry(entry)) is None:
        return None
    members = KINDS[kind].members(entry) or {}
    if not _has_keys(members, KINDS[kind]):
        return None
    keys = {spec_name(member): value for member, value in members.items()}
    channel: dict[str, Any] = {"source": kind}
    for key, field in KINDS[kind].model_fields.items():
        if key in keys:
            if keys[key] != field.default or field.default is None:
                channel[key] = _keyed(keys[key], field.annotation)
        elif isinstance(field.default, str) and key != "source":
            channel[key] = None
    if kind != "S3":
        return channel
    if "input_mode" not in keys:
        channel["input_mode"] = None
    elif keys["input_mode"] == mode:
        del channel["input_mode"]
    uri = channel.get("s3_uri")
    return uri if set(channel) == {"source", "s3_uri"} and isinstance(uri, str) else channel


def _valid_keys(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys whose values are valid, and the request that they plan to; `request:` gets the others."""
    try:
        parsed = parse_spec(escaped(spec))
    except SpecError as error:
        wrong = [each for each in error.problems if each.path]
        misshapen = [each for each in wrong if each.code in _SHAPE_CODES]
        # Lists and the channels are removed whole, since their order matters.
        sound = without(spec, [each.path[: 1 if each.path[0] == "channels" else 2] for each in misshapen or wrong])
        return _valid_keys(sound) if sound != spec else ({}, {})
    planned = build_request(parsed, parsed.training_job_name or "").request
    if "training_job_name" not in spec:
        del planned["TrainingJobName"]
    return spec, planned


def _difference(have: Any, want: Any) -> dict[str, Any]:
    """Return the patch for `request:`: members to change or add, and null for those to delete."""
    patch: dict[str, Any] = {key: None for key in have if key not in want}
    for key, value in want.items():
        if key not in have or (have[key] != value and not (isinstance(value, dict) and isinstance(have[key], dict))):
            patch[key] = value
        elif have[key] != value:
            patch[key] = _difference(have[key], value)
    return patch
