"""What `launch --explain` adds to a code, from YAML files beside the rules: the details, their source, and examples.

Examples are keys laid over a base spec that is small and has no problem.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from launcher.tables import read_table

BASE = """\
base_name: example
image: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/training:1
role_arn: arn:aws:iam::123456789012:role/training
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://bucket/out/}
channels: {train: s3://bucket/train/}
"""


@cache
def _entries() -> dict[str, dict[str, str]]:
    here = Path(__file__).parent
    files = (*here.glob("*/examples.yaml"), here / "codes.yaml")
    return {code: entry for file in files for code, entry in read_table(file, file.stem).items()}


def details(code: str) -> str:
    """Return what there is to know of a code besides its reason, with its source; empty if that is all."""
    return _entries().get(code, {}).get("more", "")


def examples() -> dict[str, tuple[str, str]]:
    """Return for each code that has examples a wrong one, which has no other problem, and a right one; both without the base."""
    return {
        code: (_joined(entry, "wrong"), _joined(entry, "right"))
        for code, entry in _entries().items()
        if {"wrong", "right", "both"} & entry.keys()
    }


def laid_over_base(overlay: str) -> str:
    """Return BASE with its top-level keys replaced by those of `overlay`; both have one key per line."""
    replaced = {line.partition(":")[0] for line in overlay.splitlines() if line and not line.startswith((" ", "-"))}
    kept = [line for line in BASE.splitlines() if line.partition(":")[0] not in replaced]
    return "\n".join([*kept, overlay.rstrip("\n")]) + "\n"


def _joined(entry: dict[str, str], which: str) -> str:
    return "\n".join(entry[key] for key in ("both", which) if key in entry)
