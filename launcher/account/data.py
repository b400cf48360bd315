"""The data of the channels: how much is below each prefix, whether it is what was meant, and whether it can be read.

Objects in an archive are listed like all others, but not readable until they are restored. Whether they have been, only HeadObject
says, so the check asks about a few of them. Objects in GLACIER_IR are readable like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.account.check import Subject
from launcher.account.listing import RESTORE, Listing, archive_of, beside, listing, near
from launcher.account.manifest_objects import Named, named_objects
from launcher.account.places import channels, hosts_that_share
from launcher.console import duration, human_bytes
from launcher.errors import Problem, SpecPath, first_names
from launcher.request.view import Entry
from launcher.s3.uri import S3Location

_FEW = 10_000  # objects; fewer are read in a minute or two, however small
_CLUTTER_REMEDY = (
    "delete them, or the job reads them as data, and copy with `aws s3 sync --exclude '*.DS_Store'` and the like"
)
_SMALL = 50e6  # bytes; below this the request per object decides the time
_PER_SECOND = 130  # small objects copied by File (aws-samples/sagemaker-bencher, ml.p3.2xlarge)


def prefixes(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Is there data below every prefix, and only the intended data?"""
    # None if the script reads the channel itself.
    entry = next((each for each in subject.draft.entries if each.whole == path[: len(each.whole)]), None)
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
    """Yield the channels whose objects are divided among hosts."""
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
