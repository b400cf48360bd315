"""Rules on what a channel names: a prefix, folder or manifest in S3, or a directory on EFS or FSx for Lustre."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.request.view import Draft, Entry
from launcher.rules.channels.uris import bucket, object_key, uris
from launcher.rules.rule import Mistake, error, warning
from launcher.spec.channels import KINDS, source_of_entry
from sagemaker_channels import contract

_SHOWS_MOUNT_NAME = "(`aws fsx describe-file-systems` shows it as MountName)"
_WORDS = ("datasets", "examples", "imagenet", "training")  # names of folders that look like mount names


@error("channel-attribute-names")
def attribute_names_belong_to_augmented_manifests(draft: Draft) -> Iterator[Mistake]:
    """AttributeNames select from the lines of an augmented manifest, which needs at least one; other data allows none."""
    for entry in draft.entries:
        augmented, names = entry.is_augmented, entry.get("AttributeNames")
        if augmented and not names:
            yield entry.path("AttributeNames"), "is missing; name the attributes to send, such as [source-ref, class]"
        elif names and not augmented:
            message = "needs an augmented manifest; write s3_data_type: AugmentedManifestFile, or delete it"
            yield entry.path("AttributeNames"), message


@error("channel-fast-file-needs-prefix")
def fast_file_needs_prefix(draft: Draft) -> Iterator[Mistake]:
    """FastFile mounts a prefix; it cannot read a manifest."""
    for entry in draft.entries:
        if entry.mode == "FastFile" and entry.get("S3DataType") == "ManifestFile":
            message = "'ManifestFile' does not work with input_mode FastFile; use File or Pipe, or a prefix"
            yield entry.path("S3DataType"), message


@warning("channel-fast-file-folder")
def fast_file_needs_a_folder(draft: Draft) -> Iterator[Mistake]:
    """FastFile sees folders: a URI that is part of a folder's name finds nothing."""
    for entry in draft.entries:
        uri, manifest = _uri(entry), str(entry.get("S3DataType")).endswith("ManifestFile")
        mounted = entry.mode == "FastFile" and not manifest
        if mounted and uri and object_key(uri) and not uri.endswith("/"):
            yield entry.path("S3Uri"), f"{uri!r} should be a whole folder under FastFile; end it with '/'"


@warning("channel-double-slash")
def files_have_no_empty_folder_names(draft: Draft) -> Iterator[Mistake]:
    """A key with `//` cannot be a path, so neither File nor FastFile can provide it."""
    for entry in draft.entries:
        uri = _uri(entry)
        if entry.mode in ("File", "FastFile") and uri and "//" in f"/{object_key(uri)}":
            fixed = uri[: len("s3://")] + re.sub("/{2,}", "/", uri[len("s3://") :])
            message = f"{uri!r} has '//' in its key, which {entry.mode} mode cannot provide as a file; write {fixed!r}"
            yield entry.path("S3Uri"), message


@error("channel-directory-bucket-folder")
def directory_buckets_list_folders(draft: Draft) -> Iterator[Mistake]:
    """A directory bucket (S3 Express One Zone) lists only folders: prefixes that end in `/`."""
    manifests = [each.path("S3Uri") for each in draft.entries if str(each.get("S3DataType")).endswith("ManifestFile")]
    for path, uri in uris(draft):
        is_part = bucket(uri).endswith(contract.DIRECTORY_BUCKET) and object_key(uri) and not uri.endswith("/")
        if is_part and path[0] in ("InputDataConfig", "channels") and path not in manifests:
            yield path, f"{uri!r} is in a directory bucket, which lists only folders; write {uri + '/'!r}"


@error("channel-manifest-is-object")
def manifest_is_an_object(draft: Draft) -> Iterator[Mistake]:
    """A manifest's S3Uri identifies an object, not a folder."""
    for entry in draft.entries:
        uri, is_manifest = _uri(entry), entry.get("S3DataType") in ("ManifestFile", "AugmentedManifestFile")
        if uri and is_manifest and (uri.endswith("/") or not object_key(uri)):
            yield entry.path("S3Uri"), f"{uri!r} is a folder, but a manifest is one object; write its whole key"


@warning("channel-whole-bucket")
def whole_bucket(draft: Draft) -> Iterator[Mistake]:
    """A URI without a key selects every object of the bucket."""
    for entry in draft.entries:
        uri = _uri(entry)
        if uri and not object_key(uri) and entry.get("S3DataType") == "S3Prefix":
            yield entry.path("S3Uri"), f"{uri!r} means the whole bucket; add the folder if that is not meant"


def _uri(entry: Entry) -> str:
    """Return a channel's S3 URI; empty if it is invalid, which its pattern or s3-uri-place reports."""
    uri = entry.get("S3Uri") or ""
    return uri if bucket(uri) and not bucket(uri).endswith(":") else ""


@error("file-system-needs-vpc")
def file_systems_need_a_vpc(draft: Draft) -> Iterator[Mistake]:
    """EFS and FSx are reached through the job's own network."""
    if draft.get("VpcConfig") is None:
        remedy = "add vpc_config: {security_group_ids: [sg-...], subnets: [subnet-...]}"
        for entry in draft.entries:
            if entry.is_file_system:
                yield entry.whole, f"is a file system, which is reached only from inside its VPC; {remedy}"


@error("file-system-mode")
def file_systems_use_file_mode(draft: Draft) -> Iterator[Mistake]:
    """Channels of file systems are always in File mode: the directory itself is mounted, and nothing is copied."""
    for entry in draft.entries:
        if entry.is_file_system and entry.mode not in ("File", None):
            yield entry.path("InputMode"), f"is {entry.mode!r}, but a file system is always File; delete the key"


def _has_mount_name(entry: Entry) -> bool:
    kind = KINDS.get(str(source_of_entry(entry.request)))
    return kind is not None and kind.HAS_MOUNT_NAME


@error("directory-path-absolute")
def directory_path_is_absolute(draft: Draft) -> Iterator[Mistake]:
    """A directory on a file system is named by its full path; the model's pattern allows any text."""
    for entry in draft.entries:
        path = entry.get("DirectoryPath")
        if path is not None and not path.startswith("/"):
            full = f"'/MOUNTNAME/{path}' {_SHOWS_MOUNT_NAME}" if _has_mount_name(entry) else repr(f"/{path}")
            yield entry.path("DirectoryPath"), f"{path!r} is not a full path; write {full}"


@warning("fsx-mount-name")
def fsx_mount_name(draft: Draft) -> Iterator[Mistake]:
    """FSx paths begin with the file system's mount name, which is `fsx` on Scratch_1 file systems only."""
    for entry in draft.entries:
        path = entry.get("DirectoryPath") or ""
        if not _has_mount_name(entry) or not path.startswith("/"):
            continue
        if re.match(r"/fsx(/|$)", path):
            remedy = f"on others write their own mount name {_SHOWS_MOUNT_NAME}"
            yield entry.path("DirectoryPath"), f"{path!r} exists on SCRATCH_1 file systems only; {remedy}"
        elif not re.match(r"/[a-z0-9]{8}(/|$)", path) or path.split("/")[1] in _WORDS:
            example = f"write '/MOUNTNAME{path.rstrip('/')}' {_SHOWS_MOUNT_NAME}"
            yield entry.path("DirectoryPath"), f"{path!r} does not begin with the file system's mount name; {example}"


@warning("shuffle-on-file-system")
def shuffling_needs_objects(draft: Draft) -> Iterator[Mistake]:
    """ShuffleConfig shuffles objects of S3; it has no meaning on a file system."""
    for entry in draft.entries:
        if entry.is_file_system and entry.get("ShuffleConfig") is not None:
            yield entry.path("ShuffleConfig"), "has no effect on a file system; delete it"
