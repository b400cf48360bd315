"""How a channel's data are used: by the job of the spec, on its instances, and by the account's jobs of the last 90 days."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from statistics import median
from typing import Any, NamedTuple

from launcher.account.check import Subject, why_not
from launcher.account.disk import disk_space
from launcher.advice.facts import ANSWERS, Use
from launcher.aws.account import Account, AwsError
from launcher.aws.threads import concurrently
from launcher.cost.estimate import estimate
from launcher.errors import InputError, did_you_mean
from launcher.jobs.lookup import describe, jobs
from launcher.quantities import bytes_of, seconds_of
from launcher.request.view import file_system_source, s3_source
from launcher.survey.channels import Channel
from sagemaker_channels import contract

DAYS = 90
MOST_JOBS = 200  # that are described
_AT_ONCE = 8
_EPOCHS = re.compile(r"(num|n|max)?[-_]?(train[-_])?epochs?")
_UNITS = {"start_within_s": (seconds_of, "30m"), "disk_bytes": (bytes_of, "200GB"), "memory_bytes": (bytes_of, "8GB")}
_Way = tuple[str, str]  # way, and URI or ID of a file system


class PastJob(NamedTuple):
    """A job that read a channel's data."""

    name: str
    way: str
    epochs: int | None


def recent_jobs(account: Account) -> tuple[list[dict[str, Any]] | None, str]:
    """Return the descriptions of the last 90 days' jobs, None if they are unknown; and what of them is unknown.

    Raises:
        AwsError: AWS does not accept the credentials.
    """
    since = datetime.now(timezone.utc) - timedelta(days=DAYS)
    try:
        names = [each["TrainingJobName"] for each in jobs(account, MOST_JOBS, CreationTimeAfter=since)]
        answers = concurrently(lambda name: describe(account, name), names, _AT_ONCE)
        found = [answer.result() for _, answer in answers]
    except AwsError as error:
        if error.is_unauthenticated:
            raise
        return None, f"which jobs read the data is unknown: {why_not(error)}; pass --use jobs=N"
    more = f"only the latest {MOST_JOBS} jobs of the last {DAYS} days were looked at" if len(names) == MOST_JOBS else ""
    return found, more


def past_jobs(channel: Channel, descriptions: Sequence[Mapping[str, Any]]) -> list[PastJob]:
    """Return the jobs that read a channel's data, or a part of them, the latest first."""
    place = channel.place.bucket if channel.storage != "S3" else channel.shown
    found = []
    for job in sorted(descriptions, key=lambda job: job["CreationTime"], reverse=True):
        reads = [way for way, uri in _ways(job) if uri and (uri.startswith(place) or place.startswith(uri))]
        if reads:
            found.append(PastJob(job["TrainingJobName"], reads[0], epochs_of(job.get("HyperParameters", {}))))
    return found


def _ways(job: Mapping[str, Any]) -> Iterator[_Way]:
    """Yield what a job reads, except its code."""
    for entry in job.get("InputDataConfig", ()):
        if entry["ChannelName"] == contract.CODE_CHANNEL:
            continue
        system = file_system_source(entry)
        mode = entry.get("InputMode") or job.get("AlgorithmSpecification", {}).get("TrainingInputMode", "File")
        way = system.get("FileSystemType") or mode
        yield way, system.get("FileSystemId") or s3_source(entry).get("S3Uri", "")
    for name, value in job.get("Environment", {}).items():
        if name.startswith(contract.CONNECTOR_VARIABLE):
            yield "S3Connector", json.loads(value).get(contract.CONNECTOR_S3_URI, "")


def epochs_of(hyperparameters: Mapping[str, str]) -> int | None:
    """Return the epochs that hyperparameters state."""
    texts = (str(text).strip("\"'") for name, text in hyperparameters.items() if _EPOCHS.fullmatch(name.lower()))
    return next((int(text) for text in texts if text.isdigit() and int(text)), None)


def use_of(channel: Channel, subject: Subject | None, past: Sequence[PastJob] | None, ask: bool) -> Use:
    """Return how a channel's data are used, by the job of the spec, if there is one, and by jobs that read them, if they are known.

    `ask` states whether AWS is asked about the instance type.
    """
    known = [each.epochs for each in past or () if each.epochs]
    use = Use(epochs=round(median(known)) if known else 1, jobs=None if past is None else len(past))
    if subject is None:
        return use
    draft = subject.draft
    use = replace(
        use,
        epochs=epochs_of(draft.get("HyperParameters") or {}) or use.epochs,
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
        if name in given:
            raise InputError(f"--use {text}: {name} is stated twice; state it once")
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
