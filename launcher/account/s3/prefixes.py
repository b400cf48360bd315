"""What is stored below each prefix: how much, whether the input mode supports it, whether it is what was meant and can be read.

Times are estimates from AWS's measurements on one instance type (aws-samples/sagemaker-bencher, ml.p3.2xlarge), and are
marked as estimates.

Objects in an archive are listed like all others, but not readable until they are restored. A listing contains the storage class. It
contains neither whether an object in GLACIER has been restored nor whether Intelligent-Tiering has archived one. HeadObject returns
both (Restore, ArchiveStatus), so the check asks about a few objects. Objects in GLACIER_IR are readable like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.s3.listing import ARCHIVES, Listing, beside, listing, near
from launcher.account.uses import channels, connectors, hosts_that_share, prefixes_read
from launcher.console import human_bytes
from launcher.errors import SpecPath
from launcher.request.view import Entry
from launcher.s3.uri import S3Location

_FEW = 10_000  # objects; fewer are copied in a minute or two, however small
_SMALL = 50e6  # bytes; below this the request per object decides the time
_SHARD = 100e6  # bytes of an object that is large enough
_OBJECTS_PER_SECOND, _BYTES_PER_SECOND, _START = 130, 155e6, 15.0  # of copying for File
_LONG = 60.0  # seconds of copying that are worth a note
_LISTED_PER_SECOND = 10_000  # by FastFile
_CANNOT_SERVE = {"File": ("prefix-file-keys", "copy"), "FastFile": ("prefix-fast-file-keys", "mount")}
_COPIED_BY_FILE = ("have an empty folder name ('//')",)  # odd keys that File copies all the same


def _places(subject: Subject) -> Iterator[tuple[SpecPath, tuple[S3Location, Entry | None]]]:
    """Yield each channel that names a prefix: SageMaker's with their entries, and those that the script reads itself."""
    for entry, place in channels(subject, "S3Prefix"):
        yield entry.path("s3_uri"), (place, entry)
    for path, place in connectors(subject):
        yield path, (place, None)


def _ask_prefix(subject: Subject, path: SpecPath, channel: tuple[S3Location, Entry | None]) -> Iterator[Finding]:
    place, entry = channel
    found = listing(subject, place)
    if found.count == 0 and found.folders:
        yield path, "prefix-only-folders", f"{place} holds empty folders but no object; upload the data first"
        return
    if found.count == 0:
        names, meant = near(subject, place)
        beside_it = f"; beside it are {', '.join(names[:3])}" if names else ""
        message = f"no object begins with {place}{meant or beside_it}; correct the URI, or upload the data first"
        yield path, "prefix-empty" if entry is not None else "connector-empty", message
        return
    if found.markers == found.count and found.is_complete:
        only = f"{place} holds {found.described()}, all of them markers of Hadoop (_SUCCESS, x_$folder$)"
        yield path, "prefix-only-folders", f"{only}, and no data; correct the URI, or upload the data first"
        return
    hosts = hosts_that_share(subject, entry) if entry is not None else 1
    subject.note(path, found.described() + _on_each_host(found, entry, hosts))
    yield from _siblings(subject, path, found)
    if found.empty.count:
        wrong = f"{found.least}{found.empty.count:,} of {found.count:,} objects are empty (0 bytes), such as"
        remedy = "upload them again, or delete them"
        yield path, "prefix-empty-objects", f"{wrong} {', '.join(map(repr, found.empty.examples))}; {remedy}"
    if entry is not None:
        yield from _unservable(path, found, entry)
        yield from _small(path, found, entry, hosts)


def _on_each_host(found: Listing, entry: Entry | None, hosts: int) -> str:
    """Return words for the fullest host's share, and for the duration of its copy if that is worth knowing."""
    most = max(found.host_bytes(hosts))
    words = f"; {human_bytes(most)} on the fullest of {hosts} hosts" if hosts > 1 else ""
    seconds = _copying(found.count / hosts, most)
    if entry is not None and entry.get("InputMode") == "File" and seconds > _LONG:
        more = "" if found.is_complete else " or more"
        words += f"; copied in about {_time(seconds)}{more} by estimate"
    return words


def _siblings(subject: Subject, path: SpecPath, found: Listing) -> Iterator[Finding]:
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
    yield path, "prefix-siblings", f"{found.place} {also}; {remedy}"


def _unservable(path: SpecPath, found: Listing, entry: Entry) -> Iterator[Finding]:
    mode = entry.get("InputMode")
    code, does = _CANNOT_SERVE.get(mode, ("", ""))
    for what, odd in found.odd.items() if code else ():
        if mode == "File" and what in _COPIED_BY_FILE:
            continue
        message = (
            f"{found.least}{odd.count:,} of the keys {what}, which {mode} cannot {does} as files, such as "
            f"{', '.join(map(repr, odd.examples))}; rename them, or read the channel with Pipe or the S3 Connector"
        )
        yield path, code, message


def _small(path: SpecPath, found: Listing, entry: Entry, hosts: int) -> Iterator[Finding]:
    if found.count <= _FEW or found.bytes / found.count >= _SMALL:
        return
    count, size = found.count / hosts, found.bytes / hosts
    if entry.get("InputMode") == "File":
        now, then = _time(_copying(count, size)), _time(_copying(size / _SHARD, size))
        slow = f"copying them takes about {now} by estimate, {then} if joined"
    elif entry.get("InputMode") == "FastFile":
        wait = _time(count / _LISTED_PER_SECOND + _START)
        slow = f"FastFile lists them in about {wait} and reads such small objects at about half the speed, by estimate"
    else:
        slow = f"each needs its own request, about {_OBJECTS_PER_SECOND} per second by estimate"
    average = f"{human_bytes(found.bytes / found.count)} each on average"
    remedy = "join them into objects of about 100 MB (tar, RecordIO, TFRecord)"
    yield path, "prefix-small-objects", f"{found.described()}: {average}; {slow}; {remedy}"


def _copying(count: float, size: float) -> float:
    """Return the estimated seconds to copy the objects for File."""
    return max(count / _OBJECTS_PER_SECOND, size / _BYTES_PER_SECOND) + _START


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


CHECK = Check("prefixes", _ask_prefix, _places)


REMEDY = "restore them (aws s3api restore-object), or copy them to S3 Standard"


def archive_of(head: Mapping[str, Any]) -> str | None:
    """Return the archive that an object is in, from HeadObject's answer; None if the object can be read."""
    if 'ongoing-request="false"' in str(head.get("Restore", "")):
        return None
    if head.get("ArchiveStatus"):
        return str(head["ArchiveStatus"])
    return str(head["StorageClass"]) if head.get("StorageClass") in ARCHIVES else None


def _ask_archives(subject: Subject, path: SpecPath, place: S3Location) -> Iterator[Finding]:
    found = listing(subject, place)
    archived = f"{found.least}{found.archived.count:,} of {found.count:,} objects"
    for what, kind in ((archived, found.archived), ("objects", found.tiered)):
        for key in kind.examples:
            if archive := archive_of(subject.ask("s3", "head_object", Bucket=place.bucket, Key=key)):
                wrong = f"below {place}, {what} are archived ({archive}), such as {key!r}"
                yield path, "objects-archived", f"{wrong}, and cannot be read; {REMEDY}"
                return


READABLE = Check("archives", _ask_archives, prefixes_read)
