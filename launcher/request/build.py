"""JobSpec -> CreateTrainingJob request, and the way back for whatever is found wrong in the request.

Keys of a spec are the request's members in snake_case, so only what stands elsewhere is written down here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from entrypoints import contract
from launcher.errors import SpecPath
from launcher.request.aws_model import REQUEST, shapes, typed
from launcher.request.images import ImageError, resolve_image
from launcher.spec.job import JobSpec
from launcher.spec.model import Section, as_request, aws_name, spec_name
from launcher.spec.sections import Image, ResourceConfig

_ALGORITHM = "AlgorithmSpecification"
# Keys whose member stands elsewhere than at the top of the request, or has a name of its own.
_PLACES: dict[str, tuple[str, ...]] = {
    "image": (_ALGORITHM, "TrainingImage"),
    "algorithm_name": (_ALGORITHM, "AlgorithmName"),
    "training_input_mode": (_ALGORITHM, "TrainingInputMode"),
    "container_entrypoint": (_ALGORITHM, "ContainerEntrypoint"),
    "container_arguments": (_ALGORITHM, "ContainerArguments"),
    "metric_definitions": (_ALGORITHM, "MetricDefinitions"),
    "enable_sage_maker_metrics_time_series": (_ALGORITHM, "EnableSageMakerMetricsTimeSeries"),
    "training_image_config": (_ALGORITHM, "TrainingImageConfig"),
    "hyperparameters": ("HyperParameters",),
}
_EXAMPLE_REGION = ", so write region: eu-west-1 or the like"
_OURS = {
    "base_name",
    "training_job_name",
    "region",
    "profile",
    "code",
    "request",
    "ignore",
    "max_cost",
    "extends",
}  # no member of their own


def build_request(spec: JobSpec, job_name: str) -> dict[str, Any]:
    """The request as the spec says it, before the code that travels with it is added."""
    request: dict[str, Any] = {"TrainingJobName": str(job_name)}
    for key, value in spec:
        if key in _OURS or value is None or (key == "training_input_mode" and _needs_no_mode(spec)):
            continue
        if key == "channels":
            _add_channels(request, spec)
        elif key == "tags":
            request["Tags"] = [{"Key": name, "Value": text} for name, text in value.items()]
        elif key == "environment":
            request.setdefault("Environment", {}).update(value)
        elif key == "image":
            request.setdefault(_ALGORITHM, {})["TrainingImage"] = training_image(spec)[0]
        else:
            *above, member = member_place(key)
            level = request
            for name in above:
                level = level.setdefault(name, {})
            level[member] = as_request(value)
    return merged(request, typed(spec.request or {}, REQUEST))


def merged(request: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`request` with the members of `more`: mappings are merged, null deletes, everything else takes the place."""
    result = dict(request)
    for member, value in more.items():
        if value is None:
            result.pop(member, None)
        elif isinstance(value, dict) and isinstance(result.get(member), dict):
            result[member] = merged(result[member], value)
        else:
            result[member] = value
    return result


def groups_of(entry: Mapping[str, Any]) -> list[str]:
    """The instance groups that an InputDataConfig entry names; none where all of the job's get it."""
    groups: list[str] = entry["DataSource"].get("S3DataSource", {}).get("InstanceGroupNames", [])
    return groups


def telling_variables(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The variables that tell the container what SageMaker's own files do not: an augmented manifest's attributes, and which
    Pipes are shuffled (entrypoints/channel_settings.py).
    """
    known = {entry["ChannelName"]: entry for entry in entries}
    sources = {name: entry["DataSource"].get("S3DataSource", {}) for name, entry in known.items()}
    attributes = {name: source["AttributeNames"] for name, source in sources.items() if source.get("AttributeNames")}
    shuffled = [name for name, entry in known.items() if "ShuffleConfig" in entry and entry.get("InputMode") == "Pipe"]
    return {
        **_in_pieces(contract.ATTRIBUTE_NAMES_VARIABLE, attributes),
        **_in_pieces(contract.SHUFFLED_CHANNELS_VARIABLE, shuffled),
    }


def _in_pieces(prefix: str, value: Any) -> dict[str, str]:
    """Variables that say a value as JSON, as many as it takes; none where it is empty."""
    text = json.dumps(value) if value else ""
    limit = shapes()["TrainingEnvironmentValue"]["max"]
    pieces = [text[at : at + limit] for at in range(0, len(text), limit)]
    return {f"{prefix}{number}": piece for number, piece in enumerate(pieces)}


def connector_variables(spec: JobSpec) -> dict[str, str]:
    """The variables of the request's Environment that tell the container of connector channels, each with its channel."""
    names = [name for name, channel in spec.all_channels.items() if channel.connector(name) is not None]
    return {f"{contract.CONNECTOR_VARIABLE}{index}": name for index, name in enumerate(names)}


def training_image(spec: JobSpec) -> tuple[str, ImageError | None]:
    """The URI of the spec's image; where none is known, an empty text and what is wrong."""
    if not isinstance(spec.image, Image):
        return spec.image or "", None
    if spec.region is None:
        return "", ImageError(
            "region", f"is missing; AWS's images lie in another registry in each region{_EXAMPLE_REGION}"
        )
    resources = spec.resource_config or ResourceConfig()
    choices: list[Any] = [resources, *(resources.instance_groups or ()), *(resources.instance_preferences or ())]
    instance_type = next((each.instance_type for each in choices if each.instance_type is not None), None)
    wanted = {key: str(value) for key, value in spec.image if value is not None}
    try:
        return resolve_image(wanted, region=spec.region, instance_type=instance_type), None
    except ImageError as error:
        return "", error


def _needs_no_mode(spec: JobSpec) -> bool:
    """Whether the default mode stays away: serverless jobs have no AlgorithmSpecification for it to stand in."""
    return spec.serverless_job_config is not None and "training_input_mode" not in spec.model_fields_set


def member_place(key: str) -> tuple[str, ...]:
    """Where the member of a spec's key stands in the request."""
    return _PLACES.get(key, (aws_name(key),))


def _add_channels(request: dict[str, Any], spec: JobSpec) -> None:
    channels = spec.all_channels
    entries = [channel.input_data_config(name, spec.training_input_mode) for name, channel in channels.items()]
    brought = [entry for entry in entries if entry is not None]
    if brought:
        request["InputDataConfig"] = brought
    groups = {
        group.instance_group_name for group in (spec.resource_config and spec.resource_config.instance_groups) or ()
    }
    named = {
        entry["ChannelName"]: groups_of(entry)
        for entry in brought
        if groups_of(entry) and set(groups_of(entry)) != groups
    }
    if named and spec.code is not None:
        request.setdefault("Environment", {})[contract.CHANNEL_GROUPS_VARIABLE] = json.dumps(named)
    told = telling_variables(brought)
    if told and (spec.code is not None or contract.CODE_CHANNEL in channels):  # which an imported request has
        request.setdefault("Environment", {}).update(told)
    for variable, name in connector_variables(spec).items():
        request.setdefault("Environment", {})[variable] = json.dumps(channels[name].connector(name))


def spec_path(path: SpecPath, request: dict[str, Any], spec: JobSpec) -> SpecPath:
    """The place in the spec that a place in its request came from."""
    by_key = key_path(path, request, spec)
    return ("request", *path) if said_in_hatch(path, by_key, spec) else by_key


def said_in_hatch(member: SpecPath, key: SpecPath, spec: JobSpec) -> bool:
    """Whether `request:` says what a member of the request is, or that it is not; `key` is the place of the spec's own key.

    There null takes a member away, and a list takes the place of the spec's. What is missing from a mapping is missed in
    `request:` only where the spec's own keys say nothing of that mapping.
    """
    value: Any = spec.request or {}
    for depth, part in enumerate(member):
        if isinstance(value, list):
            return True
        if not isinstance(value, dict) or part not in value:
            return depth > 0 and not _is_written(spec, key[:-1] or key)
        value = value[part]
        if value is None:
            return True
    return bool(member)


def _is_written(spec: JobSpec, path: SpecPath) -> bool:
    """Whether something stands at a place of the spec's own keys."""
    value: Any = spec
    for part in path:
        if isinstance(value, Section):
            value = getattr(value, str(part), None)
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            value = value[part] if isinstance(value, tuple) and isinstance(part, int) and part < len(value) else None
    return value is not None


def key_path(path: SpecPath, request: dict[str, Any], spec: JobSpec) -> SpecPath:
    """The place of the spec's own key for a place in its request, whether or not it was written there."""
    for key, place in _PLACES.items():
        if path[: len(place)] == place:
            return (key, *_inner(path[len(place) :], verbatim=key == "hyperparameters"))
    match path:
        case ("TrainingJobName", *_):
            return (
                ("base_name",)
                if spec.training_job_name is None and spec.base_name is not None
                else ("training_job_name",)
            )
        case ("InputDataConfig", int(index), *rest):
            entry = request["InputDataConfig"][index]
            name = entry.get("ChannelName") if isinstance(entry, dict) else None
            if name is None:
                return ("channels",)
            members = [part for part in rest if part not in ("DataSource", "S3DataSource", "FileSystemDataSource")]
            return ("channels", name, *_inner(tuple(members) if members != ["ChannelName"] else (), verbatim=False))
        case ("InputDataConfig",):
            return ("channels",)
        case ("Environment", str(variable), *_) if variable in (connectors := connector_variables(spec)):
            return ("channels", connectors[variable], "s3_uri")
        case ("Environment", *rest):
            return ("environment", *rest)
        case ("Tags", int(index), *_):
            tag = request["Tags"][index]
            return ("tags", tag["Key"]) if isinstance(tag, dict) and "Key" in tag else ("tags",)
    return _inner(path, verbatim=False)


def _inner(path: SpecPath, *, verbatim: bool) -> SpecPath:
    return path if verbatim else tuple(spec_name(part) if isinstance(part, str) else part for part in path)
