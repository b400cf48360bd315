"""What preflight says of machines that are chosen from a list or reserved, and of buckets in one zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from launcher.preflight.iam import permissions
from launcher.preflight.s3 import buckets, directory_buckets, prefixes
from preflight_world import CHECKS, MACHINES, POLICY, SHARED, Broken, World, allow, found, judge, nothing

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/big"
BIG = "ml.p5.48xlarge"
ON_PLAN = MACHINES % (BIG, 2, f", training_plan_arn: '{PLAN}'")
PLAN_AT = "resource_config.training_plan_arn"
PREFERENCES = "resource_config: {{instance_preferences: [%s], volume_size_in_gb: 50%s}}"
LARGE, XLARGE = "{{instance_type: ml.m5.large%s}}", "{{instance_type: ml.m5.xlarge%s}}"
EXPRESS = "data--use1-az4--x-s3"
ON_EXPRESS = f"channels: {{{{train: s3://{EXPRESS}/train%s}}}}"


def in_hours(hours: float) -> float:
    return (datetime.now(timezone.utc) + timedelta(hours=hours)).timestamp()


def a_plan(**more: Any) -> Callable[[World], dict[str, str]]:
    """A plan of 2 machines that is under way; `more` are members of DescribeTrainingPlan's answer."""
    capacity = more.pop("capacity", {"InstanceType": BIG, "TotalInstanceCount": 2})
    members = {
        "TrainingPlanArn": PLAN,
        "TrainingPlanName": "big",
        "Status": "Active",
        "StartTime": in_hours(-1),
        "EndTime": in_hours(24),
        "TargetResources": ["training-job"],
        "ReservedCapacitySummaries": [{"Status": "Active", **capacity}],
    }

    def make(world: World) -> dict[str, str]:
        world.aws.order("sagemaker/plan", **{**members, **more})
        return {}

    return make


def an_express_bucket(world: World) -> dict[str, str]:
    world.aws.objects(EXPRESS, sizes={"train/b": 10, "train/a": 10})
    may = [*POLICY, allow(["s3express:CreateSession"], f"arn:aws:s3express:us-east-1:123456789012:bucket/{EXPRESS}")]
    return {"role": world.role(may)}


def a_role_without_a_session(world: World) -> dict[str, str]:
    return {**an_express_bucket(world), "role": "training"}


BROKEN = {
    "a list of preferences, one of which has no quota": Broken(
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
    "no such plan": Broken(
        nothing,
        ON_PLAN.replace("/big", "/small"),
        [("training-plan-missing", PLAN_AT)],
        ("'small'", "list-training-plans"),
    ),
    "a plan that is over": Broken(
        a_plan(Status="Expired", EndTime=in_hours(-1)), ON_PLAN, [("training-plan-unusable", PLAN_AT)], ("is Expired",)
    ),
    "a plan for clusters": Broken(
        a_plan(TargetResources=["hyperpod-cluster"]),
        ON_PLAN,
        [("training-plan-unusable", PLAN_AT)],
        ("is for hyperpod-cluster only", "for training jobs"),
    ),
    "a plan of another type": Broken(
        a_plan(capacity={"InstanceType": "ml.trn2.48xlarge", "TotalInstanceCount": 2}),
        ON_PLAN,
        [("training-plan-unusable", PLAN_AT)],
        ("reserves ml.trn2.48xlarge", f"asks for {BIG}"),
    ),
    "a plan of fewer machines": Broken(
        a_plan(capacity={"InstanceType": BIG, "TotalInstanceCount": 1}),
        ON_PLAN,
        [("training-plan-unusable", PLAN_AT)],
        ("reserves 1 instances, and the job needs 2",),
    ),
    "a plan that ends before the job may": Broken(
        a_plan(EndTime=in_hours(0.5)),
        ON_PLAN,
        [("training-plan-ends", PLAN_AT)],
        ("the job may run for 1 h", "max_runtime_in_seconds"),
    ),
    "a preference with a plan of another type": Broken(
        a_plan(),
        PREFERENCES % (LARGE % f", instance_count: 1, training_plan_arns: ['{PLAN}']", ""),
        [("training-plan-unusable", "resource_config.instance_preferences[0].training_plan_arns")],
        (f"reserves {BIG}", "asks for ml.m5.large"),
    ),
    "a prefix of a directory bucket that is no folder": Broken(
        an_express_bucket,
        ON_EXPRESS % "",
        [("directory-bucket-prefix", "channels.train.s3_uri"), ("directory-bucket-zone", "channels.train.s3_uri")],
        (f"write s3://{EXPRESS}/train/",),
    ),
    "a role that may begin no session": Broken(
        a_role_without_a_session,
        ON_EXPRESS % "/",
        [("directory-bucket-zone", "channels.train.s3_uri"), ("role-denied", "channels.train.s3_uri")],
        ("s3express:CreateSession on the directory bucket",),
    ),
    "an id like those of S3 Files": Broken(
        nothing,
        SHARED % "fs-0123456789abcdef0",
        [("efs-missing", "channels.shared.file_system_id")],
        ("It may be of S3 Files", "read the bucket"),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_found_named_and_given_its_remedy(world: World, case: str) -> None:
    judge(world, BROKEN[case])


@pytest.mark.parametrize("status", ["Active", "Scheduled"])
def test_plan_that_serves_the_job_needs_no_quota(world: World, status: str) -> None:
    start = in_hours(48 if status == "Scheduled" else -1)
    a_plan(Status=status, StartTime=start, EndTime=start + 24 * 3600)(world)
    report = world.checked(ON_PLAN)
    assert found(report) == []
    assert not world.aws.calls(BIG)
    assert any("until then the job is Pending" in text for _, text in report.notes) == (status == "Scheduled")


def test_directory_bucket_is_listed_by_its_folder_and_read_by_the_role(world: World) -> None:
    zones = {each["ZoneName"]: each["ZoneId"] for each in world.ec2.describe_availability_zones()["AvailabilityZones"]}
    bucket = f"data--{zones['us-east-1a']}--x-s3"
    world.aws.objects(bucket, sizes={"train/b": 10, "train/a/1": 10})
    session = allow(["s3express:CreateSession"], f"arn:aws:s3express:us-east-1:123456789012:bucket/{bucket}")
    checks = (*CHECKS, buckets.CHECK, prefixes.CHECK)
    role = world.role([*POLICY, session])
    report = world.checked(f"channels: {{{{train: s3://{bucket}/train/}}}}", checks=checks, role=role)
    assert found(report) == []
    assert (("channels", "train", "s3_uri"), "2 objects, 20 bytes") in report.notes
    assert report.not_asked == []


def test_directory_bucket_that_refuses_the_caller_is_not_called_anothers(world: World) -> None:
    world.aws.bucket(EXPRESS, forbidden=True)
    checks = (buckets.CHECK, directory_buckets.CHECK, permissions.CHECK)
    report = world.checked(ON_EXPRESS % "/", checks=checks, **a_role_without_a_session(world))
    assert ("bucket-forbidden", "channels.train.s3_uri") not in found(report)
    assert any(check == "buckets" for check, _ in report.not_asked)
    world.aws.bucket(EXPRESS)
