"""The spec's keys for names that users know from elsewhere: the request's members, and the SageMaker SDK's arguments.

Such users write `RoleArn`, `max_run` or a channel's `DataSource`, and lists of `{Name: ..., Value: ...}`. All are refused,
so that a spec has one form; the message shows the right key, and that key is not reported as missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.spec.channels import KINDS
from launcher.spec.model import spec_name

# A key elsewhere, in snake_case -> its place in a spec.
_OF_A_SPEC: dict[str, SpecPath] = {
    "algorithm_specification": ("image",),
    "base_job_name": ("base_name",),
    "args": ("hyperparameters",),
    "arguments": ("hyperparameters",),
    "bucket": ("channels",),
    "command": ("code", "entry_point"),
    "compute": ("resource_config",),
    "count": ("resource_config", "instance_count"),
    "data": ("channels",),
    "dataset": ("channels",),
    "disk_size": ("resource_config", "volume_size_in_gb"),
    "distributed": ("code", "launcher"),
    "distribution": ("code", "launcher"),
    "env_vars": ("environment",),
    "git_config": ("code", "directory"),
    "gpu": ("resource_config", "instance_type"),
    "gpus": ("resource_config", "instance_type"),
    "input": ("channels",),
    "input_mode": ("training_input_mode",),
    "instances": ("resource_config", "instance_count"),
    "job": ("base_name",),
    "keep_alive": ("resource_config", "keep_alive_period_in_seconds"),
    "max_run_time": ("stopping_condition", "max_runtime_in_seconds"),
    "max_wait_time": ("stopping_condition", "max_wait_time_in_seconds"),
    "networking": ("vpc_config",),
    "node_count": ("resource_config", "instance_count"),
    "nodes": ("resource_config", "instance_count"),
    "sagemaker_session": ("region",),
    "script": ("code", "entry_point"),
    "source_code": ("code",),
    "spot_instances": ("enable_managed_spot_training",),
    "timeout": ("stopping_condition", "max_runtime_in_seconds"),
    "train": ("channels",),
    "training": ("channels",),
    "volume_size_gb": ("resource_config", "volume_size_in_gb"),
    "warm_pool": ("resource_config", "keep_alive_period_in_seconds"),
    "warm_pool_keep_alive": ("resource_config", "keep_alive_period_in_seconds"),
    "checkpoint_local_path": ("checkpoint_config", "local_path"),
    "checkpoint_s3_uri": ("checkpoint_config", "s3_uri"),
    "encrypt_inter_container_traffic": ("enable_inter_container_traffic_encryption",),
    "entry_script": ("code", "entry_point"),
    "env": ("environment",),
    "framework": ("image", "framework"),
    "metrics": ("metric_definitions",),
    "spot": ("enable_managed_spot_training",),
    "training_plan": ("resource_config", "training_plan_arn"),
    "use_spot": ("enable_managed_spot_training",),
    "volumes": ("resource_config", "volume_size_in_gb"),
    "execution_role": ("role_arn",),
    "framework_version": ("image", "version"),
    "hyper_parameters": ("hyperparameters",),
    "image_name": ("image",),
    "image_uri": ("image",),
    "input_data_config": ("channels",),
    "inputs": ("channels",),
    "instance_count": ("resource_config", "instance_count"),
    "instance_type": ("resource_config", "instance_type"),
    "job_name": ("training_job_name",),
    "max_retry_attempts": ("retry_strategy", "maximum_retry_attempts"),
    "max_run": ("stopping_condition", "max_runtime_in_seconds"),
    "max_runtime": ("stopping_condition", "max_runtime_in_seconds"),
    "max_wait": ("stopping_condition", "max_wait_time_in_seconds"),
    "output_kms_key": ("output_data_config", "kms_key_id"),
    "output_path": ("output_data_config", "s3_output_path"),
    "py_version": ("image", "py_version"),
    "role": ("role_arn",),
    "source_dir": ("code", "directory"),
    "train_instance_count": ("resource_config", "instance_count"),
    "train_instance_type": ("resource_config", "instance_type"),
    "train_max_run": ("stopping_condition", "max_runtime_in_seconds"),
    "train_max_wait": ("stopping_condition", "max_wait_time_in_seconds"),
    "train_use_spot_instances": ("enable_managed_spot_training",),
    "train_volume_size": ("resource_config", "volume_size_in_gb"),
    "training_image": ("image",),
    "use_spot_instances": ("enable_managed_spot_training",),
    "volume_kms_key": ("resource_config", "volume_kms_key_id"),
    "volume_size": ("resource_config", "volume_size_in_gb"),
}
_OF_A_CHANNEL: dict[str, str] = {
    "compression": "compression_type",
    "distribution": "s3_data_distribution_type",
    "file_system_type": "source",
    "record_wrapping": "record_wrapper_type",
    "s3_data": "s3_uri",
    "s3_distribution_type": "s3_data_distribution_type",
    "training_input_mode": "input_mode",
}
# A key that no kind of channel has -> the key that it probably means, and an example of its value.
_IN_A_CHANNEL: dict[str, tuple[str, str]] = {
    "bucket": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "data": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "directory": ("directory_path", "/FOLDER"),
    "fs_id": ("file_system_id", "fs-0123456789abcdef0"),
    "key": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "location": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "mode": ("input_mode", "File, FastFile or Pipe"),
    "path": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "prefix": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "s3": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "seed": ("shuffle_config", "{seed: 1}"),
    "shuffle": ("shuffle_config", "{seed: 1}"),
    "shuffle_seed": ("shuffle_config", "{seed: 1}"),
    "type": ("source", "S3, EFS or FSxLustre; for the data's MIME type, content_type"),
    "uri": ("s3_uri", "s3://BUCKET/FOLDER/"),
    "url": ("s3_uri", "s3://BUCKET/FOLDER/"),
}
_REMARKS = ("comment", "comments", "description", "note", "notes")
_NESTING = ("data_source", "s3_data_source", "file_system_data_source", "dataset_source")
_IN_A_MAPPING: dict[str, dict[str, str]] = {  # a mapping -> the meaning that a key has in it alone
    "checkpoint_config": dict.fromkeys(("path", "s3_output_path", "uri"), "s3_uri"),
    "code": {"source": "directory"},
    "output_data_config": dict.fromkeys(("path", "s3_uri", "uri"), "s3_output_path"),
    "resource_config": {"type": "instance_type"},
}
_ARGUMENTS = "write hyperparameters: {NAME: VALUE}, which the script gets as --NAME VALUE"
_CHANNEL = "write channels: {train: s3://BUCKET/FOLDER/}"
_GPUS = "write resource_config: {instance_type: ...}, which decides the GPUs"
_TORCHRUN = "write code: {launcher: torchrun}"
_INSTEAD = {  # remedies that say more than the right key
    **dict.fromkeys(("bucket", "data", "dataset", "input", "train", "training"), _CHANNEL),
    "args": _ARGUMENTS,
    "arguments": _ARGUMENTS,
    "gpu": _GPUS,
    "gpus": _GPUS,
    "distributed": _TORCHRUN,
    "distribution": _TORCHRUN,
    "compute": "write resource_config: {instance_type: ..., instance_count: 1, volume_size_in_gb: 50}",
    "git_config": "clone the repository, and write code: {directory: FOLDER, entry_point: SCRIPT}",
    "networking": "write vpc_config: {security_group_ids: [sg-...], subnets: [subnet-...]}; enable_network_isolation is a key"
    " of its own",
    "sagemaker_session": "delete it; the keys region and profile choose the account",
    "source_code": "write code: {directory: FOLDER, entry_point: SCRIPT}",
    "algorithm_specification": "write its members at the top: image, training_input_mode, ... (`launch --import` writes a spec"
    " for a whole request)",
    "input_data_config": "write channels: {train: {s3_uri: ...}}, each channel under its name",
}
_FIRST_KEYS = {  # mappings that users write as a single value -> the keys to write
    "checkpoint_config": "s3_uri: ...",
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
    """Return `write ...` for a key known from elsewhere, and the place that it stands for; None for any other key.

    Args:
        path: The place of the unknown key.
        known: The keys that the mapping around it may have.
    """
    key = spec_name(str(path[-1])).replace("-", "_")
    above = path[:-1]
    if key in known:
        place = (*above, key)
        return f"write {key}", _MISSED_AT.get(place, place)
    if len(path) == 1 and key in _REMARKS:
        return "write a remark as a comment, which begins with #", ()
    if path[0] != "channels" and key in _OF_A_SPEC:
        place = _OF_A_SPEC[key]
        if above and place[:-1] == above:
            return f"write {place[-1]}", place
        return _INSTEAD.get(key, f"write {as_yaml(place)}"), _MISSED_AT.get(place, place)
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
            name, example = _IN_A_CHANNEL[key]
            if key == "path" and "directory_path" in known:
                name, example = "directory_path", "/FOLDER"
            return f"write {name}: {example}", above
        if kinds := [kind for kind, model in KINDS.items() if key in model.model_fields]:
            return f"it needs source: {' or '.join(kinds)}", above
    return None


def as_yaml(place: SpecPath) -> str:
    """Return a place as it is written in YAML: `code: {directory: ...}`."""
    *outer, last = place
    return "".join(f"{part}: {{" for part in outer) + f"{last}: ..." + "}" * len(outer)


def as_mapping(path: SpecPath, value: Any) -> str:
    """Return `; write {...}` for a value that should be a mapping, or an empty text if it does not show what is meant.

    The values of a list's items are not shown: in `environment` they can be secrets.
    """
    if path == ("channels",):
        return "; write each channel under its name: {train: {s3_uri: ...}}"
    if path[:1] == ("channels",) and len(path) == 2:
        several = isinstance(value, list) and len(value) > 1
        return "; write a channel for each, since a channel has one source" if several else "; write {s3_uri: ...}"
    if isinstance(value, list):
        names = [_name(item) for item in value]
        if not names or not all(names):
            return ""
        shown = ", ".join(f"{_scalar(name)}: ..." for name in names[:3] if name)
        return f"; write {{{shown}{', ...' if len(names) > 3 else ''}}}"
    keys = _FIRST_KEYS.get(str(path[-1])) if path else None
    return f"; write {{{keys}}}" if keys else ""


def _name(item: Any) -> str | None:
    """Return the name in `{Name: ..., Value: ...}` or in `NAME=value`."""
    if isinstance(item, str):
        named = re.match(r"([A-Za-z_][A-Za-z0-9_]{0,39})=", item)
        return named[1] if named else None
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
        separator = r"\s*,\s*|\s+" if path[:1] != ("extends",) else r"\s*,\s*"
        return f"such as [{', '.join(_scalar(word) for word in re.split(separator, value.strip()) if word)}]"
    return "such as [one, two]"


def _scalar(text: str) -> str:
    """Return a text as YAML inside brackets, in quotes if it needs them."""
    return (
        text
        if re.fullmatch(r"[A-Za-z0-9_./-][A-Za-z0-9_./:@=-]*", text) and not text.endswith(":")
        else json.dumps(text)
    )
