"""Where the job reads and writes: whether each bucket and file system exists, in the right place, and lets the job in.

One question per bucket (HeadBucket). The answer is an existing bucket's region, 404 if there is no such bucket, or 403 if you
may not look at it. None of this concerns the job's role, which `permissions` covers. But a bucket that is not even among the
account's own belongs to another account, and then its name is often misspelt.

A machine mounts EFS through the mount target in its own availability zone, whose security groups must allow port 2049. The card of
a storage kind names the checks that look at its channels (`launcher.spec.channels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from launcher.account.check import Subject
from launcher.account.vpc import closed, described, known_subnets, vpc_id, zone
from launcher.aws.session import AwsError
from launcher.errors import Problem, RefusedError, SpecPath, did_you_mean, dotted, first_names
from launcher.request.view import Entry
from launcher.rules.channels.uris import uris
from launcher.s3.uri import S3Location, parse_s3_uri
from launcher.spec.channels import KINDS, source_of_entry
from sagemaker_channels import contract

_READY = ("available", "updating")  # states of mount targets
_NFS = 2049  # TCP port


class Use(NamedTuple):
    """One place in S3 that the job uses."""

    path: SpecPath
    place: S3Location
    by: Literal["SageMaker", "script"]  # which of them reads or writes it


def uses(subject: Subject) -> Iterable[Use]:
    """Return what the job reads or writes, once for each path in the spec."""
    found = {path: Use(path, place, "script") for path, place in connectors(subject)}
    code: list[tuple[SpecPath, str]] = [(code_path(subject), subject.code_uri)] if subject.code_uri else []
    placed = ((subject.draft.origin.place(path), uri) for path, uri in uris(subject.draft) if uri != subject.code_uri)
    for path, uri in (*placed, *code):
        if place := place_of(uri):
            found.setdefault(path, Use(path, place, "SageMaker"))
    return found.values()


def place_of(uri: str | None) -> S3Location | None:
    """Return the bucket (or the ARN of an access point) and the key of a URI; None if it is not one, which a rule reports."""
    try:
        place = parse_s3_uri(uri or "")
    except RefusedError:
        return None
    if place.bucket.startswith("arn:"):
        name, _, key = place.key.partition("/")
        return S3Location(f"{place.bucket}/{name}", key)
    return place


def as_folder(key: str) -> str:
    """Return a key with a '/' at its end; an empty key, which means the whole bucket, as it is."""
    return key if not key or key.endswith("/") else f"{key}/"


def code_path(subject: Subject) -> SpecPath:
    """Return the path in the spec that sets where the code is stored."""
    code = subject.draft.spec.code
    return ("code", "s3_uri") if code is not None and code.s3_uri is not None else ("code",)


def channels(subject: Subject, *data_types: str) -> Iterator[tuple[Entry, S3Location]]:
    """Yield the channels of some S3DataTypes that SageMaker reads; not the code channel, whose objects are uploaded later."""
    for entry in subject.draft.entries:
        place = place_of(entry.get("S3Uri"))
        is_code = subject.code_uri is not None and entry.name == contract.CODE_CHANNEL
        if place and entry.get("S3DataType") in data_types and not is_code:
            yield entry, place


def connectors(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    for name, channel in subject.draft.spec.all_channels.items():
        if place := place_of((channel.connector(name) or {}).get(contract.CONNECTOR_S3_URI)):
            yield ("channels", name, "s3_uri"), place


def prefixes_read(subject: Subject) -> list[tuple[SpecPath, S3Location]]:
    return [(entry.path("s3_uri"), place) for entry, place in channels(subject, "S3Prefix")] + [*connectors(subject)]


def checkpoint_path(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the folder of the checkpoints, if the job keeps any."""
    if place := place_of(subject.draft.get("CheckpointConfig.S3Uri")):
        yield ("checkpoint_config", "s3_uri"), S3Location(place.bucket, as_folder(place.key))


def hosts_that_share(subject: Subject, entry: Entry) -> int:
    """Return the number of hosts that a channel's objects are divided among; 1 if each host gets all."""
    return (subject.draft.host_count(entry) or 1) if entry.is_sharded else 1


def by_bucket(subject: Subject) -> Iterable[tuple[SpecPath, list[Use]]]:
    """Return the uses of each bucket, at the first path in the spec that names it."""
    found: dict[str, list[Use]] = {}
    for use in uses(subject):
        found.setdefault(use.place.bucket, []).append(use)
    return [(used[0].path, used) for used in found.values()]


def buckets(subject: Subject, path: SpecPath, used: list[Use]) -> Iterator[Problem]:
    """Does every bucket exist, in the job's region, and may you look at it?"""
    bucket = used[0].place.bucket
    try:
        answer = subject.ask("s3", "head_bucket", Bucket=bucket)
    except AwsError as error:
        # ListBuckets leaves directory buckets out, so whose they are is unknown.
        if error.status == 404 or (error.status == 403 and not bucket.endswith(contract.DIRECTORY_BUCKET)):
            yield from _refused(subject, bucket, error, used)
        else:
            subject.could_not_ask(path, error)
    else:
        yield from _in_region(subject, bucket, answer, used)


def _in_region(subject: Subject, bucket: str, answer: dict[str, Any], used: list[Use]) -> Iterator[Problem]:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("BucketRegion") or headers.get("x-amz-bucket-region")
    ours = subject.account.region
    if not region or region == ours:
        return  # S3-compatible stores name no region
    by_service = [use for use in used if use.by == "SageMaker"]
    where = f"bucket {bucket!r} is in {region}, but the job in {ours}"
    if by_service:
        message = (
            f"{where}, and SageMaker reads and writes in its own region only; run the job in {region}, or copy the data to a"
            f" bucket in {ours}{_also(by_service)}"
        )
        yield Problem(by_service[0].path, message, "bucket-region")
    else:
        message = (
            f"{where}; the script must name {region} to its client, and the transfer is billed; a bucket in the job's region"
            f" needs neither{_also(used)}"
        )
        yield Problem(used[0].path, message, "bucket-region-connector")


def _refused(subject: Subject, bucket: str, error: AwsError, used: list[Use]) -> Iterator[Problem]:
    path, owner = used[0].path, subject.account.bucket_owners.get(bucket)
    if error.status == 403 and owner and subject.try_to_ask("s3", "head_bucket", Bucket=bucket, ExpectedBucketOwner=""):
        message = (
            f"bucket {bucket!r} does not belong to account {owner}; correct the name, or if another account's is meant, name that"
            f" account: bucket_owners: {{{bucket}: ACCOUNT}}{_also(used)}"
        )
        yield Problem(path, message, "bucket-owner")
        return
    listed = subject.try_to_ask("s3", "list_buckets").get("Buckets")
    own = [each["Name"] for each in listed or ()]
    if error.status == 404:
        make = "" if bucket.endswith(contract.DIRECTORY_BUCKET) else f" (aws s3 mb s3://{bucket})"
        remedy = f"correct the name, or create it{make}{_also(used)}"
        yield Problem(path, f"there is no bucket {bucket!r}{did_you_mean(bucket, own)}; {remedy}", "bucket-missing")
    elif listed is not None and bucket not in own:
        message = (
            f"bucket {bucket!r} belongs to another account and denies you access (403){did_you_mean(bucket, own)}; correct the"
            f" name, or have its owner allow the job's role in the bucket policy{_also(used)}"
        )
        yield Problem(path, message, "bucket-forbidden")
    else:
        subject.could_not_ask(path, error)


def _also(used: list[Use]) -> str:
    """Return the other paths that name the same bucket, in brackets."""
    others = [dotted(use.path) for use in used[1:]]
    return f" (also {first_names(others, 3)})" if others else ""


def channels_of(check: str) -> Callable[[Subject], Iterator[tuple[SpecPath, Entry]]]:
    """Return the function that yields the channels that a check looks at, each with the path of its `file_system_id`."""
    sources = {source for source, kind in KINDS.items() if check in kind.ACCOUNT_CHECKS}

    def find(subject: Subject) -> Iterator[tuple[SpecPath, Entry]]:
        for entry in subject.draft.entries:
            if source_of_entry(entry.request) in sources and entry.get("FileSystemId"):
                yield entry.path("file_system_id"), entry

    return find


def _described(subject: Subject, entry: Entry, name: str, **named: Any) -> Mapping[str, Any] | Problem:
    """Return a service's description of a channel's file system, or the problem that there is none. Raises AwsError."""
    service = name.lower()
    answer = subject.find(service, "describe_file_systems", **named) or {}
    missing = (
        f"there is no {name} file system {entry.get('FileSystemId')} in {subject.account.region}; name one of"
        f" `aws {service} describe-file-systems`, or correct the channel's source"
    )
    found: Iterable[Mapping[str, Any]] = answer.get("FileSystems", ())
    return next(iter(found), Problem(entry.path("file_system_id"), missing, f"{service}-missing"))


def efs(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Do the EFS file systems exist, and can the job mount them from its subnets?"""
    name = entry.get("FileSystemId")
    known = _described(subject, entry, "EFS", FileSystemId=name)
    if isinstance(known, Problem):
        yield known
        return
    if (vpc := vpc_id(subject)) is None:
        return
    answer = subject.ask("efs", "describe_mount_targets", FileSystemId=name)
    every = [each for each in answer.get("MountTargets", ()) if each.get("LifeCycleState", "available") in _READY]
    here = [each for each in every if each.get("VpcId", vpc) == vpc]
    if every and not here:
        others = first_names(sorted({each["VpcId"] for each in every}))
        message = f"{name} has mount targets in {others}, but the job is in {vpc}; use subnets of {others}"
        yield Problem(path, message, "efs-other-vpc")
        return
    by_zone = {zone(each): each for each in here}
    subnets = known_subnets(subject)
    targets = {target["MountTargetId"]: target for each in subnets if (target := by_zone.get(zone(each)))}
    wrong = [found for each in targets.values() if (found := _closed_target(subject, each)) is not None]
    if wrong:
        others = f" (and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        code = "security-group-closed" if len(wrong) == len(targets) else "security-group-closed-in-some"
        yield Problem(path, wrong[0] + others, code)
    if lacking := [subnet for subnet in subnets if zone(subnet) not in by_zone]:
        zones = first_names(f"{zone(subnet)} ({subnet['SubnetId']})" for subnet in lacking)
        has = (
            f"it has some in {first_names(sorted(by_zone))}; use a subnet there, or" if here else "it has none at all;"
        )
        remedy = f"create one: aws efs create-mount-target --file-system-id {name} --subnet-id {lacking[0]['SubnetId']}"
        code = "efs-no-mount-target-in-some" if targets else "efs-no-mount-target"
        yield Problem(path, f"{name} has no mount target in {zones}; {has} {remedy}", code)


def _closed_target(subject: Subject, target: Mapping[str, Any]) -> str | None:
    """Return why the job cannot reach a mount target; None if it can. Raises AwsError."""
    name = target["MountTargetId"]
    its = subject.ask("efs", "describe_mount_target_security_groups", MountTargetId=name).get("SecurityGroups", ())
    return closed(subject, f"the mount target {name} ({zone(target)})", its, _NFS) if its else None


def fsx(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Do the FSx for Lustre file systems exist, is each path inside one, and can the job reach them?"""
    name = entry.get("FileSystemId")
    known = _described(subject, entry, "FSx", FileSystemIds=[name])
    if isinstance(known, Problem):
        yield known
        return
    if (kind := known.get("FileSystemType", "LUSTRE")) != "LUSTRE":
        remedy = "but a job mounts only Lustre; name an FSx for Lustre file system"
        yield Problem(path, f"{name} is a {kind} file system, {remedy}", "fsx-not-lustre")
        return
    if (state := known.get("Lifecycle", "AVAILABLE")) in ("CREATING", "DELETING", "FAILED"):
        remedy = "wait until it is AVAILABLE" if state == "CREATING" else "name another file system"
        yield Problem(path, f"{name} is {state}, so a job cannot mount it; {remedy}", "fsx-not-available")
        return
    mount, directory = known.get("LustreConfiguration", {}).get("MountName"), str(entry.get("DirectoryPath"))
    first, _, rest = directory.lstrip("/").partition("/")
    if mount and directory.startswith("/") and first != mount:
        whole, inner = (f"/{mount}/{each}".rstrip("/") for each in (directory.strip("/"), rest))
        wrong = f"{directory!r} does not begin with {mount}, the mount name of {name}"
        remedy = f"write {inner!r} if {first!r} was meant as the mount name, else {whole!r}"
        yield Problem(entry.path("directory_path"), f"{wrong}; {remedy}", "fsx-mount-name-wrong")
    vpc, its_vpc = vpc_id(subject), known.get("VpcId")
    if vpc is not None and its_vpc not in (vpc, None):
        remedy = f"use subnets of {its_vpc}, unless the two VPCs are connected"
        yield Problem(path, f"{name} is in {its_vpc}, but the job in {vpc}; {remedy}", "fsx-other-vpc")
        return
    zones = {zone(each) for each in described(subject, "subnets", "subnet-id", known.get("SubnetIds", ()))}
    elsewhere = [each for each in known_subnets(subject) if zone(each) not in zones]
    if vpc is not None and zones and elsewhere:
        shown = first_names(f"{each['SubnetId']} ({zone(each)})" for each in elsewhere)
        message = (
            f"{name} is in {first_names(sorted(zones))}, but the job may be placed in {shown}: slower, and billed between zones;"
            f" use a subnet such as {known['SubnetIds'][0]}"
        )
        yield Problem(path, message, "fsx-other-zone")
