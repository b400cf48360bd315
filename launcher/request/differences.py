"""How two requests differ, member by member, such as that of a past job and that of a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.console import json_text
from launcher.errors import SpecPath
from launcher.masking import settings_to_hide
from launcher.request.forms import find_request
from launcher.request.masked_members import with_members
from sagemaker_channels.mask import HIDDEN

_ABSENT = object()
# What DescribeTrainingJob returns for members missing from the request, by the last two steps of their path; `*` is a channel.
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
# The members that name the items of a list, so that another order is not a difference.
_NAMED_BY = ("ChannelName", "Key", "Name", "RuleConfigurationName", "InstanceGroupName")


def ran_request(
    description: Mapping[str, Any], tags: list[dict[str, str]] | None, *, show_secrets: bool = False
) -> tuple[dict[str, Any], Any]:
    """Return a job's request without its name, and as it is shown: with *** for possible secrets, unless `show_secrets`."""
    ran = find_request(dict(description)).request
    ran.pop("TrainingJobName", None)
    if tags:
        ran["Tags"] = tags
    hidden: dict[SpecPath, str] = dict.fromkeys(() if show_secrets else settings_to_hide(description), HIDDEN)
    return ran, with_members(ran, hidden)


def shown_value(path: SpecPath, request: Any, shown: Any) -> Any:
    """Return the value of a request at a path of `differences`, as `shown` shows it; None if it is absent."""
    is_absent = _at(path, request, _ABSENT) is _ABSENT
    return None if is_absent else _at(path, shown, HIDDEN)  # a masked name leads nowhere


def differences(before: Any, after: Any, path: SpecPath = ()) -> Iterator[SpecPath]:
    """Yield the members of two requests that differ; defaults of AWS are no difference."""
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from differences(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
    elif before != after and not _is_default(path, before, after):
        yield path


def _is_default(path: SpecPath, before: Any, after: Any) -> bool:
    """Return whether one side is AWS's default, and the other side absent."""
    if before is not _ABSENT and after is not _ABSENT:
        return False
    present = after if before is _ABSENT else before
    above = "" if len(path) == 1 else "*" if path[0] == "InputDataConfig" else str(path[-2])
    known = _DEFAULTS.get((above, str(path[-1])), _ABSENT)
    return present in ({}, []) or (known is not _ABSENT and bool(present == known))


def _by_name(value: Any) -> Any:
    """Return a list of items with names as a mapping by name; other values as they are."""
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        return value
    member = next((name for name in _NAMED_BY if all(name in item for item in value)), None)
    if member is None:
        return value
    named = {item[member]: {key: each for key, each in item.items() if key != member} for item in value}
    return named if len(named) == len(value) else value


def as_text(value: Any) -> str:
    return HIDDEN if value == HIDDEN else json_text(value, default=str)


def _at(path: SpecPath, value: Any, absent: Any) -> Any:
    for name in path:
        value = _by_name(value)
        value = value.get(name, absent) if isinstance(value, Mapping) else absent
    return _by_name(value)
