"""Whether what is copied before the start fits on each host's disk.

Copied are channels in File mode, each host's shard of those that are sharded, and an older job's checkpoints. The space is
the requested volume, or the disks of the instance type. The image has its own disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from launcher.aws.account import AwsError
from launcher.aws.threads import at_once
from launcher.console import human_bytes
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.quota.machines import alternatives
from launcher.preflight.s3.checkpoints import older_state
from launcher.preflight.s3.listing import listing
from launcher.preflight.s3.manifests import FormError, named_objects
from launcher.preflight.uses import channels, hosts_that_share
from launcher.request.instance_types import instance_type
from launcher.request.view import Entry
from launcher.s3.uri import S3Location

_GIB = 2**30  # bytes per GB of VolumeSizeInGB: EBS counts in binary units
_NEARLY = 0.9  # of the space; outputs and new checkpoints need space too
_ROOM = 1.25  # times the data: the suggested volume size


class Copied(NamedTuple):
    """What is copied to each host."""

    bytes: int
    is_all: bool  # whether these are all bytes, or at least so many


_Sizes = dict[str, Copied]  # by channel


def ask_disk(subject: Subject) -> Iterator[Finding]:
    """Look at each kind of machine that the job may run on, with the channels it gets."""
    sizes = _sizes(subject)
    reported = set()
    for together in alternatives(subject.draft):
        for machines in together:
            copied = {name: size for name, size in sizes.items() if _gets(subject, name, machines.path)}
            if not any(size.bytes for size in copied.values()):
                continue
            try:
                path, space, what = _space(subject, machines.instance_type, machines.path)
            except AwsError as error:
                subject.could_not_ask(machines.path, error)
                continue
            for found in _judged(copied, path, space, what):
                if found not in reported:
                    reported.add(found)
                    yield found


def _sizes(subject: Subject) -> _Sizes:
    """Return what each host copies of each channel, as far as known."""
    work: list[tuple[str, SpecPath, Callable[[], Copied]]] = []
    for entry, place in channels(subject, "S3Prefix"):
        if entry.get("InputMode") == "File":

            def of_prefix(entry: Entry = entry, place: S3Location = place) -> Copied:
                found = listing(subject, place)
                return Copied(max(found.host_bytes(hosts_that_share(subject, entry))), found.is_complete)

            work.append((entry.name, entry.path("s3_uri"), of_prefix))
    for entry, place in channels(subject, "ManifestFile"):
        if entry.get("InputMode") == "File":

            def of_manifest(entry: Entry = entry, place: S3Location = place) -> Copied:
                named = named_objects(subject, entry, place)
                return Copied(max(named.host_bytes), named.is_complete) if named else Copied(0, False)

            work.append((entry.name, entry.path("s3_uri"), of_manifest))
    if subject.draft.get("CheckpointConfig.S3Uri"):
        work.append((_CHECKPOINTS, ("checkpoint_config", "s3_uri"), lambda: _bytes_of_older_state(subject)))
    sizes = {}
    for (name, path, _), outcome in at_once(lambda each: each[2](), work):
        try:
            sizes[name] = outcome.result()
        except AwsError as error:
            if error.status != 404:  # `buckets` and `manifests` report what is missing
                subject.could_not_ask(path, error)
        except FormError:
            continue  # reported by `manifests`
    return sizes


_CHECKPOINTS = "checkpoints of an older job"


def _bytes_of_older_state(subject: Subject) -> Copied:
    found = older_state(subject)
    return Copied(found.bytes, found.is_complete) if found else Copied(0, True)


def _gets(subject: Subject, name: str, machine: SpecPath) -> bool:
    """Whether a channel is sent to the machines at the path `machine`: to all, or to some instance groups."""
    entry = subject.draft.entry(name)
    names = entry.get("InstanceGroupNames") if entry else None
    if not names or machine[1] != "instance_groups":
        return True
    return subject.draft.groups[int(machine[2])].get("InstanceGroupName") in names


def _space(subject: Subject, name: str, path: SpecPath) -> tuple[SpecPath, float, str]:
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


def _judged(copied: _Sizes, path: SpecPath, space: float, what: str) -> Iterator[Finding]:
    need = sum(size.bytes for size in copied.values())
    largest = sorted(copied.items(), key=lambda each: -each[1].bytes)
    shown = ", ".join(f"{name} {human_bytes(size.bytes)}" for name, size in largest[:3] if size.bytes)
    least = "" if all(size.is_all for size in copied.values()) else "at least "
    more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""
    data = f"{least}{human_bytes(need)} are copied to each host before the start ({shown}{more})"
    larger = (
        f"at least {math.ceil(need * _ROOM / _GIB)} GB"
        if path[-1] == "volume_size_in_gb"
        else "a type with larger disks"
    )
    remedy = f"request {larger}, or read with FastFile or Pipe"
    if not space:
        return  # reported by the rules
    if need > space:
        yield path, "disk-too-small", f"{data}, but {what}; {remedy}"
    elif need > _NEARLY * space:
        yield path, "disk-nearly-full", f"{data}, and {what}: little is left for outputs and checkpoints; {remedy}"


CHECK = Check(
    "disk",
    "Does what File mode copies fit on the disks?",
    ask_disk,
    {
        "disk-too-small": ("error", "What File mode copies before the start does not fit on the disk."),
        "disk-nearly-full": (
            "warning",
            "What File mode copies before the start leaves less than a tenth of the disk free.",
        ),
    },
)
