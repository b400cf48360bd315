r"""The data of the channels: how much is below each prefix, whether it is what was meant, and whether it suits its delivery.

Times are estimates from AWS's measurements on one instance type (aws-samples/sagemaker-bencher, ml.p3.2xlarge), and are
marked as estimates.

Objects in an archive are listed like all others, but not readable until they are restored. A listing contains the storage class. It
contains neither whether an object in GLACIER has been restored nor whether Intelligent-Tiering has archived one. HeadObject returns
both (Restore, ArchiveStatus), so the check asks about a few objects. Objects in GLACIER_IR are readable like any other.

The last byte of an object shows whether it ends with a line feed: its lack cannot be seen in a Pipe's joined stream, where "1\n2"
and "3\n" become the lines 1 and 23. Gzipped objects are skipped then, since their last byte is not content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launcher.account.check import Subject, joined
from launcher.account.listing import ARCHIVES, RESTORE, Keys, Listing, archive_of, beside, listing, near, some_bytes
from launcher.account.manifests import named_objects
from launcher.account.places import channels, hosts_that_share
from launcher.console import human_bytes
from launcher.errors import Problem, SpecPath
from launcher.request.view import Entry
from launcher.rules.channels.content_types import LINES
from launcher.s3.uri import S3Location

_FEW = 10_000  # objects; fewer are copied in a minute or two, however small
_SMALL = 50e6  # bytes; below this the request per object decides the time
_SHARD = 100e6  # bytes of an object that is large enough
_OBJECTS_PER_SECOND, _BYTES_PER_SECOND, _START = 130, 155e6, 15.0  # of copying for File
_LONG = 60.0  # seconds of copying that are worth a note
_LISTED_PER_SECOND = 10_000  # by FastFile
_CANNOT_SERVE = {"File": ("prefix-file-keys", "copy"), "FastFile": ("prefix-fast-file-keys", "mount")}
_GZIP = b"\x1f\x8b"  # RFC 1952
_MUCH = 64e6  # bytes; with less, the other hosts hardly wait for the fullest one
_UNEVEN = 1.5  # times the mean
_COPIED_BY_FILE = ("have an empty folder name ('//')",)  # odd keys that File copies all the same


def prefixes(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Is there data below every prefix, only the intended data, and in a form that the input mode can serve?"""
    # None if the script reads the channel itself.
    entry = next((each for each in subject.draft.entries if each.whole == path[: len(each.whole)]), None)
    found = listing(subject, place)
    if found.count == 0 and found.folders:
        wrong = f"{place} holds empty folders but no object; upload the data first"
        yield Problem(path, wrong, "prefix-only-folders")
        return
    if found.count == 0:
        names, meant = near(subject, place)
        beside_it = f"; beside it are {', '.join(names[:3])}" if names else ""
        message = f"no object begins with {place}{meant or beside_it}; correct the URI, or upload the data first"
        yield Problem(path, message, "prefix-empty" if entry is not None else "connector-empty")
        return
    if found.markers.count == found.count and found.is_complete:
        only = f"{place} holds {found.described()}, all of them markers of Hadoop (_SUCCESS, x_$folder$)"
        message = f"{only}, and no data; correct the URI, or upload the data first"
        yield Problem(path, message, "prefix-only-folders")
        return
    hosts = hosts_that_share(subject, entry) if entry is not None else 1
    subject.note(path, found.described() + _on_each_host(found, entry, hosts))
    yield from _siblings(subject, path, found)
    if found.empty.count:
        wrong = f"{found.least}{found.empty.count:,} of {found.count:,} objects are empty (0 bytes), such as"
        message = f"{wrong} {', '.join(map(repr, found.empty.examples))}; upload them again, or delete them"
        yield Problem(path, message, "prefix-empty-objects")
    if entry is not None:
        yield from _unservable(path, found, entry)
        yield from _small(path, found, entry, hosts)


def _on_each_host(found: Listing, entry: Entry | None, hosts: int) -> str:
    """Return words for the fullest host's share, and for the duration of its copy if that is worth knowing."""
    most = max(found.host_bytes(hosts))
    words = f"; {human_bytes(most)} on the fullest of {hosts} hosts" if hosts > 1 else ""
    seconds = _copying(found.count / hosts, most)
    if entry is not None and entry.mode == "File" and seconds > _LONG:
        more = "" if found.is_complete else " or more"
        words += f"; copied in about {_time(seconds)}{more} by estimate"
    return words


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
    also = f"also matches {joined(others, 3)}, since they begin with the same characters"
    yield Problem(path, f"{found.place} {also}; {remedy}", "prefix-siblings")


def _unservable(path: SpecPath, found: Listing, entry: Entry) -> Iterator[Problem]:
    code, does = _CANNOT_SERVE.get(entry.mode or "", ("", ""))
    for what, odd in found.odd.items() if code else ():
        if entry.mode == "File" and what in _COPIED_BY_FILE:
            continue
        message = (
            f"{found.least}{odd.count:,} of the keys {what}, which {entry.mode} cannot {does} as files, such as "
            f"{', '.join(map(repr, odd.examples))}; rename them, or read the channel with Pipe or the S3 Connector"
        )
        yield Problem(path, message, code)


def _small(path: SpecPath, found: Listing, entry: Entry, hosts: int) -> Iterator[Problem]:
    if found.count <= _FEW or found.bytes / found.count >= _SMALL:
        return
    count, size = found.count / hosts, found.bytes / hosts
    if entry.mode == "File":
        now, then = _time(_copying(count, size)), _time(_copying(size / _SHARD, size))
        slow = f"copying them takes about {now} by estimate, {then} if joined"
    elif entry.mode == "FastFile":
        wait = _time(count / _LISTED_PER_SECOND + _START)
        slow = f"FastFile lists them in about {wait} and reads such small objects at about half the speed, by estimate"
    else:
        slow = f"each needs its own request, about {_OBJECTS_PER_SECOND} per second by estimate"
    average = f"{human_bytes(found.bytes / found.count)} each on average"
    remedy = "join them into objects of about 100 MB (tar, RecordIO, TFRecord)"
    yield Problem(path, f"{found.described()}: {average}; {slow}; {remedy}", "prefix-small-objects")


def _copying(count: float, size: float) -> float:
    return max(count / _OBJECTS_PER_SECOND, size / _BYTES_PER_SECOND) + _START


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def archives(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Can the objects be read without restoring them?"""
    found = listing(subject, place)
    for storage_class in (*ARCHIVES, "INTELLIGENT_TIERING"):
        kind = found.by_class.get(storage_class, Keys())
        for key in kind.examples:
            if archive := archive_of(subject.ask("s3", "head_object", Bucket=place.bucket, Key=key)):
                of = f"{found.least}{kind.count:,} of {found.count:,} " if storage_class in ARCHIVES else ""
                wrong = f"below {place}, {of}objects are archived ({archive}), such as {key!r}"
                yield Problem(path, f"{wrong}, and cannot be read; {RESTORE}", "objects-archived")
                return


def gunzipped(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the channels that Pipe mode decompresses."""
    for entry, place in channels(subject, "S3Prefix"):
        if entry.get("CompressionType") == "Gzip" and entry.mode == "Pipe":
            yield entry.path("compression_type"), place


def compression(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Are the objects of a channel with compression_type Gzip really gzipped?"""
    for key in listing(subject, place).full.examples[:1]:
        if some_bytes(subject, S3Location(place.bucket, key), "0-1") != _GZIP:
            wrong = f"is Gzip, but {key!r} is not gzipped, so Pipe cannot decompress it"
            yield Problem(path, f"{wrong}; gzip the objects, or delete this key", "channel-not-gzip")


def with_lines(subject: Subject) -> Iterator[tuple[SpecPath, S3Location]]:
    """Yield the channels whose lines go through a Pipe as they are stored."""
    for entry, place in channels(subject, "S3Prefix"):
        is_stored_so = entry.get("CompressionType") != "Gzip" and entry.get("RecordWrapperType") != "RecordIO"
        if entry.mode == "Pipe" and entry.content_type in LINES and is_stored_so:
            yield entry.path("input_mode"), place


def line_ends(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Problem]:
    """Do the objects of a Pipe channel of lines end with a line feed?"""
    found = listing(subject, place)
    for key in found.full.examples if found.count > 1 else ():
        named = S3Location(place.bucket, key)
        if some_bytes(subject, named, "-1") != b"\n" and some_bytes(subject, named, "0-1") != _GZIP:
            message = (
                f"is Pipe, which joins objects, but {key!r} does not end with a line feed, so its last line and the next"
                " object's first would become one; end every object with a line feed, or use FastFile"
            )
            yield Problem(path, message, "pipe-joins-lines")
            return


@dataclass(frozen=True)
class Size:
    """What is known of the objects of a channel."""

    count: int
    host_bytes: Sequence[int]
    is_complete: bool


def size_of(subject: Subject, entry: Entry, place: S3Location) -> Size | None:
    """Return what the other checks have listed of a channel; None if its manifest was not read. Raises AwsError."""
    if entry.get("S3DataType") == "S3Prefix":
        found = listing(subject, place)
        return Size(found.count, found.host_bytes(hosts_that_share(subject, entry)), found.is_complete)
    named = named_objects(subject, entry, place)
    return Size(named.count, named.host_bytes, named.is_complete) if named else None


def sharded(subject: Subject) -> Iterator[tuple[SpecPath, tuple[Entry, S3Location]]]:
    """Yield the channels whose objects are divided among hosts."""
    for entry, place in channels(subject, "S3Prefix", "ManifestFile"):
        if hosts_that_share(subject, entry) > 1:
            yield entry.path("s3_data_distribution_type"), (entry, place)


def shares(subject: Subject, path: SpecPath, channel: tuple[Entry, S3Location]) -> Iterator[Problem]:
    """Does ShardedByS3Key give every host a similar amount of data?"""
    entry, place = channel
    size, hosts = size_of(subject, entry, place), hosts_that_share(subject, entry)
    if size is None:
        return
    is_counted = size.is_complete or entry.get("S3DataType") == "ManifestFile"
    if is_counted and 0 < size.count < hosts:
        objects = "1 object" if size.count == 1 else f"{size.count} objects"
        message = (
            f"ShardedByS3Key has {objects} for {hosts} hosts, so {hosts - size.count} would get nothing; split the data into at"
            f" least {hosts} objects, use fewer hosts, or use FullyReplicated"
        )
        yield Problem(path, message, "share-empty")
        return
    most, total = max(size.host_bytes), sum(size.host_bytes)
    is_known = size.is_complete or entry.get("S3DataType") == "S3Prefix"  # a listing's beginning is whole
    if is_known and total >= _MUCH and most > _UNEVEN * total / hosts:
        message = (
            f"ShardedByS3Key divides objects, whatever their size: assigned in order, one of {hosts} hosts would get "
            f"{human_bytes(most)}, {most * hosts / total:.1f} times the mean, and the others wait for it; make the objects similar"
            " in size"
        )
        yield Problem(path, message, "share-uneven")
