"""The machines that a job asks for, and whether the account's quotas and the training plans provide them.

Service Quotas cannot look up a quota by name, and SageMaker has two thousand, 100 per page. So quota codes, which are the same
everywhere, come from a table (launcher/data/quota_codes.json), and each is asked about alone. Quotas that the table lacks, or
whose answer has another name than expected, are searched for in the pages.

Source on plans: developer guide, training-plan-details-using-api-cli-sdk (a job stays Pending until a Scheduled plan begins);
DescribeTrainingPlan in the service model.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from launcher.account.check import Subject, joined
from launcher.aws.threads import concurrently
from launcher.console import duration
from launcher.errors import Problem, SpecPath
from launcher.request.instance_types import instance_type as facts_of
from launcher.request.view import RULE_LISTS, Draft

USES = ("training job usage", "spot training job usage", "training warm pool usage", "processing job usage")
_TABLE = Path(__file__).parents[1] / "data" / "quota_codes.json"
_SERVICE = {"ServiceCode": "sagemaker"}
# Quotas of training jobs whatever their type. Not asked by pages, since a listing takes seconds.
_OF_JOBS = {
    "Longest run time for a training job": "L-33A961FD",
    "Size of EBS volume for a training job instance": "L-C5A266EB",
    "Maximum number of instances per training job": "L-622CFD70",
    "Maximum number of instances per spot training job": "L-DB62C864",
    "Number of instances across all training jobs": "L-00C91CB5",
    "Number of instances across all spot training jobs": "L-93958082",
}
_TOTAL = "Number of instances across all"
_KEEP_ALIVE: SpecPath = ("resource_config", "keep_alive_period_in_seconds")
_MORE = "request more in the Service Quotas console"
# Elastic Fabric Adapters: developer guide, train-vpc, and EC2's list of types with EFA whose training images use it.
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
        found = (_machines((*above, key, index), {**common, **each}) for index, each in enumerate(entries))
        return [each for each in found if each]

    if draft.groups:
        return [listed("instance_groups", draft.groups)]
    preferred = listed("instance_preferences", resources.get("InstancePreferences", ()))
    return [[each] for each in (_machines(above, resources), *preferred) if each]


def _machines(path: SpecPath, resources: Mapping[str, Any]) -> Machines | None:
    name, count = resources.get("InstanceType"), resources.get("InstanceCount")
    if not isinstance(name, str) or not isinstance(count, int):
        return None
    plans = resources.get("TrainingPlanArns") or [arn for arn in (resources.get("TrainingPlanArn"),) if arn]
    return Machines((*path, "instance_type"), name, count, tuple(plans))


def _kind(draft: Draft) -> str:
    return "spot training job" if draft.is_spot else "training job"


class _Wanted(NamedTuple):
    """What the job needs of one quota: its name in Service Quotas and in CreateTrainingJob's refusal, and an amount."""

    path: SpecPath
    quota: str
    amount: int
    unit: str = ""


def _of_machines(draft: Draft, usage: str) -> list[_Wanted]:
    """Return what the job's machines need of their types' quotas; reserved machines count towards other quotas."""
    machines = [each for choice in alternatives(draft) for each in choice if not each.plans]
    return _added_up([_Wanted(each.path, f"{each.instance_type} for {usage}", each.instances) for each in machines])


def _added_up(wanted: list[_Wanted]) -> list[_Wanted]:
    """Return one entry per quota, with the path of the first."""
    sums: dict[str, _Wanted] = {}
    for each in wanted:
        before = sums.get(each.quota)
        sums[each.quota] = each if before is None else before._replace(amount=before.amount + each.amount)
    return list(sums.values())


def _of_job(draft: Draft) -> Iterator[_Wanted]:
    """Yield what the job needs of quotas that are not for one instance type."""
    if seconds := draft.get("StoppingCondition.MaxRuntimeInSeconds"):
        path: SpecPath = ("stopping_condition", "max_runtime_in_seconds")
        yield _Wanted(path, "Longest run time for a training job", seconds, " s")
    choices = alternatives(draft)
    has_volume = any(facts_of(each.instance_type).storage != "NVMe" for choice in choices for each in choice)
    if has_volume and (size := draft.get("ResourceConfig.VolumeSizeInGB")):
        path = ("resource_config", "volume_size_in_gb")
        yield _Wanted(path, "Size of EBS volume for a training job instance", size, " GB")
    if instances := max((sum(each.instances for each in choice if not each.plans) for choice in choices), default=0):
        has_count = draft.get("ResourceConfig.InstanceCount") is not None
        path = ("resource_config", "instance_count") if has_count else ("resource_config",)
        yield _Wanted(path, f"Maximum number of instances per {_kind(draft)}", instances)
        yield _Wanted(path, f"{_TOTAL} {_kind(draft)}s", instances)


def quotas(subject: Subject) -> Iterator[Problem]:
    """Do the account's quotas suffice for the job?

    AWS checks the quota of each type in a list of preferences, and refuses the job if one of them is too small. Without the quota
    of a warm pool the job runs, but its machines are not kept (developer guide, train-warm-pools-resource-limits).
    """
    draft = subject.draft
    keeps = draft.get("ResourceConfig.KeepAlivePeriodInSeconds")
    warm = _of_machines(draft, "training warm pool usage") if keeps else []
    # Rules that name an instance type run as processing jobs, others on AWS's machines.
    rules = draft.each(*(f"{rules}.InstanceType" for rules in RULE_LISTS))
    wanted = _of_machines(draft, f"{_kind(draft)} usage")
    wanted += _added_up([_Wanted(path, f"{name} for processing job usage", 1) for path, name in rules if name])
    known = values(subject, {each.quota for each in (*warm, *wanted)})
    for path, name, amount, _ in wanted:
        if known.get(name, amount) < amount:
            short = f"the quota {name!r} is {known[name]} in {subject.account.region}"
            message = f"{short}, and the job needs {amount}; {_MORE}, or use another type"
            yield Problem(path, message, "quota-exceeded")
    for _, name, amount, _ in warm:
        if known.get(name, amount) < amount:
            short = f"the quota {name!r} is {known[name]}, and the job has {amount}, so none is kept warm"
            yield Problem(_KEEP_ALIVE, f"{short}; {_MORE}, or delete the key", "warm-pool-quota")
    of_job = list(_of_job(draft))
    known = _by_codes(subject, {each.quota for each in of_job})
    for path, name, amount, unit in of_job:
        if known.get(name, amount) < amount:
            short = f"the quota {name!r} is {known[name]:,}{unit} in {subject.account.region}"
            message = f"{short}, and the job asks for {amount:,}{unit}; {_MORE}, or ask for less"
            yield Problem(path, message, "quota-exceeded")


def quotas_in_use(subject: Subject) -> Iterator[Problem]:
    """Do running jobs leave enough of the quotas?"""
    wanted = _of_machines(subject.draft, f"{_kind(subject.draft)} usage")
    totals = [each for each in _of_job(subject.draft) if each.quota.startswith(_TOTAL)]
    known = values(subject, {each.quota for each in wanted}) | _by_codes(subject, {each.quota for each in totals})
    held = _instances_in_use(subject) if known else {}
    for path, name, amount, _ in (*wanted, *totals):
        quota, used = known.get(name, -1), held.get(name, 0)
        if amount <= quota < amount + used:
            message = (
                f"the quota {name!r} is {quota}, of which running jobs use {used}, and the job needs {amount}; AWS refuses it"
                " until they end, so wait or stop one"
            )
            yield Problem(path, message, "quota-in-use")


def _instances_in_use(subject: Subject) -> dict[str, int]:
    """Return the instances of training jobs in progress by quota, from the 100 newest jobs. Raises AwsError."""
    in_progress = {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "InProgress"}
    search = {"Resource": "TrainingJob", "MaxResults": 100, "SearchExpression": {"Filters": [in_progress]}}
    held: Counter[str] = Counter()
    for result in subject.ask("sagemaker", "search", **search).get("Results", ()):
        job = result.get("TrainingJob", {})
        kind = "spot training job" if job.get("EnableManagedSpotTraining") else "training job"
        resources = job.get("ResourceConfig", {}) if job.get("TrainingJobStatus") == "InProgress" else {}
        for each in (resources, *resources.get("InstanceGroups", ())):
            if each.get("InstanceType"):
                held[f"{each['InstanceType']} for {kind} usage"] += int(each.get("InstanceCount", 0))
                held[f"{_TOTAL} {kind}s"] += int(each.get("InstanceCount", 0))
    return held


def values(subject: Subject, names: Iterable[str]) -> dict[str, int]:
    """Return the quotas' values by name, such as `ml.g5.xlarge for training job usage`; unknown ones are absent.

    A quota that was never changed and that AWS does not list has its default value, which is not known. Raises AwsError if
    Service Quotas does not answer.
    """
    wanted = set(names)
    found = _by_codes(subject, wanted)
    token: dict[str, str] = {}
    while wanted - found.keys():
        page = subject.ask("service-quotas", "list_service_quotas", MaxResults=100, **_SERVICE, **token)
        for quota in page.get("Quotas", ()):
            if quota.get("QuotaName") in wanted and "Value" in quota:
                found.setdefault(quota["QuotaName"], int(quota["Value"]))
        if not page.get("NextToken"):
            break
        token = {"NextToken": page["NextToken"]}
    return found


@cache
def codes() -> dict[str, str]:
    """Return the quota codes by name."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))["codes"]
    return _OF_JOBS | {
        f"{instance_type} for {use}": f"L-{code}"
        for instance_type, known in table.items()
        for use, code in zip(USES, known, strict=True)
        if code is not None
    }


def _by_codes(subject: Subject, names: Iterable[str]) -> dict[str, int]:
    """Return the values of quotas whose code is known and still has this name. Raises AwsError if there are no credentials."""
    known = {codes()[name]: name for name in names if name in codes()}
    ask = partial(subject.try_to_ask, "service-quotas", "get_service_quota", **_SERVICE)
    answers = concurrently(lambda code: ask(QuotaCode=code).get("Quota", {}), list(known))
    found = {known[code]: answer.result() for code, answer in answers}
    return {
        name: int(quota["Value"])
        for name, quota in found.items()
        if quota.get("QuotaName") == name and "Value" in quota
    }


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
    left = int((plan["EndTime"] - max(now, begin)).total_seconds()) if "EndTime" in plan else longest
    if longest is not None and left < longest:
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
