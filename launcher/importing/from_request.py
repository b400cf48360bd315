"""From a CreateTrainingJob request to a spec whose plan is that request: `launch --import request.json`.

Accepts the arguments of boto3 or the CLI, a Step Functions state, a CDK template, and DescribeTrainingJob's response,
whose read-only members are dropped. Members become keys of the spec if it has them; the others are written under
`request:`, found by planning the keys and comparing. An invalid request is imported as it is: the plan reports its
problems.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.errors import InputError, SpecError, did_you_mean_path
from launcher.importing.source_text import read_text
from launcher.parsing.parser import parse_spec, without
from launcher.request import serialization
from launcher.request.build import build_request, channel_variables
from launcher.request.forms import FoundRequest, find_request
from launcher.spec.channels import KINDS, source_of_entry
from launcher.spec.job import JobSpec
from launcher.spec.model import Section, aws_name, section_of, spec_name
from launcher.spec.structures import members
from launcher.spec.values import WRONG_TYPE
from sagemaker_channels import contract

# Problems of a value's form; the plan reports the others.
_SHAPE_CODES = {WRONG_TYPE, "invalid-value", "unknown-key", "unknown-source", "unknown-value"}
_ONLY_IN_SPECS = {"base_name", "image", "channels", "code", "extends"}


def import_file(path: str | Path) -> str:
    """Return the spec, as YAML, for the request in a file, or in standard input for `-`.

    Raises:
        InputError: The file cannot be read, or has no request in it.
        SpecError: It is wrong YAML.
    """
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
        path, text = "<stdin>" if str(path) == "-" else path, data.decode("utf-8-sig")
    except OSError as error:
        near = did_you_mean_path(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{path}: cannot be read: {error.strerror}{near or '; check the path'}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8; save the file as UTF-8") from None
    try:
        request = read_text(text, str(path))
        if not isinstance(request, dict):
            raise InputError("is not a request; write an object with members such as TrainingJobName")
        if _ONLY_IN_SPECS & request.keys() and {"role_arn", "output_data_config"} & request.keys():
            raise InputError(f"is a spec already; run launch {'-' if path == '<stdin>' else path} --dry-run")
        found = find_request(request)
        spec = serialization.as_yaml(_spec_of(found))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply for a request; correct it") from None
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise InputError(f"{path}: holds {half}, half of a surrogate pair; write the whole character") from None
    return "".join(f"# {note}\n" for note in found.notes) + spec


def import_request(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec, as plain data, whose plan is the request in `data`. Raises InputError if `data` has no request."""
    return _spec_of(find_request(data))


def _spec_of(found: FoundRequest) -> dict[str, Any]:
    friendly, planned = _valid_keys({**found.keys, **_spec_keys(found.request)})
    patch = _difference(planned, found.request)
    return dict(_escaped({**friendly, "request": patch} if patch else friendly))


def _escaped(value: Any) -> Any:
    """Escape `${` in texts: it begins a variable in a spec, but not in a request."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def _spec_keys(request: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a spec for a request's members, as far as it has them."""
    spec: dict[str, Any] = {}
    for key, place in members().items():
        value: Any = request
        for member in place:
            value = value.get(member) if isinstance(value, dict) else None
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
        parsed = parse_spec(_escaped(spec))
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
