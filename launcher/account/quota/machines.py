"""The machines that a job asks for, as quotas and subnets count them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from launcher.errors import SpecPath
from launcher.request.view import Draft

# Elastic Fabric Adapters: developer guide, train-vpc (addresses per instance), and EC2's list of types with EFA whose
# training images use it.
_EFA = re.compile(r"ml\.(p3dn|p4de?|p5(e|en)?\.48xlarge|p6[a-z]*-[a-z0-9]+|trn1n?\.32xlarge|trn2[a-z]*)(\..*)?")


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
