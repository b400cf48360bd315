"""Training plans: whether each can be used now, is for training jobs of this type, and lasts long enough.

Source: developer guide, training-plan-details-using-api-cli-sdk (a job stays Pending until a Scheduled plan begins);
DescribeTrainingPlan in the service model.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from launcher.aws.account import AwsError
from launcher.console import duration
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.quota.machines import Machines, alternatives

_USABLE = ("Active", "Scheduled")
_TARGET = "training-job"


def plans_serve_the_job(subject: Subject) -> Iterator[Finding]:
    """Compare each plan with the machines it is for."""
    machines = [one for choice in alternatives(subject.draft) for one in choice]
    uses = [(one.path[:-1], (arn, one)) for one in machines for arn in one.plans]
    yield from subject.each(uses, lambda path, use: _judged(subject, path, *use))


def _judged(subject: Subject, above: SpecPath, arn: str, machines: Machines) -> Iterator[Finding]:
    is_own = "instance_preferences" in above
    path: SpecPath = (*above, "training_plan_arns") if is_own else ("resource_config", "training_plan_arn")
    name = arn.rpartition("/")[2]
    try:
        plan = subject.ask("sagemaker", "describe_training_plan", TrainingPlanName=name)
    except AwsError as error:
        if not error.is_missing:
            raise
        shown = "`aws sagemaker list-training-plans` lists the plans"
        yield path, "training-plan-missing", f"there is no training plan {name!r} in {subject.account.region}; {shown}"
        return
    status = plan.get("Status")
    if status not in _USABLE:
        yield (
            path,
            "training-plan-unusable",
            f"the training plan {name!r} is {status}; name one that is Active or Scheduled",
        )
        return
    if _TARGET not in plan.get("TargetResources", [_TARGET]):
        targets = joined(plan["TargetResources"])
        yield (
            path,
            "training-plan-unusable",
            f"the training plan {name!r} is only for {targets}; name one for training jobs",
        )
    yield from _too_small(path, name, plan, machines)
    yield from _too_short(subject, path, name, plan)
    if status == "Scheduled" and "StartTime" in plan:
        subject.note(path, f"the plan begins at {plan['StartTime']:%Y-%m-%d %H:%M} UTC; until then the job is Pending")


def _too_small(path: SpecPath, name: str, plan: dict[str, Any], machines: Machines) -> Iterator[Finding]:
    reserved: dict[str, int] = {}
    for capacity in plan.get("ReservedCapacitySummaries", ()):
        kind = capacity.get("InstanceType", "")
        reserved[kind] = max(reserved.get(kind, 0), int(capacity.get("TotalInstanceCount", 0)))
    wanted = machines.instance_type
    if reserved and wanted not in reserved:
        message = f"the training plan {name!r} reserves {joined(sorted(reserved))}, and the job asks for {wanted}"
        yield path, "training-plan-unusable", f"{message}; use a type of the plan, or name another plan"
    elif reserved and reserved[wanted] < machines.instances:
        message = (
            f"the training plan {name!r} reserves {reserved[wanted]} instances, and the job needs {machines.instances}"
        )
        yield path, "training-plan-unusable", f"{message}; use fewer, or name another plan"


def _too_short(subject: Subject, path: SpecPath, name: str, plan: dict[str, Any]) -> Iterator[Finding]:
    longest = subject.draft.get("StoppingCondition.MaxRuntimeInSeconds")
    if "EndTime" not in plan or longest is None:
        return
    begin = max(datetime.now(timezone.utc), plan.get("StartTime", datetime.min.replace(tzinfo=timezone.utc)))
    left = int((plan["EndTime"] - begin).total_seconds())
    if left < longest:
        message = (
            f"the training plan {name!r} leaves the job {duration(max(left, 0))}, and the job may run for"
            f" {duration(longest)}; lower stopping_condition.max_runtime_in_seconds, write checkpoints, or name another plan"
        )
        yield path, "training-plan-ends", message


CHECK = Check(
    "training plans",
    "Can the job run on the training plans that the spec names?",
    plans_serve_the_job,
    {
        "training-plan-missing": ("error", "There is no training plan of this name in the job's region."),
        "training-plan-unusable": (
            "error",
            "A training plan has ended, is not for training jobs, or does not reserve the instances that the job asks for.",
        ),
        "training-plan-ends": (
            "warning",
            "A training plan may end before the job does: the job is then stopped.",
        ),
    },
)
