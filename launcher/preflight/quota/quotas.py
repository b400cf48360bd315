"""Quotas: how many instances of each type the account may have, for training, on spot, kept warm, and for rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.quota.machines import alternatives, debugger_rules
from launcher.preflight.quota.service_quotas import values

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


def _ask(subject: Subject) -> Iterator[Finding]:
    """Compare the quotas with what the job needs, for its machines and its rules.

    AWS checks the quota of each type in a list of preferences, and refuses the job if one of them is too small. Without the quota
    of a warm pool the job runs, but its machines are not kept (developer guide, train-warm-pools-resource-limits).
    """
    wanted, warm = wanted_instances(subject), []
    if subject.draft.get("ResourceConfig.KeepAlivePeriodInSeconds"):
        warm = [each._replace(usage="training warm pool usage") for each in wanted]
    # Rules that name an instance type run as processing jobs, others on AWS's machines.
    wanted += _added_up(
        [
            _Wanted((*path, "instance_type"), rule["InstanceType"], "processing job usage", 1)
            for path, rule in debugger_rules(subject.draft)
            if rule.get("InstanceType")
        ]
    )
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


CHECK = Check(
    "quotas",
    "Do the account's quotas suffice for the job?",
    _ask,
    errors={"quota-exceeded": "The account's quota is smaller than the job needs; AWS refuses the job, or its rules."},
    warnings={
        "warm-pool-quota": "Without a quota for warm pools, which is 0 at first, no machine is kept for the next job.",
    },
)
