"""Training plans: whether each can be used now, is for training jobs of this type, and lasts long enough.

Source: developer guide, training-plan-details-using-api-cli-sdk (a job stays Pending until a Scheduled plan begins);
DescribeTrainingPlan in the service model.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.quota.machines import Machines, alternatives
from launcher.console import duration
from launcher.errors import SpecPath

_USABLE = ("Active", "Scheduled")
_TARGET = "training-job"
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


def _plans(subject: Subject) -> Iterator[tuple[SpecPath, tuple[str, Machines]]]:
    """Yield the ARN of each plan with the machines that it reserves."""
    for machines in [each for choice in alternatives(subject.draft) for each in choice]:
        above = machines.path[:-1]
        is_own = "instance_preferences" in above
        path = (*above, "training_plan_arns") if is_own else ("resource_config", "training_plan_arn")
        yield from ((path, (arn, machines)) for arn in machines.plans)


def _ask(subject: Subject, path: SpecPath, use: tuple[str, Machines]) -> Iterator[Finding]:
    arn, machines = use
    name = arn.rpartition("/")[2]
    plan = subject.find("sagemaker", "describe_training_plan", TrainingPlanName=name)
    if plan is None:
        where = f"there is no training plan {name!r} in {subject.account.region}"
        yield (
            path,
            "training-plan-missing",
            f"{where}; `aws sagemaker list-training-plans{subject.account.options}` lists the plans",
        )
        return
    what, status = f"the training plan {name!r}", plan.get("Status")
    if status not in _USABLE:
        yield path, "training-plan-unusable", f"{what} is {status}; name one that is Active or Scheduled"
        return
    targets = plan.get("TargetResources", [_TARGET])
    if _TARGET not in targets:
        yield path, "training-plan-unusable", f"{what} is only for {joined(targets)}; name one for training jobs"
    if short := _too_small(plan, machines):
        yield path, "training-plan-unusable", f"{what} {short}"
    begin, longest = plan.get("StartTime"), subject.draft.get("StoppingCondition.MaxRuntimeInSeconds")
    if "EndTime" in plan and longest is not None:
        left = int((plan["EndTime"] - max(datetime.now(timezone.utc), begin or _LONG_AGO)).total_seconds())
        if left < longest:
            message = (
                f"{what} leaves the job {duration(max(left, 0))}, and the job may run for {duration(longest)};"
                " lower stopping_condition.max_runtime_in_seconds, write checkpoints, or name another plan"
            )
            yield path, "training-plan-ends", message
    if status == "Scheduled" and begin:
        subject.note(path, f"the plan begins at {begin:%Y-%m-%d %H:%M} UTC; until then the job is Pending")


def _too_small(plan: dict[str, Any], machines: Machines) -> str:
    """Return why a plan's instances do not suffice, and what to do; empty if they do."""
    reserved: dict[str, int] = {}
    for capacity in plan.get("ReservedCapacitySummaries", ()):
        kind = capacity.get("InstanceType", "")
        reserved[kind] = max(reserved.get(kind, 0), int(capacity.get("TotalInstanceCount", 0)))
    wanted, count = machines.instance_type, machines.instances
    if reserved and wanted not in reserved:
        shown = joined(sorted(reserved))
        return f"reserves {shown}, and the job asks for {wanted}; use a type of the plan, or name another plan"
    if reserved and reserved[wanted] < count:
        return f"reserves {reserved[wanted]} instances, and the job needs {count}; use fewer, or name another plan"
    return ""


CHECK = Check("training plans", _ask, _plans)
