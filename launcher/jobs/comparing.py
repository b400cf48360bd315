"""What would differ between a plan and a job that ran: `launch diff job.yaml NAME`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launcher.aws.masking import HIDDEN, settings_to_hide
from launcher.errors import SpecPath, dotted
from launcher.planning import Plan
from launcher.request.aws_model import shapes
from launcher.request.forms import find_request

_ABSENT = object()
# What DescribeTrainingJob tells where the request said nothing: by the last two steps of a member's path, channels by `*`.
_DEFAULTS: dict[tuple[str, str], Any] = {
    ("", "EnableNetworkIsolation"): False,
    ("", "EnableInterContainerTrafficEncryption"): False,
    ("", "EnableManagedSpotTraining"): False,
    ("*", "CompressionType"): "None",
    ("*", "RecordWrapperType"): "None",
    ("OutputDataConfig", "KmsKeyId"): "",
    ("OutputDataConfig", "CompressionType"): "GZIP",
    ("StoppingCondition", "MaxRuntimeInSeconds"): 86400,
}
# What the lists of a request are lists of is told by these members, so that an order that changed is no difference.
_NAMED_BY = ("ChannelName", "Key", "Name", "RuleConfigurationName", "InstanceGroupName")


@dataclass(frozen=True)
class Difference:
    """One member that is not the same: in the job that ran, and in the plan; None where it is absent."""

    path: SpecPath
    job: str | None
    plan: str | None

    def as_data(self) -> dict[str, Any]:
        """The same for `--json`."""
        return {"path": dotted(self.path), "job": self.job, "plan": self.plan}


def differences(
    plan: Plan, description: Mapping[str, Any], tags: list[dict[str, str]] | None, *, show_secrets: bool = False
) -> list[Difference]:
    """Every difference between what the plan asks for and what a job had asked for; their names do not count.

    Where `tags` are None, which means unknown, they are not compared. All is compared by value, but settings of the plan
    that name environment variables are shown as written, and what may be a secret of the job's as ***.
    """
    told = shapes()["DescribeTrainingJobResponse"]["members"].keys() | {"Tags"}
    ran = find_request(dict(description)).request
    asked = {member: value for member, value in plan.request.items() if member in told}
    if tags:
        ran["Tags"] = tags
    elif tags is None:
        asked.pop("Tags", None)
    of_job = {} if show_secrets else dict.fromkeys(settings_to_hide(description), HIDDEN)
    of_plan = {} if show_secrets else plan.spec.masked
    return [
        Difference(path, _shown(path, before, of_job), _shown(path, after, of_plan))
        for path, before, after in _walk(ran, asked, ())
        if path != ("TrainingJobName",)
    ]


def _walk(before: Any, after: Any, path: SpecPath) -> Iterator[tuple[SpecPath, Any, Any]]:
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _walk(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
    elif before != after and not _is_default(path, before, after):
        yield path, before, after


def _is_default(path: SpecPath, before: Any, after: Any) -> bool:
    """Whether one side says what the other's silence means."""
    if before is not _ABSENT and after is not _ABSENT:
        return False
    said = after if before is _ABSENT else before
    above = "" if len(path) == 1 else "*" if path[0] == "InputDataConfig" and len(path) == 3 else str(path[-2])
    known = _DEFAULTS.get((above, str(path[-1])), _ABSENT)
    return said in ({}, []) or (known is not _ABSENT and bool(said == known))


def _by_name(value: Any) -> Any:
    """A list of things with names as a mapping of them."""
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        return value
    member = next((name for name in _NAMED_BY if all(name in item for item in value)), None)
    if member is None:
        return value
    named = {item[member]: {key: each for key, each in item.items() if key != member} for item in value}
    return named if len(named) == len(value) else value


def _shown(path: SpecPath, value: Any, hidden: Mapping[tuple[str, str], str]) -> str | None:
    """The value for people; what stands for a hidden one stands alone, or in its place in the settings as a whole."""
    if value is _ABSENT:
        return None
    if len(path) == 2 and (instead := hidden.get((str(path[0]), str(path[1])))) is not None:
        return instead
    if len(path) == 1 and isinstance(value, Mapping):
        value = {key: hidden.get((str(path[0]), str(key)), item) for key, item in value.items()}
    return json.dumps(value, ensure_ascii=False, default=str)
