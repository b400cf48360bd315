"""Rules on the machines."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Draft, Found, Rule
from launcher.part import aws_name


def machines_said_once(draft: Draft) -> Iterator[Found]:
    """Hardware comes as one type and count or as instance groups; the service refuses both, and no job runs on neither."""
    resources = draft.get("ResourceConfig")
    if resources is None:
        yield (
            ("resource_config",),
            "is missing; write {instance_type: ml.g5.xlarge, instance_count: 1, volume_size_in_gb: 50}",
        )
        return
    missing = [key for key in ("instance_type", "instance_count") if aws_name(key) not in resources]
    if "InstanceGroups" in resources and len(missing) < 2:
        yield (
            ("resource_config", "instance_groups"),
            "stand beside instance_type or instance_count; AWS takes one or the other",
        )
    if "InstanceGroups" not in resources and "TrainingPlanArn" not in resources and missing:
        yield ("resource_config", missing[0]), f"is missing: AWS needs {' and '.join(missing)}, or instance_groups"


def counts_are_positive(draft: Draft) -> Iterator[Found]:
    """The model's minimum is 0 instances; a job of none never runs."""
    if draft.get("ResourceConfig.InstanceCount") == 0:
        yield ("resource_config", "instance_count"), "is 0; a job needs at least 1"


RULES = (
    Rule(
        "resource-alternatives",
        "error",
        machines_said_once,
        wrong="resource_config: {instance_type: ml.m5.large}",
        right="resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 10}",
    ),
    Rule(
        "instance-count-positive",
        "error",
        counts_are_positive,
        wrong="resource_config: {instance_type: ml.m5.large, instance_count: 0}",
        right="resource_config: {instance_type: ml.m5.large, instance_count: 2}",
    ),
)
