"""Quotas that running jobs use up."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.quota.quotas import Wanted, wanted_instances
from launcher.preflight.quota.service_quotas import values


def quotas_are_free(subject: Subject) -> Iterator[Finding]:
    """Count what running jobs use of the quotas. Raises AwsError."""
    wanted = wanted_instances(subject)
    if not wanted:
        return
    quotas = values(subject, {each.quota for each in wanted})
    held = _held(subject) if quotas else {}
    for each in [each for each in wanted if _is_taken(each, quotas, held)]:
        yield (
            each.path,
            "quota-in-use",
            f"the quota {each.quota!r} is {quotas[each.quota]}, of which running jobs use {held[each.quota]}, and the job needs"
            f" {each.instances}; AWS refuses it until they end, so wait or stop one",
        )


def _is_taken(wanted: Wanted, quotas: dict[str, int], held: dict[str, int]) -> bool:
    quota = quotas.get(wanted.quota)
    return quota is not None and wanted.instances <= quota < wanted.instances + held.get(wanted.quota, 0)


def _held(subject: Subject) -> dict[str, int]:
    """Return the instances of training jobs in progress by quota, from the 100 newest jobs. Raises AwsError."""
    answer = subject.ask(
        "sagemaker",
        "search",
        Resource="TrainingJob",
        MaxResults=100,
        SearchExpression={"Filters": [{"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "InProgress"}]},
    )
    held: dict[str, int] = {}
    for result in answer.get("Results", ()):
        job = result.get("TrainingJob", {})
        usage = "spot training job usage" if job.get("EnableManagedSpotTraining") else "training job usage"
        resources = job.get("ResourceConfig", {})
        for each in (resources, *resources.get("InstanceGroups", ())):
            if job.get("TrainingJobStatus") == "InProgress" and each.get("InstanceType"):
                quota = f"{each['InstanceType']} for {usage}"
                held[quota] = held.get(quota, 0) + int(each.get("InstanceCount", 0))
    return held


CHECK = Check(
    "quotas in use",
    "Do running jobs leave enough of the quotas?",
    quotas_are_free,
    {"quota-in-use": ("warning", "Running jobs use up the quota; AWS refuses the job until they end.")},
)
