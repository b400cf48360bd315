"""What is on each host's disk before the start: channels in File mode, and an older job's checkpoints.

Of sharded channels each host gets about the same share. From an older job's checkpoints the script would resume. The space is the
requested volume, or the disks of the instance type. The image has its own disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from launcher.account.check import Subject
from launcher.account.data import amount_of
from launcher.account.listing import listing
from launcher.account.places import channels, checkpoint_path, hosts_that_share
from launcher.account.quota import alternatives
from launcher.aws.account import AwsError
from launcher.console import human_bytes
from launcher.errors import Problem, SpecPath, first_names
from launcher.request.instance_types import instance_type
from launcher.request.view import Entry
from launcher.s3.uri import S3Location
from sagemaker_channels import contract

_GIB = 2**30  # bytes per GB of VolumeSizeInGB: EBS counts in binary units
_NEARLY = 0.9  # of the space; outputs and new checkpoints need space too
_ROOM = 1.25  # times the data: the suggested volume size


def _copied(subject: Subject) -> Iterator[tuple[SpecPath, tuple[str, Entry | None, S3Location]]]:
    """Yield what all machines get before the start: name, channel and place; without a channel an older job's checkpoints."""
    for entry, place in channels(subject, "S3Prefix", "ManifestFile"):
        if entry.mode == "File" and not entry.get("InstanceGroupNames"):
            yield entry.path("s3_uri"), (entry.name, entry, place)
    for path, place in checkpoint_path(subject):
        yield path, ("checkpoints of an older job", None, place)


def _on_each_host(subject: Subject, entry: Entry | None, place: S3Location) -> tuple[int, bool]:
    """Return the bytes copied to each host, and whether these are all or at least so many. Raises AwsError."""
    size = listing(subject, place) if entry is None else amount_of(subject, entry, place)
    hosts = hosts_that_share(subject, entry) if entry is not None else 1
    return (size.bytes // hosts, size.is_complete) if size else (0, False)


def disk(subject: Subject) -> Iterator[Problem]:
    """Does what File mode copies fit on the disks?"""
    sizes = dict(subject.each(_copied(subject), lambda _, each: [(each[0], _on_each_host(subject, *each[1:]))]))
    found: dict[Problem, None] = {}
    machines = [each for choice in alternatives(subject.draft) for each in choice]
    for each in machines if any(size for size, _ in sizes.values()) else ():
        try:
            space = disk_space(subject, each.instance_type, each.path)
        except AwsError as error:
            subject.could_not_ask(each.path, error)
        else:
            found |= dict.fromkeys(_too_large(sizes, *space))
    yield from found


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


def _too_large(copied: Mapping[str, tuple[int, bool]], path: SpecPath, space: float, what: str) -> Iterator[Problem]:
    need = sum(size for size, _ in copied.values())
    largest = sorted(copied.items(), key=lambda each: -each[1][0])
    shown = first_names([f"{name} {human_bytes(size)}" for name, (size, _) in largest if size], 3)
    least = "" if all(is_all for _, is_all in copied.values()) else "at least "
    data = f"{least}{human_bytes(need)} are copied to each host before the start ({shown})"
    is_volume = path[-1] == "volume_size_in_gb"
    larger = f"at least {math.ceil(need * _ROOM / _GIB)} GB" if is_volume else "a type with larger disks"
    remedy = f"request {larger}, or read with FastFile or Pipe"
    if space and need > space:  # without any space, a rule reports it
        yield Problem(path, f"{data}, but {what}; {remedy}", "disk-too-small")
    elif space and need > _NEARLY * space:
        message = f"{data}, and {what}: little is left for outputs and checkpoints; {remedy}"
        yield Problem(path, message, "disk-nearly-full")


def checkpoints(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Is the checkpoint path free of an older job's state?"""
    found = listing(subject, place)
    if not found.count:
        return
    local = subject.draft.get("CheckpointConfig.LocalPath") or f"{contract.BASE_DIR}/{contract.CHECKPOINT_DIR}"
    newest = f", the newest of {found.newest:%Y-%m-%d %H:%M} UTC" if found.newest else ""
    message = (
        f"{place} holds an older job's state: {found.described()}{newest}; SageMaker copies it to {local} before the start,"
        f" and a script that looks there resumes from it; if you do not want that, use a new path, such as"
        f" {place}{subject.draft.request['TrainingJobName']}/"
    )
    yield Problem(path, message, "checkpoints-exist")
