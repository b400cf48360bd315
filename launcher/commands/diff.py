"""`launch diff SPEC NAME`: the differences between a spec and an earlier job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.commands import options
from launcher.console import counted, json_text, print_line, say
from launcher.errors import SpecPath, dotted
from launcher.jobs.lookup import describe, tags_of
from launcher.masking import settings_to_hide
from launcher.request.forms import find_request
from launcher.request.masked_members import with_members
from launcher.spec.aws_model import shapes
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


@options.command("diff", "diff job.yaml digits-1")
@options.spec_argument
@options.job_argument
@options.secrets_option
@options.spec_options
@options.json_option
def diff(spec: str, name: str, show_secrets: bool, reading: options.SpecOptions, as_json: bool) -> None:
    """Show the differences between a spec and an earlier job.

    The request of SPEC is compared with that of the training job NAME, member by member: `-` is the job's value, `+` the spec's.
    The job's environment and hyperparameters named like secrets (token, key, password) are shown as ***, unless you pass
    --show-secrets. The exit code is 0 also if there are differences.
    """
    plan = reading.plan(spec)
    account = options.open_account(plan.spec.region, plan.spec.profile)
    job = describe(account, name)
    tags = tags_of(account, job, lambda text: say(f"warning: {text}; they are not compared", "yellow"))
    described = shapes()["DescribeTrainingJobResponse"]["members"].keys() | ({"Tags"} if tags is not None else set())
    ran, shown_ran = ran_request(job, tags, show_secrets=show_secrets)
    asked = {member: value for member, value in plan.request.items() if member in described - {"TrainingJobName"}}
    # The values are compared, and shown as the spec writes them; possible secrets of the job as ***.
    shown_asked = asked if show_secrets else plan.masked_request()
    found = [
        (path, _shown(path, before, shown_ran), _shown(path, after, shown_asked))
        for path, before, after in differences(ran, asked)
    ]
    if as_json:
        options.print_json([{"path": dotted(path), "job": before, "plan": after} for path, before, after in found])
        return
    for path, before, after in found:
        print_line(f"{dotted(path)}:")
        if before is not None:
            print_line(f"  - {as_text(before)}", "red")
        if after is not None:
            print_line(f"  + {as_text(after)}", "green")
    count = counted(len(found), "difference") if found else "no differences"
    say(f"{count} between {spec} and {name}")


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
    return _shown(path, _at(path, request, _ABSENT), shown)


def differences(before: Any, after: Any, path: SpecPath = ()) -> Iterator[tuple[SpecPath, Any, Any]]:
    """Yield the members of two requests that differ, with both values; defaults of AWS are no difference."""
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from differences(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
    elif before != after and not _is_default(path, before, after):
        yield path, before, after


def _is_default(path: SpecPath, before: Any, after: Any) -> bool:
    """Return whether one side is AWS's default, and the other side absent."""
    if before is not _ABSENT and after is not _ABSENT:
        return False
    present = after if before is _ABSENT else before
    above = "" if len(path) == 1 else "*" if path[0] == "InputDataConfig" and len(path) == 3 else str(path[-2])
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
    """Return a value as JSON; a masked one as it is."""
    return HIDDEN if value == HIDDEN else json_text(value, default=str)


def _shown(path: SpecPath, value: Any, request: Any) -> Any:
    """Return the value as `request` shows it; None if it is absent."""
    return None if value is _ABSENT else _at(path, request, HIDDEN)  # a masked name leads nowhere


def _at(path: SpecPath, value: Any, absent: Any) -> Any:
    """Return what is below a value at a path of `differences`."""
    for name in path:
        value = _by_name(value)
        value = value.get(name, absent) if isinstance(value, Mapping) else absent
    return _by_name(value)
