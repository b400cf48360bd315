"""The data that the job gets: what is below each prefix, whether it is what was meant, can be read, and fits on the disks.

Objects in an archive are listed like all others, but not readable until they are restored. Whether they have been, only HeadObject
says, so the check asks about a few of them. Objects in GLACIER_IR are readable like any other.

Before the start, each host gets the channels in File mode, of sharded ones about the same share, and an older job's checkpoints,
from which the script would resume. The space is the requested volume, or the disks of the type. The image has its own disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from io import BytesIO

from launcher.account.check import Subject
from launcher.account.creation import alternatives
from launcher.account.storage import channels, checkpoint_path, hosts_that_share
from launcher.account.stored_objects import (
    RESTORE,
    Listing,
    Named,
    archive_of,
    beside,
    first_keys,
    listing,
    named_objects,
    near,
    some_bytes,
)
from launcher.aws.session import AwsError
from launcher.console import duration, human_bytes
from launcher.errors import Problem, SpecPath, first_names
from launcher.request.instance_types import instance_type
from launcher.request.view import Entry
from launcher.rules.channels.content_types import is_bundled
from launcher.s3.uri import S3Location, is_clutter
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import Format, format_of
from sagemaker_channels.formats.objects import FORMAT as OBJECTS
from sagemaker_channels.formats.signatures import SIZE, Signature, found_in, shard_in

_FEW = 10_000  # objects; fewer are read in a minute or two, however small
_CLUTTER_REMEDY = (
    "delete them, or the job reads them as data, and copy with `aws s3 sync --exclude '*.DS_Store'` and the like"
)
_SMALL = 50e6  # bytes; below this the request per object decides the time
_PER_SECOND = 130  # small objects copied by File (aws-samples/sagemaker-bencher, ml.p3.2xlarge)
_GIB = 2**30  # bytes per GB of VolumeSizeInGB: EBS counts in binary units
_NEARLY = 0.9  # of the space; outputs and new checkpoints need space too
_ROOM = 1.25  # times the data: the suggested volume size


def prefixes(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Is there data below every prefix, and only the intended data?"""
    entry = _entry_of(subject, path)
    found = listing(subject, place)
    if found.count == 0 and not found.markers:
        names, meant = near(subject, place)
        beside_it = f"; beside it are {', '.join(names[:3])}" if names else ""
        message = f"no object begins with {place}{meant or beside_it}; correct the URI, or upload the data first"
        yield Problem(path, message, "prefix-empty" if entry is not None else "connector-empty")
        return
    if found.count == 0 and found.is_complete:
        message = f"{place} holds only empty folders or Hadoop's markers (_SUCCESS, x_$folder$); upload the data first"
        yield Problem(path, message, "prefix-only-folders")
        return
    subject.note(path, found.described())
    yield from _siblings(subject, path, found)
    for kind, are, remedy, code in (
        (found.empty, "are empty (0 bytes)", "upload them again, or delete them", "prefix-empty-objects"),
        (found.clutter, "are files of macOS or Windows", _CLUTTER_REMEDY, "prefix-clutter"),
    ):
        if kind.count:
            examples = ", ".join(map(repr, kind.examples))
            wrong = f"{found.least}{kind.count:,} of {found.count:,} objects {are}, such as {examples}"
            yield Problem(path, f"{wrong}; {remedy}", code)
    if entry is not None and found.count > _FEW and found.bytes / found.count < _SMALL:
        took = duration(found.count / hosts_that_share(subject, entry) / _PER_SECOND)
        small = f"{human_bytes(found.bytes / found.count)} each on average, and each needs its own request"
        remedy = "join them into objects of about 100 MB (`launch reshard`)"
        message = f"{found.described()}: {small}, about {took} in all by estimate; {remedy}"
        yield Problem(path, message, "prefix-small-objects")


def _siblings(subject: Subject, path: SpecPath, found: Listing) -> Iterator[Problem]:
    """Find other names that begin with a prefix which is a whole name itself."""
    key = found.place.key
    if not key or key.endswith("/"):
        return
    names = beside(subject.ask, found.place)
    others = [name for name in names if name not in (key, f"{key}/")]
    if not others or len(others) == len(names):
        return  # only the name itself, or the beginning of many names, which is then intended
    remedy = f"write s3://{found.place.bucket}/{key}/" if f"{key}/" in names else "list the keys in a manifest"
    also = f"also matches {first_names(others, 3)}, since they begin with the same characters"
    yield Problem(path, f"{found.place} {also}; {remedy}", "prefix-siblings")


def _entry_of(subject: Subject, path: SpecPath) -> Entry | None:
    """Return the channel that a prefix belongs to; None if the script reads it itself."""
    return next((each for each in subject.draft.entries if each.whole == path[: len(each.whole)]), None)


def contents(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Is the first object below every prefix in the format that the channel's content type says?"""
    entry, is_ours = _entry_of(subject, path), is_bundled(subject.draft)
    if entry is not None:
        at, written = entry.path("ContentType"), entry.get("ContentType")
    else:
        at, written = (*path[:-1], "content_type"), subject.draft.spec.all_channels[str(path[1])].content_type
    try:
        form = format_of(written)
    except ChannelError:  # such as `libsvm`, which XGBoost reads
        return
    is_wrapped = entry is not None and entry.get("RecordWrapperType") == "RecordIO"
    if not is_ours and (form == OBJECTS or is_wrapped):
        return  # The script decides, or the content type may be that of SageMaker's records, not of what is stored.
    keys = [key for key in first_keys(subject.try_to_ask, place) if not is_clutter(key)]
    try:
        head = some_bytes(subject, S3Location(place.bucket, keys[0]), f"0-{SIZE - 1}") if keys else b""
    except AwsError as error:
        if error.is_unauthenticated:
            raise
        return  # The job reads it, by a role that may do more than you.
    found = _signature_of_other(form, head)
    if found is not None and (is_ours or not found.is_compressed):  # which other scripts may read
        said = f"by content_type {written!r}" if written else "without a content_type"
        as_what = "each object is one sample" if form == OBJECTS else f"it is {form.name}"
        message = f"s3://{place.bucket}/{keys[0]} is {found.what}, but {said} {as_what}; {found.remedy}"
        yield Problem(at if written else path, message, "content-type-other")


def _signature_of_other(form: Format, head: bytes) -> Signature | None:
    """Return what an object certainly is whose first bytes are not of its format; of whole objects, one of many samples."""
    if form == OBJECTS:
        return shard_in(head)
    found = found_in(head)
    try:
        next(form.split(BytesIO(head)), None)
    except ChannelError as error:
        return found if found and error.remedy == found.remedy else None
    except ImportError:  # Only jobs need the packages of formats.
        return None
    return None


def archives(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Can the objects be read without restoring them?"""
    found = listing(subject, place)
    for key in found.archived.examples:
        if archive := archive_of(subject.ask("s3", "head_object", Bucket=place.bucket, Key=key)):
            wrong = f"below {place}, {found.least}{found.archived.count:,} of {found.count:,} objects are archived ({archive})"
            yield Problem(path, f"{wrong}, such as {key!r}, and cannot be read; {RESTORE}", "objects-archived")
            return


def amount_of(subject: Subject, entry: Entry, place: S3Location) -> Listing | Named | None:
    """Return what the other checks have found of a channel; None if its manifest was not read. Raises AwsError."""
    is_prefix = entry.get("S3DataType") == "S3Prefix"
    return listing(subject, place) if is_prefix else named_objects(subject, place)


def sharded(subject: Subject) -> Iterator[tuple[SpecPath, tuple[Entry, S3Location]]]:
    for entry, place in channels(subject, "S3Prefix", "ManifestFile"):
        if hosts_that_share(subject, entry) > 1:
            yield entry.path("s3_data_distribution_type"), (entry, place)


def shares(subject: Subject, path: SpecPath, channel: tuple[Entry, S3Location]) -> Iterator[Problem]:
    """Does ShardedByS3Key give every host some data?"""
    amount, hosts = amount_of(subject, *channel), hosts_that_share(subject, channel[0])
    if amount and 0 < amount.count < hosts and (isinstance(amount, Named) or amount.is_complete):
        objects = "1 object" if amount.count == 1 else f"{amount.count} objects"
        message = (
            f"ShardedByS3Key has {objects} for {hosts} hosts, so {hosts - amount.count} would get nothing; split the data into at"
            f" least {hosts} objects, use fewer hosts, or use FullyReplicated"
        )
        yield Problem(path, message, "share-empty")


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
