"""The channels of a job that can be advised on, and the place of each, in AWS or below a folder of this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from launcher.account.check import Subject
from launcher.account.storage import connectors, hosts_that_share, place_of
from launcher.aws.remote_objects import RemoteObjects
from launcher.aws.session import Account
from launcher.console import say, shown_path
from launcher.errors import InputError, did_you_mean
from launcher.local.channels.objects import FolderObjects, Objects
from launcher.request.view import Entry
from launcher.s3.manifests import read_manifest
from launcher.s3.uri import S3Location
from launcher.spec.channels import KINDS, source_of_entry
from sagemaker_channels import contract


@dataclass(frozen=True)
class Channel:
    """A channel, or a URI that stands for one."""

    name: str
    place: S3Location  # on a file system: its ID, and the directory
    storage: str = "S3"  # the source of a storage kind, S3 for all that read it
    present: str | None = None  # the way of the spec
    manifest: str | None = None  # the URI of its manifest
    instances: int = 1
    is_sharded: bool = False
    style: str | None = None  # of S3Connector: map or iterable
    folder: Path | None = None  # of this machine, that is looked at in place of all of this
    content_type: str | None = None
    is_wrapped: bool = False  # in RecordIO, by a Pipe
    is_gzip: bool = False  # undone by a Pipe
    attributes: tuple[str, ...] = ()  # of each line, if the manifest is an augmented one

    @property
    def shown(self) -> str:
        if self.folder is not None:
            return shown_path(self.folder)
        if self.storage == "S3":
            return self.manifest or str(self.place)
        return f"{self.storage} {self.place.bucket}:{self.place.key}"


def channels_of(
    subject: Subject, wanted: Collection[str] = (), *, augmented: bool = False
) -> tuple[list[Channel], list[str]]:
    """Return the channels of a job, or only those that are `wanted`, those of augmented manifests if asked; and why others are not.

    Raises InputError if there is none.
    """
    found: dict[str, Channel | str] = {}
    for entry in subject.draft.entries:
        if subject.code_uri is None or entry.name != contract.CODE_CHANNEL:
            found[entry.name] = _channel(subject, entry)
    hosts = subject.draft.instance_count or 1
    for path, place in connectors(subject):
        name = str(path[1])
        written = (subject.draft.spec.channels or {})[name]
        style = getattr(written, "style", None)
        kind = written.content_type
        found[name] = Channel(name, place, present=written.WAYS[0], instances=hosts, style=style, content_type=kind)
    for name, each in found.items():
        if not augmented and isinstance(each, Channel) and each.attributes:
            found[name] = "an augmented manifest is read by Pipe only, so there is nothing to choose"
    if not found:
        raise InputError("the spec has no channels; add one: `channels: {train: s3://bucket/prefix/}`")
    for name in wanted:
        if name not in found:
            near = did_you_mean(name, found) or f"; it has {', '.join(found)}"
            raise InputError(f"the spec has no channel {name!r}{near}")
    chosen = {name: each for name, each in found.items() if not wanted or name in wanted}
    advised = [each for each in chosen.values() if isinstance(each, Channel)]
    left_out = [f"channels.{name}: {why}" for name, why in chosen.items() if isinstance(why, str)]
    if not advised:
        raise InputError("; ".join(left_out))
    return advised, left_out


def _channel(subject: Subject, entry: Entry) -> Channel | str:
    """Return a channel of the request, or why there is no advice on it."""
    hosts = subject.draft.host_count(entry) or 1
    if entry.is_file_system:
        storage = str(entry.get("FileSystemType"))
        place = S3Location(entry.get("FileSystemId") or "", entry.get("DirectoryPath") or "/")
        return Channel(entry.name, place, storage, storage, instances=hosts, content_type=entry.get("ContentType"))
    uri, data_type = entry.get("S3Uri"), entry.get("S3DataType")
    if (found := place_of(uri)) is None:
        kind = KINDS.get(source_of_entry(entry.request) or "")
        reason = kind.WITHOUT.get("WAYS") if kind else None
        advised = ", ".join(source for source, each in KINDS.items() if each.WAYS)
        return f"{reason or 'its storage is unknown'}; advice is for channels of {advised}"
    manifest = str(uri) if data_type in ("ManifestFile", "AugmentedManifestFile") else None
    attributes = tuple(entry.get("AttributeNames") or ()) if data_type == "AugmentedManifestFile" else ()
    is_sharded = hosts_that_share(subject, entry) > 1
    return Channel(
        entry.name,
        found,
        "S3",
        entry.mode,
        manifest,
        hosts,
        is_sharded,
        content_type=entry.get("ContentType"),
        is_wrapped=entry.get("RecordWrapperType") == "RecordIO",
        is_gzip=entry.get("CompressionType") == "Gzip",
        attributes=attributes,
    )


@contextmanager
def objects_of(channel: Channel, account: Account, data: Path | None) -> Iterator[tuple[Objects, S3Location]]:
    """Open what holds a channel's objects: its own folder, the folder `data`, or the account's S3.

    Yields:
        The objects, and the place in them.

    Raises:
        InputError: The folder has no directory for the channel's file system.
    """
    if data is None and channel.folder is None:
        yield RemoteObjects(account), channel.place
        return
    from launcher.local.s3_server.store import Store

    data = Path() if data is None else data
    with TemporaryDirectory() as overlay:
        if channel.storage == "S3" and channel.folder is None:
            folders, place = {}, channel.place
        else:
            folder = channel.folder or _directory(channel, data)
            folders, place = {channel.place.bucket: folder}, S3Location(channel.place.bucket, "")
        store = Store(data / "s3", Path(overlay), say, folders)
        yield FolderObjects(store, data / "s3", Path(overlay)), place


def _directory(channel: Channel, data: Path) -> Path:
    """Return the folder of a channel on a file system; a path on FSx for Lustre may begin with its mount name."""
    kind = KINDS[channel.storage]
    root = data / kind.data_folder() / channel.place.bucket
    tried = kind.folders(root, channel.place.key)
    for each in tried:
        if ".." not in each.relative_to(root).parts and each.is_dir():
            return each
    raise InputError(
        f"channels.{channel.name}: there is no folder {tried[0]} for {channel.shown}; create it, or a link to it"
    )


def named_keys(channel: Channel, objects: Objects) -> tuple[S3Location, set[str]] | None:
    """Return the prefix of the channel's manifest and the keys that it names; None without one. Raises RefusedError."""
    if channel.manifest is None:
        return None
    prefix, rest = read_manifest(objects.read, channel.manifest)
    return prefix, {prefix.key + each for each in rest}
