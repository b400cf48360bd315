"""The machines that a job asks for, as quotas and subnets count them, and the training plans that reserve them.

Source on plans: developer guide, training-plan-details-using-api-cli-sdk (a job stays Pending until a Scheduled plan begins);
DescribeTrainingPlan in the service model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from launcher.account.check import Subject, joined
from launcher.console import duration
from launcher.errors import Problem, SpecPath
from launcher.request.view import Draft

# Elastic Fabric Adapters: developer guide, train-vpc (addresses per instance), and EC2's list of types with EFA whose
# training images use it.
_EFA = re.compile(r"ml\.(p3dn|p4de?|p5(e|en)?\.48xlarge|p6[a-z]*-[a-z0-9]+|trn1n?\.32xlarge|trn2[a-z]*)(\..*)?")
_USABLE = ("Active", "Scheduled")
_TARGET = "training-job"


class Machines(NamedTuple):
    """Instances of one type, with the path in the spec that asks for them."""

    path: SpecPath
    instance_type: str
    instances: int
    plans: tuple[str, ...] = ()  # the ARNs of the training plans that reserve them

    @property
    def has_efa(self) -> bool:
        """Whether the instances communicate through Elastic Fabric Adapters."""
        return _EFA.fullmatch(self.instance_type) is not None

    @property
    def addresses(self) -> int:
        """The free addresses that a subnet needs: 2 per instance, 5 with EFA."""
        return self.instances * (5 if self.has_efa else 2)


def alternatives(draft: Draft) -> list[list[Machines]]:
    """Return the sets of machines that the job may run on: one of them. Instance groups are all needed, so they are one set."""
    resources = draft.get("ResourceConfig") or {}
    above: SpecPath = ("resource_config",)
    common = {name: resources[name] for name in ("InstanceCount", "TrainingPlanArn") if name in resources}

    def listed(key: str, entries: Any) -> list[Machines]:
        found = [_machines((*above, key, index), {**common, **each}) for index, each in enumerate(entries)]
        return [each for each in found if each is not None]

    if draft.groups:
        return [listed("instance_groups", draft.groups)]
    preferred = listed("instance_preferences", resources.get("InstancePreferences", ()))
    one = _machines(above, resources)
    return [[each] for each in (*([one] if one else ()), *preferred)]


def _machines(path: SpecPath, resources: Mapping[str, Any]) -> Machines | None:
    name, count = resources.get("InstanceType"), resources.get("InstanceCount")
    if not isinstance(name, str) or not isinstance(count, int):
        return None
    plans = resources.get("TrainingPlanArns") or [arn for arn in (resources.get("TrainingPlanArn"),) if arn]
    return Machines((*path, "instance_type"), name, count, tuple(plans))


def plans_named(subject: Subject) -> Iterator[tuple[SpecPath, tuple[str, Machines]]]:
    """Yield the ARN of each training plan with the machines that it reserves."""
    for machines in [each for choice in alternatives(subject.draft) for each in choice]:
        above = machines.path[:-1]
        is_own = "instance_preferences" in above
        path = (*above, "training_plan_arns") if is_own else ("resource_config", "training_plan_arn")
        yield from ((path, (arn, machines)) for arn in machines.plans)


def training_plans(subject: Subject, path: SpecPath, use: tuple[str, Machines]) -> Iterator[Problem]:
    """Can the job run on the training plans that the spec names?"""
    arn, machines = use
    name = arn.rpartition("/")[2]
    plan = subject.find("sagemaker", "describe_training_plan", TrainingPlanName=name)
    if plan is None:
        where = f"there is no training plan {name!r} in {subject.account.region}"
        remedy = f"`aws sagemaker list-training-plans{subject.account.options}` lists the plans"
        yield Problem(path, f"{where}; {remedy}", "training-plan-missing")
        return
    if wrong := _unusable(plan, machines):
        yield Problem(path, f"the training plan {name!r} {wrong}", "training-plan-unusable")
    if plan.get("Status") not in _USABLE:
        return
    now = datetime.now(timezone.utc)
    begin, longest = plan.get("StartTime", now), subject.draft.get("StoppingCondition.MaxRuntimeInSeconds")
    left = int((plan["EndTime"] - max(now, begin)).total_seconds()) if "EndTime" in plan else None
    if left is not None and longest is not None and left < longest:
        message = (
            f"the training plan {name!r} leaves the job {duration(max(left, 0))}, and the job may run for {duration(longest)};"
            " lower stopping_condition.max_runtime_in_seconds, write checkpoints, or name another plan"
        )
        yield Problem(path, message, "training-plan-ends")
    if plan["Status"] == "Scheduled" and "StartTime" in plan:
        subject.note(path, f"the plan begins at {begin:%Y-%m-%d %H:%M} UTC; until then the job is Pending")


def _unusable(plan: Mapping[str, Any], machines: Machines) -> str:
    """Return why the job cannot run on a plan, and what to do; empty if it can."""
    if plan.get("Status") not in _USABLE:
        return f"is {plan.get('Status')}; name one that is Active or Scheduled"
    targets = plan.get("TargetResources", [_TARGET])
    if _TARGET not in targets:
        return f"is only for {joined(targets)}; name one for training jobs"
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
