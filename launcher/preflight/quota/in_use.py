"""Quotas that running jobs use up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.quota.quotas import wanted_instances
from launcher.preflight.quota.service_quotas import values


def _ask(subject: Subject) -> Iterator[Finding]:
    wanted = wanted_instances(subject)
    quotas = values(subject, {each.quota for each in wanted})
    held = _instances_in_use(subject) if quotas else {}
    for each in wanted:
        quota, used = quotas.get(each.quota, -1), held.get(each.quota, 0)
        if each.instances <= quota < each.instances + used:
            message = (
                f"the quota {each.quota!r} is {quota}, of which running jobs use {used}, and the job needs {each.instances}; AWS"
                " refuses it until they end, so wait or stop one"
            )
            yield each.path, "quota-in-use", message


def _instances_in_use(subject: Subject) -> dict[str, int]:
    """Return the instances of training jobs in progress by quota, from the 100 newest jobs. Raises AwsError."""
    in_progress = {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "InProgress"}
    search = {"Resource": "TrainingJob", "MaxResults": 100, "SearchExpression": {"Filters": [in_progress]}}
    held: Counter[str] = Counter()
    for result in subject.ask("sagemaker", "search", **search).get("Results", ()):
        job = result.get("TrainingJob", {})
        usage = "spot training job usage" if job.get("EnableManagedSpotTraining") else "training job usage"
        resources = job.get("ResourceConfig", {})
        for each in (resources, *resources.get("InstanceGroups", ())):
            if job.get("TrainingJobStatus") == "InProgress" and each.get("InstanceType"):
                held[f"{each['InstanceType']} for {usage}"] += int(each.get("InstanceCount", 0))
    return held


CHECK = Check(
    "quotas in use",
    "Do running jobs leave enough of the quotas?",
    _ask,
    warnings={"quota-in-use": "Running jobs use up the quota; AWS refuses the job until they end."},
)
