"""Quotas: how many instances of each type the account may have, for training, on spot, kept warm, and for rules.

Service Quotas cannot look up a quota by name, and SageMaker has two thousand, 100 per page. So quota codes, which are the same
everywhere, come from a table (launcher/data/quota_codes.json), and each is asked about alone. Quotas that the table lacks, or
whose answer has another name than expected, are searched for in the pages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from launcher.account.check import Check, Finding, Subject
from launcher.account.quota.machines import alternatives
from launcher.aws.threads import concurrently
from launcher.errors import SpecPath
from launcher.request.instance_types import instance_type as facts_of
from launcher.request.view import RULE_LISTS

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


class _Wanted(NamedTuple):
    """Instances of one type that count towards one quota."""

    path: SpecPath
    instance_type: str
    usage: str  # `training job usage`
    instances: int

    @property
    def quota(self) -> str:
        """The quota's name in Service Quotas and in CreateTrainingJob's refusal."""
        return f"{self.instance_type} for {self.usage}"


def _ask_size(subject: Subject) -> Iterator[Finding]:
    """Compare the quotas with what the job needs, for its machines and its rules.

    AWS checks the quota of each type in a list of preferences, and refuses the job if one of them is too small. Without the quota
    of a warm pool the job runs, but its machines are not kept (developer guide, train-warm-pools-resource-limits).
    """
    wanted, warm = wanted_instances(subject), []
    if subject.draft.get("ResourceConfig.KeepAlivePeriodInSeconds"):
        warm = [each._replace(usage="training warm pool usage") for each in wanted]
    # Rules that name an instance type run as processing jobs, others on AWS's machines.
    rules = subject.draft.each(*(f"{rules}.InstanceType" for rules in RULE_LISTS))
    wanted += _added_up([_Wanted(path, name, "processing job usage", 1) for path, name in rules if name])
    quotas = values(subject, {each.quota for each in (*warm, *wanted)})
    for each in wanted:
        if quotas.get(each.quota, each.instances) < each.instances:
            short = f"the quota {each.quota!r} is {quotas[each.quota]} in {subject.account.region}"
            message = f"{short}, and the job needs {each.instances}; {_MORE}, or use another type"
            yield each.path, "quota-exceeded", message
    for each in warm:
        if quotas.get(each.quota, each.instances) < each.instances:
            short = f"the quota {each.quota!r} is {quotas[each.quota]}, and the job has {each.instances}, so none is kept warm"
            yield _KEEP_ALIVE, "warm-pool-quota", f"{short}; {_MORE}, or delete the key"
    limits = list(_limits(subject))
    known = _by_codes(subject, {name for _, name, _, _ in limits})
    for path, name, needed, unit in limits:
        if known.get(name, needed) < needed:
            short = f"the quota {name!r} is {known[name]:,}{unit} in {subject.account.region}"
            yield path, "quota-exceeded", f"{short}, and the job asks for {needed:,}{unit}; {_MORE}, or ask for less"


def _limits(subject: Subject) -> Iterator[tuple[SpecPath, str, int, str]]:
    """Yield what the job needs of quotas that are not for one instance type: path, name of the quota, number and unit."""
    draft, kind = subject.draft, "spot training job" if subject.draft.is_spot else "training job"
    if seconds := draft.get("StoppingCondition.MaxRuntimeInSeconds"):
        yield ("stopping_condition", "max_runtime_in_seconds"), "Longest run time for a training job", seconds, " s"
    choices = alternatives(draft)
    has_volume = any(facts_of(each.instance_type).storage != "NVMe" for choice in choices for each in choice)
    if has_volume and (size := draft.get("ResourceConfig.VolumeSizeInGB")):
        yield ("resource_config", "volume_size_in_gb"), "Size of EBS volume for a training job instance", size, " GB"
    if instances := max((sum(each.instances for each in choice if not each.plans) for choice in choices), default=0):
        has_count = draft.get("ResourceConfig.InstanceCount") is not None
        path: SpecPath = ("resource_config", "instance_count") if has_count else ("resource_config",)
        yield path, f"Maximum number of instances per {kind}", instances, ""
        yield path, f"{_TOTAL} {kind}s", instances, ""


def wanted_instances(subject: Subject) -> list[_Wanted]:
    """Return what the job's machines need; reserved machines count towards other quotas."""
    usage = "spot training job usage" if subject.draft.is_spot else "training job usage"
    machines = [each for choice in alternatives(subject.draft) for each in choice if not each.plans]
    return _added_up([_Wanted(each.path, each.instance_type, usage, each.instances) for each in machines])


def _added_up(wanted: list[_Wanted]) -> list[_Wanted]:
    """Return one entry per quota, with the path of the first."""
    sums: dict[str, _Wanted] = {}
    for each in wanted:
        before = sums.get(each.quota)
        sums[each.quota] = each if before is None else before._replace(instances=before.instances + each.instances)
    return list(sums.values())


CHECK = Check("quotas", _ask_size)


def _ask_rest(subject: Subject) -> Iterator[Finding]:
    wanted = [(each.path, each.quota, each.instances) for each in wanted_instances(subject)]
    totals = [(path, name, needed) for path, name, needed, _ in _limits(subject) if name.startswith(_TOTAL)]
    quotas = values(subject, {name for _, name, _ in wanted}) | _by_codes(subject, {name for _, name, _ in totals})
    held = _instances_in_use(subject) if quotas else {}
    for path, name, needed in (*wanted, *totals):
        quota, used = quotas.get(name, -1), held.get(name, 0)
        if needed <= quota < needed + used:
            message = (
                f"the quota {name!r} is {quota}, of which running jobs use {used}, and the job needs {needed}; AWS refuses it"
                " until they end, so wait or stop one"
            )
            yield path, "quota-in-use", message


def _instances_in_use(subject: Subject) -> dict[str, int]:
    """Return the instances of training jobs in progress by quota, from the 100 newest jobs. Raises AwsError."""
    in_progress = {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "InProgress"}
    search = {"Resource": "TrainingJob", "MaxResults": 100, "SearchExpression": {"Filters": [in_progress]}}
    held: Counter[str] = Counter()
    for result in subject.ask("sagemaker", "search", **search).get("Results", ()):
        job = result.get("TrainingJob", {})
        kind = "spot training job" if job.get("EnableManagedSpotTraining") else "training job"
        resources = job.get("ResourceConfig", {})
        for each in (resources, *resources.get("InstanceGroups", ())):
            if job.get("TrainingJobStatus") == "InProgress" and each.get("InstanceType"):
                held[f"{each['InstanceType']} for {kind} usage"] += int(each.get("InstanceCount", 0))
                held[f"{_TOTAL} {kind}s"] += int(each.get("InstanceCount", 0))
    return held


IN_USE = Check("quotas in use", _ask_rest)


USES = ("training job usage", "spot training job usage", "training warm pool usage", "processing job usage")
_TABLE = Path(__file__).parents[2] / "data" / "quota_codes.json"
_SERVICE = {"ServiceCode": "sagemaker"}


def values(subject: Subject, names: Iterable[str]) -> dict[str, int]:
    """Return the quotas' values by name, such as `ml.g5.xlarge for training job usage`; unknown ones are absent.

    A quota that was never changed and that AWS does not list has its default value, which is not known.

    Raises:
        AwsError: Service Quotas does not answer.
    """
    wanted = set(names)
    found = _by_codes(subject, wanted)
    token: dict[str, str] = {}
    while not wanted <= found.keys():
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
    """Return the values of the quotas whose codes are known, by name. Raises AwsError if the credentials are not accepted."""
    answers = concurrently(lambda name: _by_code(subject, name), list(names))
    return {name: value for name, answer in answers if (value := answer.result()) is not None}


def _by_code(subject: Subject, name: str) -> int | None:
    """Return a quota's value by its code, if the code still has this name; else the pages may contain it, or show why not."""
    code = codes().get(name)
    quota = subject.try_to_ask("service-quotas", "get_service_quota", QuotaCode=code, **_SERVICE) if code else {}
    quota = quota.get("Quota", {})
    return int(quota["Value"]) if quota.get("QuotaName") == name and "Value" in quota else None
