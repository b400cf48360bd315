"""The spec that every rule's examples are laid over: small, right, and without a warning."""

from __future__ import annotations

BASE = """\
base_name: example
image: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/training:1
role_arn: arn:aws:iam::123456789012:role/training
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://bucket/out/}
channels: {train: s3://bucket/train/}
"""


def laid_over_base(overlay: str) -> str:
    """BASE with the top-level keys of `overlay` in place of its own; both are block mappings with one key a line."""
    replaced = {line.partition(":")[0] for line in overlay.splitlines() if line and not line.startswith((" ", "-"))}
    kept = [line for line in BASE.splitlines() if line.partition(":")[0] not in replaced]
    return "\n".join([*kept, overlay.rstrip("\n")]) + "\n"
