"""The spec's keys for names that users know from elsewhere: the request's members, and the SageMaker SDK's arguments.

Such users write `RoleArn`, `max_run` or a channel's `DataSource`, and lists of `{Name: ..., Value: ...}`. All are refused,
so that a spec has one form; the message shows the right key, and that key is not reported as missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.errors import SpecPath, dotted
from launcher.spec.channels import KINDS
from launcher.spec.model import spec_name

# Place in a spec -> the keys, in snake_case, that mean it elsewhere.
_KEYS_ELSEWHERE = {
    "base_name": "base_job_name job",
    "channels": "bucket data dataset input input_data_config inputs train training",
    "checkpoint_config.local_path": "checkpoint_local_path",
    "checkpoint_config.s3_uri": "checkpoint_s3_uri",
    "code": "source_code",
    "code.directory": "git_config source_dir",
    "code.entry_point": "command entry_script script",
    "code.launcher": "distributed distribution",
    "enable_inter_container_traffic_encryption": "encrypt_inter_container_traffic",
    "enable_managed_spot_training": "spot spot_instances train_use_spot_instances use_spot use_spot_instances",
    "environment": "env env_vars",
    "hyperparameters": "args arguments hyper_parameters",
    "image": "algorithm_specification image_name image_uri training_image",
    "image.framework": "framework",
    "image.py_version": "py_version",
    "image.version": "framework_version",
    "metric_definitions": "metrics",
    "output_data_config.kms_key_id": "output_kms_key",
    "output_data_config.s3_output_path": "output_path",
    "region": "sagemaker_session",
    "resource_config": "compute",
    "resource_config.instance_count": "count instance_count instances node_count nodes train_instance_count",
    "resource_config.instance_type": "gpu gpus instance_type train_instance_type",
    "resource_config.keep_alive_period_in_seconds": "keep_alive warm_pool warm_pool_keep_alive",
    "resource_config.training_plan_arn": "training_plan",
    "resource_config.volume_kms_key_id": "volume_kms_key",
    "resource_config.volume_size_in_gb": "disk_size train_volume_size volume_size volume_size_gb volumes",
    "retry_strategy.maximum_retry_attempts": "max_retry_attempts",
    "role_arn": "execution_role role",
    "stopping_condition.max_runtime_in_seconds": "max_run max_run_time max_runtime timeout train_max_run",
    "stopping_condition.max_wait_time_in_seconds": "max_wait max_wait_time train_max_wait",
    "training_input_mode": "input_mode",
    "training_job_name": "job_name",
    "vpc_config": "networking",
}
_PLACES = {key: tuple(place.split(".")) for place, keys in _KEYS_ELSEWHERE.items() for key in keys.split()}
_GPUS = "write resource_config: {instance_type: ...}, which decides the GPUs"
_INSTEAD = {  # place, or key elsewhere -> a remedy that says more than the place
    "algorithm_specification": "write its members at the top: image, training_input_mode, ... (`launch --import` writes a spec"
    " for a whole request)",
    "channels": "write channels: {train: s3://BUCKET/FOLDER/}",
    "code": "write code: {directory: FOLDER, entry_point: SCRIPT}",
    "code.launcher": "write code: {launcher: torchrun}",
    "git_config": "clone the repository, and write code: {directory: FOLDER, entry_point: SCRIPT}",
    "gpu": _GPUS,
    "gpus": _GPUS,
    "hyperparameters": "write hyperparameters: {NAME: VALUE}, which the script gets as --NAME VALUE",
    "input_data_config": "write channels: {train: {s3_uri: ...}}, each channel under its name",
    "region": "delete it; the keys region and profile choose the account",
    "resource_config": "write resource_config: {instance_type: ..., instance_count: 1, volume_size_in_gb: 50}",
    "vpc_config": "write vpc_config: {security_group_ids: [sg-...], subnets: [subnet-...]}; enable_network_isolation is a key"
    " of its own",
}
_OF_A_CHANNEL = {  # key elsewhere -> key of a channel
    "compression": "compression_type",
    "distribution": "s3_data_distribution_type",
    "file_system_type": "source",
    "record_wrapping": "record_wrapper_type",
    "s3_data": "s3_uri",
    "s3_distribution_type": "s3_data_distribution_type",
    "training_input_mode": "input_mode",
}
# Key of a channel with an example of its value -> keys of no kind of channel that probably mean it.
_EXAMPLES = {
    "directory_path: /FOLDER": "directory",
    "file_system_id: fs-0123456789abcdef0": "fs_id",
    "input_mode: File, FastFile or Pipe": "mode",
    "s3_uri: s3://BUCKET/FOLDER/": "bucket data key location path prefix s3 uri url",
    "shuffle_config: {seed: 1}": "seed shuffle shuffle_seed",
    f"source: one of {', '.join(KINDS)}; for the data's MIME type, content_type": "type",
}
_IN_A_CHANNEL = {key: example for example, keys in _EXAMPLES.items() for key in keys.split()}
_REMARKS = ("comment", "comments", "description", "note", "notes")
_NESTING = ("data_source", "s3_data_source", "file_system_data_source", "dataset_source")
_IN_A_MAPPING: dict[str, dict[str, str]] = {  # a mapping -> the meaning that a key has in it alone
    "checkpoint_config": dict.fromkeys(("path", "s3_output_path", "uri"), "s3_uri"),
    "code": {"source": "directory"},
    "output_data_config": dict.fromkeys(("path", "s3_uri", "uri"), "s3_output_path"),
    "resource_config": {"type": "instance_type"},
}
_FIRST_KEYS = {  # mappings that users write as a single value -> the keys to write
    "checkpoint_config": "s3_uri: ...",
    "code": "directory: FOLDER, entry_point: SCRIPT",
    "image": "framework: ..., version: ...",
    "output_data_config": "s3_output_path: ...",
    "resource_config": "instance_type: ..., instance_count: 1, volume_size_in_gb: 50",
    "retry_strategy": "maximum_retry_attempts: ...",
    "shuffle_config": "seed: 1",
    "stopping_condition": "max_runtime_in_seconds: ...",
    "vpc_config": "security_group_ids: [sg-...], subnets: [subnet-...]",
}
# The keys whose absence is reported at another key.
_MISSED_AT: dict[SpecPath, SpecPath] = {("training_job_name",): ("base_name",)}


def place_of(path: SpecPath, known: Iterable[str]) -> tuple[str, SpecPath] | None:
    """Return `write ...` for an unknown key that is known from elsewhere, and the place that it means; else None.

    `known` are the keys that the mapping around it may have.
    """
    key = spec_name(str(path[-1])).replace("-", "_")
    above = path[:-1]
    if key in known:
        place = (*above, key)
        return f"write {key}", _MISSED_AT.get(place, place)
    if len(path) == 1 and key in _REMARKS:
        return "write a remark as a comment, which begins with #", ()
    if path[0] != "channels" and key in _PLACES:
        place = _PLACES[key]
        if above and place[:-1] == above:
            return f"write {place[-1]}", place
        remedy = _INSTEAD.get(key) or _INSTEAD.get(dotted(place)) or f"write {_as_yaml(place)}"
        return remedy, _MISSED_AT.get(place, place)
    if above and (right := _IN_A_MAPPING.get(str(above[-1]), {}).get(key)):
        return f"write {right}", (*above, right)
    if path[:1] == ("channels",) and len(path) == 3:
        if key in _NESTING:
            return "write its keys in the channel itself, such as s3_uri or file_system_id", above
        if key == "channel_name":
            return "the name is the channel's own key; delete it", ()
        if key in _OF_A_CHANNEL:
            return f"write {_OF_A_CHANNEL[key]}", above
        if key in _IN_A_CHANNEL:
            is_directory = key == "path" and "directory_path" in known
            return f"write {_IN_A_CHANNEL['directory' if is_directory else key]}", above
        if kinds := [kind for kind, model in KINDS.items() if key in model.model_fields]:
            return f"it needs source: {' or '.join(kinds)}", above
    return None


def _as_yaml(place: SpecPath) -> str:
    """Return a place as YAML: `code: {directory: ...}`."""
    *outer, last = place
    return "".join(f"{part}: {{" for part in outer) + f"{last}: ..." + "}" * len(outer)


def as_mapping(path: SpecPath, value: Any) -> str:
    """Return `; write {...}` for a value that should be a mapping, or an empty text if the intended mapping is unclear.

    The values of a list's items are not shown: in `environment` they can be secrets.
    """
    if path == ("channels",):
        return "; write each channel under its name: {train: {s3_uri: ...}}"
    if path[:1] == ("channels",) and len(path) == 2:
        several = isinstance(value, list) and len(value) > 1
        return "; write a channel for each, since a channel has one source" if several else "; write {s3_uri: ...}"
    if path and (keys := _FIRST_KEYS.get(str(path[-1]))):
        return f"; write {{{keys}}}"
    names = [_name(item) for item in value] if isinstance(value, list) else []
    if not names or not all(names):
        return ""
    shown = ", ".join(f"{_scalar(name)}: ..." for name in names[:3] if name)
    return f"; write {{{shown}{', ...' if len(names) > 3 else ''}}}"


def _name(item: Any) -> str | None:
    """Return the name in `{Name: ..., Value: ...}` or in `NAME=value`."""
    if isinstance(item, str) and (named := re.match(r"([A-Za-z_][A-Za-z0-9_]{0,39})=", item)):
        return named[1]
    if isinstance(item, dict) and len(item) == 2:
        folded = {str(key).lower(): value for key, value in item.items()}
        name = folded.get("key", folded.get("name"))
        return str(name)[:40] if name is not None and "value" in folded else None
    return None


def as_list(path: SpecPath, value: Any) -> str:
    """Return `such as [...]` for a value that should be a list, made of the value if possible."""
    if path == ("extends",) and not isinstance(value, str):
        return "such as [base.yaml]"
    if isinstance(value, Mapping) and value:
        first = _scalar(str(next(iter(value)))[:40])
        if path == ("metric_definitions",) and "regex" not in value:
            return f"such as [{{name: {first}, regex: ...}}]"
        if path[-1:] == ("instance_groups",) and "instance_type" not in value:
            return f"such as [{{instance_group_name: {first}, instance_type: ..., instance_count: 1}}]"
        return f"such as [{{{first}: ...{', ...' if len(value) > 1 else ''}}}]"
    if isinstance(value, str) and 0 < len(value) <= 120:
        separator = r"\s*,\s*" if path[:1] == ("extends",) else r"\s*,\s*|\s+"
        return f"such as [{', '.join(_scalar(word) for word in re.split(separator, value.strip()) if word)}]"
    return "such as [one, two]"


def _scalar(text: str) -> str:
    """Return a text as YAML inside brackets, in quotes if it needs them."""
    is_plain = re.fullmatch(r"[A-Za-z0-9_./-][A-Za-z0-9_./:@=-]*", text) and not text.endswith(":")
    return text if is_plain else json.dumps(text)
