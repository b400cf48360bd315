"""Rules on the prefix, folder or manifest that a channel's URI names in S3."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.checks.channels.uris import bucket, object_key
from launcher.checks.rule import Mistake, error, warning
from launcher.request.view import Draft, Entry


@error("channel-attribute-names")
def attribute_names_belong_to_augmented_manifests(draft: Draft) -> Iterator[Mistake]:
    """AttributeNames select from the lines of an augmented manifest, which needs at least one; other data allows none."""
    for entry in draft.entries:
        augmented, names = entry.get("S3DataType") == "AugmentedManifestFile", entry.get("AttributeNames")
        if augmented and not names:
            yield entry.path("attribute_names"), "is missing; name the attributes to send, such as [source-ref, class]"
        elif names and not augmented:
            message = "needs an augmented manifest; write s3_data_type: AugmentedManifestFile, or delete it"
            yield entry.path("attribute_names"), message


@error("channel-fast-file-needs-prefix")
def fast_file_needs_prefix(draft: Draft) -> Iterator[Mistake]:
    """FastFile mounts a prefix; it cannot read a manifest."""
    for entry in draft.entries:
        if entry.mode == "FastFile" and entry.get("S3DataType") == "ManifestFile":
            message = "'ManifestFile' does not work with input_mode FastFile; use File or Pipe, or a prefix"
            yield entry.path("s3_data_type"), message


@warning("channel-fast-file-folder")
def fast_file_needs_a_folder(draft: Draft) -> Iterator[Mistake]:
    """FastFile sees folders: a URI that is part of a folder's name finds nothing."""
    for entry in draft.entries:
        uri, manifest = _uri(entry), str(entry.get("S3DataType")).endswith("ManifestFile")
        mounted = entry.mode == "FastFile" and not manifest
        if mounted and uri and object_key(uri) and not uri.endswith("/"):
            yield entry.path("s3_uri"), f"{uri!r} should be a whole folder under FastFile; end it with '/'"


@warning("channel-double-slash")
def files_have_no_empty_folder_names(draft: Draft) -> Iterator[Mistake]:
    """A key with `//` cannot be a path, so neither File nor FastFile can provide it."""
    for entry in draft.entries:
        uri = _uri(entry)
        if entry.mode in ("File", "FastFile") and uri and "//" in f"/{object_key(uri)}":
            fixed = uri[: len("s3://")] + re.sub("/{2,}", "/", uri[len("s3://") :])
            message = f"{uri!r} has '//' in its key, which {entry.mode} mode cannot provide as a file; write {fixed!r}"
            yield entry.path("s3_uri"), message


@error("channel-manifest-is-object")
def manifest_is_an_object(draft: Draft) -> Iterator[Mistake]:
    """A manifest's S3Uri identifies an object, not a folder."""
    for entry in draft.entries:
        uri, is_manifest = _uri(entry), entry.get("S3DataType") in ("ManifestFile", "AugmentedManifestFile")
        if uri and is_manifest and (uri.endswith("/") or not object_key(uri)):
            yield entry.path("s3_uri"), f"{uri!r} is a folder, but a manifest is one object; write its whole key"


@warning("channel-whole-bucket")
def whole_bucket(draft: Draft) -> Iterator[Mistake]:
    """A URI without a key selects every object of the bucket."""
    for entry in draft.entries:
        uri = _uri(entry)
        if uri and not object_key(uri) and entry.get("S3DataType") == "S3Prefix":
            yield entry.path("s3_uri"), f"{uri!r} means the whole bucket; add the folder if that is not meant"


def _uri(entry: Entry) -> str:
    """Return a channel's S3 URI; empty if it is invalid, which its pattern or s3-uri-place reports."""
    uri = entry.get("S3Uri") or ""
    return uri if bucket(uri) and not bucket(uri).endswith(":") else ""
