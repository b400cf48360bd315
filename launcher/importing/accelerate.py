"""What `accelerate config` writes for SageMaker -> the spec of the job that `accelerate launch train.py` creates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.errors import InputError

NOTE = "Write your script in place of train.py, and its arguments as hyperparameters: {epochs: 3}. The rest is as SDK v2 has it"


def spec_of_accelerate(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the spec for a configuration, whose further files are in `folder`. Raises InputError if one cannot be read."""
    image, region, role = config.get("image_uri"), config.get("region", "us-east-1"), str(config.get("iam_role_name"))
    framework = {
        "framework": "huggingface",
        "version": config.get("transformers_version"),
        "base_framework_version": f"pytorch{config.get('pytorch_version')}",
        "py_version": config.get("py_version"),
    }
    dynamo = {f"ACCELERATE_{key.upper()}": str(value) for key, value in (config.get("dynamo_config") or {}).items()}
    is_parallel = config.get("distributed_type") == "DATA_PARALLEL"
    spec = {
        "base_name": config.get("base_job_name"),
        "region": region,
        "image": image or framework,
        "role_arn": role if role.startswith("arn:") else f"arn:aws:iam::${{ACCOUNT_ID}}:role/{role}",
        "code": {
            "directory": ".",
            **({"command": "torchrun train.py"} if is_parallel else {"entry_point": "train.py"}),
        },
        "environment": {"ACCELERATE_MIXED_PRECISION": str(config.get("mixed_precision")), **dynamo},
        "channels": dict(_rows(config.get("sagemaker_inputs_file"), folder)),
        "metric_definitions": [
            {"name": name, "regex": regex} for name, regex in _rows(config.get("sagemaker_metrics_file"), folder)
        ],
        "resource_config": {
            "instance_type": config.get("ec2_instance_type"),
            "instance_count": config.get("num_machines", 1),
            "volume_size_in_gb": 30,
        },
        "stopping_condition": {"max_runtime_in_seconds": 86400},
        "output_data_config": {"s3_output_path": f"s3://sagemaker-{region}-${{ACCOUNT_ID}}/"},
        "profile": config.get("profile"),
    }
    return {key: value for key, value in spec.items() if value}


def _rows(file: str | None, folder: Path) -> list[list[str]]:
    """Return the rows of a table of two columns below its heading."""
    try:
        lines = (folder / file).read_text(encoding="utf-8").splitlines()[1:] if file else []
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; write its path from {folder}") from None
    return [[part.strip() for part in line.split("\t")[:2]] for line in lines if "\t" in line]
