"""Quotas: how many instances of each type the account may have, for training, on spot, kept warm, and for rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.quota.machines import alternatives
from launcher.preflight.quota.service_quotas import values

_LISTS = (
    ("debug_rule_configurations", "DebugRuleConfigurations"),
    ("profiler_rule_configurations", "ProfilerRuleConfigurations"),
)
_KEEP_ALIVE: SpecPath = ("resource_config", "keep_alive_period_in_seconds")


class Wanted(NamedTuple):
    """Instances of one type that count towards one quota."""

    path: SpecPath
    instance_type: str
    usage: str  # `training job usage`
    instances: int

    @property
    def quota(self) -> str:
        """The quota's name, as Service Quotas and CreateTrainingJob's refusal have it."""
        return f"{self.instance_type} for {self.usage}"


def quotas_suffice(subject: Subject) -> Iterator[Found]:
    """Compare the quotas with what the job needs, all of its machines and its rules'. Raises AwsError.

    AWS checks the quota of each type in a list of preferences, and refuses the job if one of them falls short.
    """
    wanted, rules = wanted_instances(subject), _wanted_by_rules(subject)
    names = {each.quota for each in (*rules, *_kept_warm(subject), *wanted)}
    if not names:
        return
    quotas = values(subject, names)
    for each in (*wanted, *rules):
        if quotas.get(each.quota, each.instances) >= each.instances:
            continue
        told = f"the quota {each.quota!r} is {quotas[each.quota]} in {subject.account.region}, and the job needs {each.instances}"
        yield each.path, "quota-exceeded", f"{told}; ask for more in the console of Service Quotas, or use another type"
    for each in _kept_warm(subject):
        if quotas.get(each.quota, each.instances) < each.instances:
            told = f"the quota {each.quota!r} is {quotas[each.quota]}, and the job has {each.instances}, so none is kept warm"
            yield (
                _KEEP_ALIVE,
                "warm-pool-quota",
                f"{told}; ask for more in the console of Service Quotas, or delete the key",
            )


def wanted_instances(subject: Subject) -> list[Wanted]:
    """What the job's machines need; none for reserved ones, which have quotas of their own."""
    usage = "spot training job usage" if subject.draft.is_spot else "training job usage"
    machines = [each for choice in alternatives(subject.draft) for each in choice if not each.plans]
    return _added_up([Wanted(each.path, each.instance_type, usage, each.instances) for each in machines])


def _kept_warm(subject: Subject) -> list[Wanted]:
    """What a warm pool needs besides: without the quota the job runs, but its machines are not kept.

    Source: developer guide, train-warm-pools-resource-limits.
    """
    if not subject.draft.get("ResourceConfig.KeepAlivePeriodInSeconds"):
        return []
    return [wanted._replace(usage="training warm pool usage") for wanted in wanted_instances(subject)]


def _wanted_by_rules(subject: Subject) -> list[Wanted]:
    """Rules that name an instance type run as processing jobs; AWS's own machines run the others."""
    said = []
    for key, member in _LISTS:
        for index, rule in enumerate(subject.draft.request.get(member, ())):
            if rule.get("InstanceType"):
                said.append(Wanted((key, index, "instance_type"), rule["InstanceType"], "processing job usage", 1))
    return _added_up(said)


def _added_up(wanted: list[Wanted]) -> list[Wanted]:
    """One for each quota, at the place of the first."""
    sums: dict[str, Wanted] = {}
    for each in wanted:
        before = sums.get(each.quota)
        sums[each.quota] = each if before is None else before._replace(instances=before.instances + each.instances)
    return list(sums.values())


CHECK = Check(
    "quotas",
    quotas_suffice,
    {
        "quota-exceeded": (
            "error",
            "The account's quota is less than the job needs; AWS refuses it, or its rules.",
        ),
        "warm-pool-quota": (
            "warning",
            "Without a quota for warm pools, which is 0 at first, no machine is kept for the next job.",
        ),
    },
)
