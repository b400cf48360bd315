"""Whether what is copied before the start fits on each host's disk, and whether that includes an older job's state.

Copied are channels in File mode, each host's shard of those that are sharded, and an older job's checkpoints, from which the script
would resume. The space is the requested volume, or the disks of the instance type. The image has its own disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from launcher.account.check import Check, Finding, Subject
from launcher.account.quota.machines import alternatives
from launcher.account.s3.listing import Listing, listing
from launcher.account.s3.manifests import named_objects
from launcher.account.uses import as_folder, channels, hosts_that_share, place_of
from launcher.aws.account import AwsError
from launcher.console import human_bytes
from launcher.errors import SpecPath
from launcher.request.instance_types import instance_type
from launcher.request.view import Entry
from launcher.s3.uri import S3Location
from sagemaker_channels import contract

_GIB = 2**30  # bytes per GB of VolumeSizeInGB: EBS counts in binary units
_NEARLY = 0.9  # of the space; outputs and new checkpoints need space too
_ROOM = 1.25  # times the data: the suggested volume size


class _Copied(NamedTuple):
    """The bytes copied to each host."""

    bytes: int
    is_all: bool  # whether these are all bytes, or at least so many


def _ask_space(subject: Subject) -> Iterator[Finding]:
    """Look at each kind of machine that the job may run on, with the channels it gets."""
    sizes = _sizes(subject)
    found: dict[Finding, None] = {}
    for machines in [each for choice in alternatives(subject.draft) for each in choice]:
        copied = {name: size for name, size in sizes.items() if _is_copied_to(subject, name, machines.path)}
        if any(size.bytes for size in copied.values()):
            try:
                space = disk_space(subject, machines.instance_type, machines.path)
            except AwsError as error:
                subject.could_not_ask(machines.path, error)
            else:
                found |= dict.fromkeys(_space_findings(copied, *space))
    yield from found


def _sizes(subject: Subject) -> dict[str, _Copied]:
    """Return what each host copies of each channel, as far as known."""
    work: list[tuple[SpecPath, tuple[str, Callable[[], _Copied]]]] = [
        (entry.path("s3_uri"), (entry.name, partial(measure, subject, entry, place)))
        for data_type, measure in (("S3Prefix", _of_prefix), ("ManifestFile", _of_manifest))
        for entry, place in channels(subject, data_type)
        if entry.get("InputMode") == "File"
    ]
    if subject.draft.get("CheckpointConfig.S3Uri"):
        name = "checkpoints of an older job"
        work.append((("checkpoint_config", "s3_uri"), (name, partial(_of_older_state, subject))))
    return dict(subject.each(work, lambda _, named: [(named[0], named[1]())]))


def _of_prefix(subject: Subject, entry: Entry, place: S3Location) -> _Copied:
    found = listing(subject, place)
    return _Copied(max(found.host_bytes(hosts_that_share(subject, entry))), found.is_complete)


def _of_manifest(subject: Subject, entry: Entry, place: S3Location) -> _Copied:
    named = named_objects(subject, entry, place)
    return _Copied(max(named.host_bytes), named.is_complete) if named else _Copied(0, False)


def _of_older_state(subject: Subject) -> _Copied:
    found = older_state(subject)
    return _Copied(found.bytes, found.is_complete) if found else _Copied(0, True)


def _is_copied_to(subject: Subject, name: str, machine: SpecPath) -> bool:
    """Return whether a channel is sent to the machines at the path `machine`: to all, or to some instance groups."""
    entry = subject.draft.entry(name)
    names = entry.get("InstanceGroupNames") if entry else None
    if not names or machine[1] != "instance_groups":
        return True
    return subject.draft.groups[int(machine[2])].get("InstanceGroupName") in names


def disk_space(subject: Subject, name: str, path: SpecPath) -> tuple[SpecPath, float, str]:
    """Return the path that sets the space, its bytes, and what it is. Raises AwsError."""
    volume = subject.draft.get("ResourceConfig.VolumeSizeInGB") or 0
    disks = 0
    if instance_type(name).storage != "EBS":
        answer = subject.ask("ec2", "describe_instance_types", InstanceTypes=[name.removeprefix("ml.")])
        types = answer.get("InstanceTypes") or [{}]
        disks = types[0].get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)
    if disks:
        return path, disks * 1e9, f"the disks of {name} hold {human_bytes(disks * 1e9)}"
    size = volume * _GIB
    return ("resource_config", "volume_size_in_gb"), size, f"the volume of {volume} GB holds {human_bytes(size)}"


def _space_findings(copied: dict[str, _Copied], path: SpecPath, space: float, what: str) -> Iterator[Finding]:
    need = sum(size.bytes for size in copied.values())
    largest = sorted(copied.items(), key=lambda each: -each[1].bytes)
    shown = ", ".join(f"{name} {human_bytes(size.bytes)}" for name, size in largest[:3] if size.bytes)
    least = "" if all(size.is_all for size in copied.values()) else "at least "
    more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""
    data = f"{least}{human_bytes(need)} are copied to each host before the start ({shown}{more})"
    is_volume = path[-1] == "volume_size_in_gb"
    larger = f"at least {math.ceil(need * _ROOM / _GIB)} GB" if is_volume else "a type with larger disks"
    remedy = f"request {larger}, or read with FastFile or Pipe"
    if not space:
        return  # reported by the rules
    if need > space:
        yield path, "disk-too-small", f"{data}, but {what}; {remedy}"
    elif need > _NEARLY * space:
        yield path, "disk-nearly-full", f"{data}, and {what}: little is left for outputs and checkpoints; {remedy}"


CHECK = Check("disk", _ask_space)


def older_state(subject: Subject) -> Listing | None:
    """Return what is stored at the checkpoint path; None if the job keeps no checkpoints. Raises AwsError."""
    place = place_of(subject.draft.get("CheckpointConfig.S3Uri"))
    return listing(subject, S3Location(place.bucket, as_folder(place.key))) if place else None


def _ask_older_state(subject: Subject, path: SpecPath, _: None) -> Iterator[Finding]:
    found = older_state(subject)
    if found is None or not found.count:
        return
    local = subject.draft.get("CheckpointConfig.LocalPath") or f"{contract.BASE_DIR}/{contract.CHECKPOINT_DIR}"
    newest = f", the newest of {found.newest:%Y-%m-%d %H:%M} UTC" if found.newest else ""
    message = (
        f"{found.place} holds an older job's state: {found.described()}{newest}; SageMaker copies it to {local} before the start,"
        f" and a script that looks there resumes from it; if you do not want that, use a new path, such as"
        f" {found.place}{subject.draft.request['TrainingJobName']}/"
    )
    yield path, "checkpoints-exist", message


CHECKPOINTS = Check("checkpoints", _ask_older_state, lambda _: [(("checkpoint_config", "s3_uri"), None)])
