"""JobSpec -> CreateTrainingJob request, with the origin of its members, so that problems found in it lead back to the spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from launcher.errors import SpecPath
from launcher.request.image_uris import ImageError, resolve_image
from launcher.request.origin import Origin
from launcher.request.view import groups_of, s3_source
from launcher.spec.aws_model import REQUEST, shapes, typed
from launcher.spec.job import Image, JobSpec
from launcher.spec.model import as_request
from launcher.spec.structures import members
from sagemaker_channels import contract


class Built(NamedTuple):
    request: dict[str, Any]
    origin: Origin
    image_error: ImageError | None = None
    """Why no image is known for the spec's `image`."""


def build_request(spec: JobSpec, job_name: str) -> Built:
    """Build the request that the spec states, without its code."""
    origin, image_error = Origin(), None
    entries = _entries(spec, origin)
    values = {**dict(spec), "training_job_name": str(job_name), "channels": entries or None}
    if spec.training_job_name is None and spec.base_name is not None:
        origin.written["TrainingJobName",] = ("base_name",)
    if spec.image is not None:
        values["image"], image_error = _training_image(spec)
    if values["serverless_job_config"] and "training_input_mode" not in spec.model_fields_set:
        values["training_input_mode"] = None  # serverless jobs have no AlgorithmSpecification
    if spec.tags is not None:
        values["tags"] = [{"Key": name, "Value": text} for name, text in spec.tags.items()]
        for at, name in enumerate(spec.tags):
            origin.written["Tags", at, "Key"] = origin.written["Tags", at, "Value"] = ("tags", name)
    values["environment"] = {**(spec.environment or {}), **_variables(spec, entries, origin)} or spec.environment
    request: dict[str, Any] = {}
    for key, (*above, member) in members().items():
        if values[key] is not None:
            level = request
            for name in above:
                level = level.setdefault(name, {})
            level[member] = as_request(values[key])
    return Built(_merged(request, typed(spec.request or {}, REQUEST), (), origin), origin, image_error)


def _merged(request: dict[str, Any], more: dict[str, Any], path: SpecPath, origin: Origin) -> dict[str, Any]:
    """Return `request` merged with `more`, where null deletes; note in `origin` what it replaces, adds or deletes."""
    result = dict(request)
    for member, value in more.items():
        if isinstance(value, dict) and isinstance(result.get(member), dict):
            result[member] = _merged(result[member], value, (*path, member), origin)
            continue
        origin.overlay((*path, member))
        result[member] = value
        if value is None:
            del result[member]
    return result


def channel_variables(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what SageMaker's config files lack: augmented manifests' attribute names, and which Pipes have no fixed order."""
    known = {entry["ChannelName"]: entry for entry in entries}
    attributes = {name: names for name, entry in known.items() if (names := s3_source(entry).get("AttributeNames"))}
    pipes = {name: entry for name, entry in known.items() if entry.get("InputMode") == "Pipe"}
    shuffled = [name for name, entry in pipes.items() if "ShuffleConfig" in entry or _is_unsorted(entry)]
    variables = _in_pieces(contract.ATTRIBUTE_NAMES_VARIABLE, attributes)
    return variables | _in_pieces(contract.SHUFFLED_CHANNELS_VARIABLE, shuffled)


def _is_unsorted(entry: Mapping[str, Any]) -> bool:
    """Return whether a channel's objects are those of a directory bucket, in the order of its listing."""
    source = s3_source(entry)
    bucket = source.get("S3Uri", "").partition("://")[2].partition("/")[0]
    return source.get("S3DataType") == "S3Prefix" and bucket.endswith(contract.DIRECTORY_BUCKET)


def _in_pieces(prefix: str, value: Any) -> dict[str, str]:
    """Return variables with a value as JSON, in as many pieces as AWS's limit requires; none if it is empty."""
    text = json.dumps(value) if value else ""
    limit = shapes()["TrainingEnvironmentValue"]["max"]
    pieces = [text[at : at + limit] for at in range(0, len(text), limit)]
    return {f"{prefix}{number}": piece for number, piece in enumerate(pieces)}


def connector_variables(spec: JobSpec) -> dict[str, str]:
    """Return the variables of the request's Environment with the settings of connector channels -> the channel's name."""
    names = [name for name, channel in spec.all_channels.items() if channel.connector(name) is not None]
    return {f"{contract.CONNECTOR_VARIABLE}{index}": name for index, name in enumerate(names)}


def _training_image(spec: JobSpec) -> tuple[str, ImageError | None]:
    """Return the URI of the spec's image; if none is known, an empty text and the reason."""
    if not isinstance(spec.image, Image):
        return spec.image or "", None
    if spec.region is None:
        reason = "each region has its own registry of AWS's images"
        return "", ImageError("region", f"is missing; {reason}, so write one, such as region: eu-west-1")
    resources = _resources(spec)
    machines = [resources, *resources.get("InstanceGroups", ()), *resources.get("InstancePreferences", ())]
    instance_type = next((each["InstanceType"] for each in machines if "InstanceType" in each), None)
    wanted = {key: str(value) for key, value in spec.image if value is not None}
    try:
        return resolve_image(wanted, region=spec.region, instance_type=instance_type), None
    except ImageError as error:
        return "", error


def _resources(spec: JobSpec) -> dict[str, Any]:
    return dict(as_request(dict(spec)["resource_config"]) or {})


def _entries(spec: JobSpec, origin: Origin) -> list[dict[str, Any]]:
    """Return the entries of the channels that SageMaker delivers."""
    entries: list[dict[str, Any]] = []
    for name, channel in spec.all_channels.items():
        entry = channel.input_data_config(name, spec.training_input_mode)
        if entry is not None:
            at: SpecPath = ("InputDataConfig", len(entries))
            data = (*at, "DataSource")
            for place in (at, (*at, "ChannelName"), data, *((*data, source) for source in entry["DataSource"])):
                origin.written[place] = ("channels", name)
            entries.append(entry)
    return entries


def _variables(spec: JobSpec, entries: list[dict[str, Any]], origin: Origin) -> dict[str, str]:
    """Return the variables that tell the container what SageMaker's config files lack."""
    channels = spec.all_channels
    groups = {each.get("InstanceGroupName") for each in _resources(spec).get("InstanceGroups", ())}
    some_groups = {
        each["ChannelName"]: names for each in entries if (names := groups_of(each)) and set(names) != groups
    }
    variables = {}
    if some_groups and spec.code is not None:
        variables[contract.CHANNEL_GROUPS_VARIABLE] = json.dumps(some_groups)
    if spec.code is not None or contract.CODE_CHANNEL in channels:  # an imported request may have the code channel
        variables |= channel_variables(entries)
    for variable, name in connector_variables(spec).items():
        variables[variable] = json.dumps(channels[name].connector(name))
        origin.written["Environment", variable] = ("channels", name, "s3_uri")
    if spec.code is not None:
        owners = _in_pieces(contract.BUCKET_OWNERS_VARIABLE, spec.bucket_owners)
        origin.written.update({("Environment", variable): ("bucket_owners",) for variable in owners})
        variables |= owners
    return variables
