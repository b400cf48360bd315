"""The cost of a job before and after it ran, compared with values computed by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from launcher.cost.estimate import estimate, why_not
from launcher.cost.prices import Price
from launcher.cost.show import as_text, at_most, dollars, estimate_of_job, rate

MADE_UP = {"m": "1.20", "g": "4.80", "c": "0.36"}  # dollars an hour by the type's first letter


def made_up(name: str, region: str | None) -> Price | None:
    usd = MADE_UP.get(name.removeprefix("ml.")[0])
    return Price(Decimal(usd), region or "us-east-1", "2026-01-01", "a test", "https://example.org") if usd else None


def request(resources: dict[str, Any], seconds: int | None = 7200, **members: Any) -> dict[str, Any]:
    stopping = {} if seconds is None else {"StoppingCondition": {"MaxRuntimeInSeconds": seconds}}
    return {"TrainingJobName": "digits-1", "ResourceConfig": resources, **stopping, **members}


def one(name: str = "ml.m5.xlarge", count: int = 1, gigabytes: int = 30, **more: Any) -> dict[str, Any]:
    return {"InstanceType": name, "InstanceCount": count, "VolumeSizeInGB": gigabytes, **more}


# The arithmetic


def test_estimate_is_instances_times_hours() -> None:
    found = estimate(request(one(count=3)), "us-east-1", made_up)
    assert found is not None
    assert found.usd["per_hour"] == Decimal("3.60")
    assert found.usd["training"] == Decimal("7.20")  # two hours
    assert found.usd["warm_pool"] == Decimal("0")
    # 3 x 30 GB x $0.14 x 2 h of 720
    assert found.usd["storage"] == Decimal("0.035")
    assert round(found.usd["altogether"] or Decimal(0), 9) == Decimal("7.235")


def test_missing_time_limit_counts_as_one_day() -> None:
    found = estimate(request(one(gigabytes=0), seconds=None), "us-east-1", made_up)
    assert found is not None
    assert found.usd["altogether"] == Decimal("28.80")
    assert any("at most $28.80, for 1 d, AWS's default" in line for line in as_text(found, "digits"))


def test_warm_pool_costs_as_much_as_training() -> None:
    found = estimate(request(one("ml.m5.xlarge", 2, 72, KeepAlivePeriodInSeconds=1800)), "us-east-1", made_up)
    assert found is not None
    assert found.usd["training"] == Decimal("4.80")
    assert found.usd["warm_pool"] == Decimal("1.20")
    assert found.usd["storage"] == Decimal("0.07")  # 144 GB x $0.14 x 2.5 h of 720
    assert round(found.usd["altogether"] or Decimal(0), 9) == Decimal("6.07")


def test_types_with_own_disks_have_no_volume_cost() -> None:
    found = estimate(request(one("ml.g5.xlarge", 1, 500)), "us-east-1", made_up)
    assert found is not None
    assert found.usd["storage"] == Decimal("0")
    assert found.usd["altogether"] == Decimal("9.60")


def test_instance_groups_are_added_up() -> None:
    groups = [
        {"InstanceGroupName": "gpu", "InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "cpu", "InstanceType": "ml.c5.xlarge", "InstanceCount": 5},
    ]
    found = estimate(request({"InstanceGroups": groups, "VolumeSizeInGB": 36}), "us-east-1", made_up)
    assert found is not None
    assert found.usd["per_hour"] == Decimal("11.40")  # 2 x 4.80 + 5 x 0.36
    assert found.usd["storage"] == Decimal("0.07")  # the CPUs' only: 180 GB x $0.14 x 2 h of 720
    assert [each.instance_type for each in found.instances] == ["ml.g5.xlarge", "ml.c5.xlarge"]


def test_of_instance_preferences_the_dearest_counts() -> None:
    preferences = [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.m5.xlarge", "InstanceCount": 6}]
    found = estimate(request({"InstanceCount": 2, "InstancePreferences": preferences}), "us-east-1", made_up)
    assert found is not None
    assert found.usd["per_hour"] == Decimal("9.60")
    assert found.usd["training"] == Decimal("19.20")
    lines = as_text(found, "digits")
    assert any(line.split() == ["per", "hour", "$9.60"] for line in lines)
    assert any(line.lstrip().startswith("or ") and "6 x ml.m5.xlarge" in line for line in lines)


def test_storage_is_that_of_the_dearest_preference() -> None:
    preferences = [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.m5.xlarge"}]  # the former has disks
    resources = {"InstanceCount": 2, "InstancePreferences": preferences, "VolumeSizeInGB": 36}
    found = estimate(request(resources), "us-east-1", made_up)
    assert found is not None
    assert not any(line.lstrip().startswith("storage") for line in as_text(found, "digits"))


def test_spot_estimate_is_the_on_demand_bound() -> None:
    plain = estimate(request(one()), "us-east-1", made_up)
    spot = estimate(request(one(), EnableManagedSpotTraining=True), "us-east-1", made_up)
    assert plain is not None
    assert spot is not None
    assert spot.usd["altogether"] == plain.usd["altogether"]
    assert any("at most this" in line for line in as_text(spot, "digits"))
    assert not any("at most this" in line for line in as_text(plain, "digits"))


def test_rule_with_an_instance_type_costs_as_long_as_the_job() -> None:
    own_rule = {"RuleConfigurationName": "mine", "RuleEvaluatorImage": "x", "InstanceType": "ml.c5.xlarge"}
    built_in = {"RuleConfigurationName": "theirs", "RuleEvaluatorImage": "x"}
    found = estimate(request(one(), ProfilerRuleConfigurations=[own_rule, built_in]), None, made_up)
    assert found is not None
    assert found.usd["training"] == Decimal("3.12")  # 2 x (1.20 + 0.36)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ServerlessJobConfig": {"JobType": "FineTuning"}, "ResourceConfig": {}}, "tokens"),
        (request(one(TrainingPlanArn="arn:aws:sagemaker:us-east-1:1:training-plan/p")), "in advance"),
        ({"TrainingJobName": "digits-1"}, "no instance type"),
    ],
)
def test_job_not_billed_by_the_hour_has_no_estimate(wrong: dict[str, Any], why: str) -> None:
    assert estimate(wrong, "us-east-1") is None
    assert why in (why_not(wrong) or "")


# After the job


def described(resources: dict[str, Any], billed: int = 1800, **members: Any) -> dict[str, Any]:
    return {"TrainingJobName": "digits-1", "ResourceConfig": resources, "BillableTimeInSeconds": billed, **members}


def test_cost_of_ended_job_is_billed_seconds_times_instances() -> None:
    cost = estimate_of_job(described(one("ml.g5.xlarge", 4)), "us-east-1")
    assert cost is not None
    assert cost.usd == Decimal("2.816")  # half an hour of 4 x $1.408
    assert cost.text.startswith("about $2.82, an estimate: 1,800 s billed x 4 ml.g5.xlarge at $1.408/h (us-east-1, ")
    assert "2026-09-25" in cost.text


def test_spot_saving_is_in_billed_seconds() -> None:
    spot = described(one("ml.g5.xlarge"), EnableManagedSpotTraining=True, TrainingTimeInSeconds=9000)
    cost = estimate_of_job(spot, "us-east-1")
    assert cost is not None
    assert cost.usd == Decimal("0.704")


def test_cost_of_ended_job_includes_storage_and_warm_pool() -> None:
    job = described(one("ml.m5.xlarge", 2, 144), WarmPoolStatus={"ResourceRetainedBillableTimeInSeconds": 1800})
    cost = estimate_of_job(job, "us-east-1")
    assert cost is not None
    # An hour of 2 x $0.23, and of 288 GB x $0.14 / 720
    assert round(cost.usd or Decimal(0), 9) == Decimal("0.516")
    assert "1,800 s more as a warm pool" in cost.text
    assert "$0.06 for 288 GB of storage" in cost.text


def test_cost_of_ended_job_uses_chosen_preference() -> None:
    preferences = [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.m5.xlarge"}]
    taken = {"SelectedInstanceType": "ml.m5.xlarge", "SelectedInstanceCount": 2, "InstancePreferences": preferences}
    cost = estimate_of_job(described(taken), "us-east-1")
    assert cost is not None
    assert cost.usd == Decimal("0.23")
    assert estimate_of_job(described({"InstancePreferences": preferences}), "us-east-1") is None


def test_ended_job_without_billed_time_or_price_has_unknown_cost() -> None:
    unknown = estimate_of_job(described(one("ml.x99.huge")), "us-east-1")
    assert unknown is not None
    assert unknown.usd is None
    assert "no price is known for ml.x99.huge" in unknown.text
    assert estimate_of_job({"ResourceConfig": one()}, "us-east-1") is None  # nothing was billed yet
    assert estimate_of_job({"BillableTimeInSeconds": 5}, "us-east-1") is None  # a serverless job
    assert estimate_of_job(described(one(TrainingPlanArn="arn:plan")), "us-east-1") is None


def test_amounts_are_formatted_as_dollars() -> None:
    assert [dollars(Decimal(usd)) for usd in ("0", "0.004", "0.015", "1234.5")] == [
        "$0.00",
        "less than $0.01",
        "$0.02",
        "$1,234.50",
    ]
    assert [rate(Decimal(usd)) for usd in ("3.2", "0.7364", "63.296", "1000")] == [
        "$3.20",
        "$0.7364",
        "$63.296",
        "$1,000.00",
    ]
    assert at_most(Decimal("1.001")) == "at most $1.01"
    assert at_most(Decimal("0.001")) == "less than $0.01"
