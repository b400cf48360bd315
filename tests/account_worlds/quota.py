"""Quotas that are too small, and a training plan that ends before the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from account_data import Broken
from account_world import MACHINES, World, nothing

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/big"
BIG = "ml.p5.48xlarge"
ON_PLAN = MACHINES % (BIG, 2, f", training_plan_arn: '{PLAN}'")
PREFERENCES = "resource_config: {{instance_preferences: [%s], volume_size_in_gb: 50%s}}"
LARGE, XLARGE = "{{instance_type: ml.m5.large%s}}", "{{instance_type: ml.m5.xlarge%s}}"


def lowered(name: str, value: float) -> dict[str, Any]:
    """GetServiceQuota's answer with another value of a quota that the jobs of other worlds need, too."""

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        quota = answer["Quota"]
        return {**answer, "Quota": {**quota, "Value": value}} if quota["QuotaName"] == name else answer

    return {"get_service_quota": change}


def a_quota(name: str, value: float) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        world.aws.quota(name, value)
        return {}

    return make


TYPE_AT = "resource_config.instance_type"
BROKEN = {
    "preferences, one of them above its quota": Broken(
        nothing,
        PREFERENCES % (f"{LARGE % ', instance_count: 21'}, {XLARGE % ', instance_count: 2'}", ""),
        [("quota-exceeded", "resource_config.instance_preferences[0].instance_type")],
        ("'ml.m5.large for training job usage' is 20", "needs 21"),
    ),
    "preferences with one count for all": Broken(
        nothing,
        PREFERENCES % (f"{LARGE % ''}, {XLARGE % ''}", ", instance_count: 21"),
        [("quota-exceeded", f"resource_config.instance_preferences[{number}].instance_type") for number in range(2)],
        ("'ml.m5.large for training job usage' is 20", "'ml.m5.xlarge for training job usage' is 20"),
    ),
    "a quota of 0": Broken(
        a_quota("ml.g5.xlarge for training job usage", 0),
        MACHINES % ("ml.g5.xlarge", 1, ""),
        [("quota-exceeded", TYPE_AT)],
        ("'ml.g5.xlarge for training job usage' is 0", "needs 1"),
    ),
    "a quota that is too small": Broken(
        nothing, MACHINES % ("ml.m5.large", 21, ""), [("quota-exceeded", TYPE_AT)], ("is 20", "needs 21")
    ),
    "a quota for spot": Broken(
        a_quota("ml.g5.4xlarge for spot training job usage", 1),
        MACHINES % ("ml.g5.4xlarge", 2, "") + "\nenable_managed_spot_training: true\n"
        "stopping_condition: {{max_runtime_in_seconds: 60, max_wait_time_in_seconds: 60}}",
        [("quota-exceeded", TYPE_AT)],
        ("'ml.g5.4xlarge for spot training job usage' is 1",),
    ),
    "a quota for warm pools": Broken(
        nothing,
        MACHINES % ("ml.m5.large", 1, ", keep_alive_period_in_seconds: 600"),
        [("warm-pool-quota", "resource_config.keep_alive_period_in_seconds")],
        ("'ml.m5.large for training warm pool usage' is 0", "none is kept warm"),
    ),
    "a longer run than the quota allows": Broken(
        nothing,
        "stopping_condition: {{max_runtime_in_seconds: 6d}}",
        [("quota-exceeded", "stopping_condition.max_runtime_in_seconds")],
        ("'Longest run time for a training job' is 432,000 s in us-east-1, and the job needs 518,400 s",),
    ),
    "a larger volume than the quota allows": Broken(
        nothing,
        MACHINES.replace("50", "1025") % ("ml.m5.large", 1, ""),
        [("quota-exceeded", "resource_config.volume_size_in_gb")],
        ("'Size of EBS volume for a training job instance' is 1,024 GB",),
    ),
    "a volume on an instance type with disks of its own": Broken(
        nothing, MACHINES.replace("50", "1025") % ("ml.g5.2xlarge", 1, ""), [], ()
    ),
    "more instances than a job may have": Broken(
        nothing,
        MACHINES % ("ml.m5.large", 3, ""),
        [("quota-exceeded", "resource_config.instance_count")],
        ("'Maximum number of instances per training job' is 2", "needs 3"),
        lowered("Maximum number of instances per training job", 2),
    ),
    "more instances than all spot jobs may have": Broken(
        nothing,
        MACHINES % ("ml.m5.large", 2, "") + "\nenable_managed_spot_training: true\n"
        "stopping_condition: {{max_runtime_in_seconds: 60, max_wait_time_in_seconds: 60}}",
        [("quota-exceeded", "resource_config.instance_count")],
        ("'Number of instances across all spot training jobs' is 1",),
        lowered("Number of instances across all spot training jobs", 1),
    ),
}
