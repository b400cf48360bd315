"""JobSpec -> CreateTrainingJob request, with the origin of its members, so that problems found in it lead back to the spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from launcher.errors import SpecPath
from launcher.request.aws_model import REQUEST, shapes, typed
from launcher.request.image_uris import ImageError, resolve_image
from launcher.request.origin import Origin, member_of
from launcher.request.view import ALGORITHM, groups_of, s3_source
from launcher.spec.job import JobSpec
from launcher.spec.model import as_request
from launcher.spec.sections import Image, ResourceConfig
from sagemaker_channels import contract

# Keys without a member of their own.
_OURS = (
    "bucket_owners",
    "max_cost",
    "base_name",
    "training_job_name",
    "region",
    "profile",
    "code",
    "request",
    "ignore",
    "extends",
)


class Built(NamedTuple):
    """The request of a spec before its code is added, and where each member of it is written."""

    request: dict[str, Any]
    origin: Origin
    image_error: ImageError | None = None
    """Why no image is known for the spec's `image`."""


def build_request(spec: JobSpec, job_name: str) -> Built:
    """Build the request that the spec states, without its code."""
    request: dict[str, Any] = {"TrainingJobName": str(job_name)}
    by_base_name = spec.training_job_name is None and spec.base_name is not None
    keys: dict[SpecPath, SpecPath] = {("TrainingJobName",): ("base_name" if by_base_name else "training_job_name",)}
    image_error = None
    left_out = set(_OURS)
    if spec.serverless_job_config is not None and "training_input_mode" not in spec.model_fields_set:
        left_out.add("training_input_mode")  # serverless jobs have no AlgorithmSpecification
    for key, value in spec:
        if key in left_out or value is None:
            continue
        if key == "channels":
            keys |= _add_channels(request, spec)
        elif key == "tags":
            request["Tags"] = [{"Key": name, "Value": text} for name, text in value.items()]
        elif key == "environment":
            request.setdefault("Environment", {}).update(value)
        elif key == "image":
            image, image_error = _training_image(spec)
            request.setdefault(ALGORITHM, {})["TrainingImage"] = image
        else:
            *above, member = member_of(key)
            level = request
            for name in above:
                level = level.setdefault(name, {})
            level[member] = as_request(value)
    if spec.code is not None and (owners := _in_pieces(contract.BUCKET_OWNERS_VARIABLE, spec.bucket_owners)):
        request.setdefault("Environment", {}).update(owners)
        keys |= {("Environment", variable): ("bucket_owners",) for variable in owners}
    overlaid: dict[SpecPath, bool] = {}
    request = _merged(request, typed(spec.request or {}, REQUEST), (), overlaid)
    return Built(request, Origin(request, keys, overlaid), image_error)


def _merged(
    request: dict[str, Any], more: dict[str, Any], path: SpecPath, overlaid: dict[SpecPath, bool]
) -> dict[str, Any]:
    """Return `request` merged with `more`, where null deletes; note in `overlaid` each place and whether it replaces one."""
    result = dict(request)
    for member, value in more.items():
        merges = isinstance(value, dict) and isinstance(result.get(member), dict)
        place = (*path, member)
        overlaid[place] = not merges
        if value is None:
            result.pop(member, None)
        else:
            result[member] = _merged(result[member], value, place, overlaid) if merges else value
    return result


def channel_variables(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the environment variables with channel settings that SageMaker's config files lack.

    These are an augmented manifest's attribute names, and the Pipes without a fixed order; sagemaker_channels reads them.
    """
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
    resources = spec.resource_config or ResourceConfig()
    choices: list[Any] = [resources, *(resources.instance_groups or ()), *(resources.instance_preferences or ())]
    instance_type = next((each.instance_type for each in choices if each.instance_type is not None), None)
    wanted = {key: str(value) for key, value in spec.image if value is not None}
    try:
        return resolve_image(wanted, region=spec.region, instance_type=instance_type), None
    except ImageError as error:
        return "", error


def _add_channels(request: dict[str, Any], spec: JobSpec) -> dict[SpecPath, SpecPath]:
    """Add the channels, and return the keys of the variables that stand for some of them."""
    channels = spec.all_channels
    entries = [channel.input_data_config(name, spec.training_input_mode) for name, channel in channels.items()]
    sent = [entry for entry in entries if entry is not None]
    if sent:
        request["InputDataConfig"] = sent
    resources = spec.resource_config or ResourceConfig()
    groups = {each.instance_group_name for each in resources.instance_groups or ()}
    some_groups = {each["ChannelName"]: names for each in sent if (names := groups_of(each)) and set(names) != groups}
    variables = {}
    if some_groups and spec.code is not None:
        variables[contract.CHANNEL_GROUPS_VARIABLE] = json.dumps(some_groups)
    if spec.code is not None or contract.CODE_CHANNEL in channels:  # an imported request may have the code channel
        variables |= channel_variables(sent)
    connectors = connector_variables(spec)
    variables |= {variable: json.dumps(channels[name].connector(name)) for variable, name in connectors.items()}
    if variables:
        request.setdefault("Environment", {}).update(variables)
    return {("Environment", variable): ("channels", name, "s3_uri") for variable, name in connectors.items()}
