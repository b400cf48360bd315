"""How a channel's data are used: by the job of the spec, on its instances, and by what the user states."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from launcher.account.check import Subject
from launcher.account.data import disk_space
from launcher.advice.facts import ANSWERS, Use
from launcher.aws.session import AwsError
from launcher.cost.estimate import estimate
from launcher.errors import InputError, did_you_mean
from launcher.quantities import bytes_of, seconds_of
from launcher.survey.channels import Channel

_EPOCHS = re.compile(r"(num|n|max)?[-_]?(train[-_])?epochs?")
_UNITS = {"start_within_s": (seconds_of, "30m"), "disk_bytes": (bytes_of, "200GB"), "memory_bytes": (bytes_of, "8GB")}


def epochs_of(hyperparameters: Mapping[str, str]) -> int | None:
    texts = (str(text).strip("\"'") for name, text in hyperparameters.items() if _EPOCHS.fullmatch(name.lower()))
    return next((int(text) for text in texts if text.isdigit() and int(text)), None)


def use_of(channel: Channel, subject: Subject | None, ask: bool) -> Use:
    """Return how a channel's data are used by the job of the spec, if there is one.

    `ask` states whether AWS is asked about the instance type.
    """
    if subject is None:
        return Use()
    draft = subject.draft
    use = Use(
        epochs=epochs_of(draft.get("HyperParameters") or {}),
        instances=channel.instances,
        sharded=channel.is_sharded,
        has_vpc=draft.get("VpcConfig") is not None,
        is_built_in=draft.built_in is not None,
        present=channel.present,
    )
    cost = estimate(draft.request, subject.account.region if ask else draft.spec.region)
    if cost is not None and cost.usd["per_hour"]:
        use = replace(use, usd_per_hour=float(cost.usd["per_hour"]))
    if not draft.instance_types:
        return use
    path, machine = draft.instance_types[0]
    size = (draft.get("ResourceConfig.VolumeSizeInGB") or 0) * 2**30
    if not ask:
        return replace(use, disk_bytes=size if machine.storage == "EBS" else None)
    name = machine.name.removeprefix("ml.")
    answer = subject.try_to_ask("ec2", "describe_instance_types", InstanceTypes=[name]).get("InstanceTypes") or [{}]
    memory, vcpus = answer[0].get("MemoryInfo", {}).get("SizeInMiB"), answer[0].get("VCpuInfo", {}).get("DefaultVCpus")
    try:
        disk = disk_space(subject, machine.name, path)[1]
    except AwsError:
        disk = 0
    return replace(use, vcpus=vcpus, memory_bytes=memory and memory * 2**20, disk_bytes=int(disk) or None)


def with_answers(use: Use, answers: Sequence[str]) -> Use:
    """Return the use with what the user states as `NAME=VALUE`. Raises InputError."""
    given: dict[str, Any] = {}
    for text in answers:
        name, equals, value = text.partition("=")
        if name not in ANSWERS or not equals:
            near = did_you_mean(name, ANSWERS) if name not in ANSWERS else ""
            raise InputError(f"--use {text}: expected NAME=VALUE{near}; NAME is one of {', '.join(ANSWERS)}")
        given[name] = _answer(text, name, value.strip())
    return replace(use, **given)


def _answer(text: str, name: str, value: str) -> Any:
    kind, (of, example) = ANSWERS[name], _UNITS.get(name, (None, ""))
    if "bool" in kind:
        if value.lower() not in ("yes", "true", "no", "false"):
            raise InputError(f"--use {text}: expected yes or no, got {value!r}")
        return value.lower() in ("yes", "true")
    is_number = re.fullmatch(r"\d+(\.\d*)?(e\d{1,2})?", value.lower())
    number = float(value) if is_number else float((of and of(value)) or 0)
    is_whole = "int" in kind
    if (is_whole and number % 1) or (not number and (name, value) != ("jobs", "0")):
        what = f"a {'whole ' * is_whole}number above 0{example and f', or such as {example}'}"
        raise InputError(f"--use {text}: expected {what}, got {value!r}")
    return int(number) if is_whole else number
