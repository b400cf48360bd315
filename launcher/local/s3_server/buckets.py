"""Operations on buckets: listing them and their objects, and deleting several objects in one request.

Each takes a `Call`, returns the response, and raises S3Errors; the names are S3's.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote

from launcher.local.s3_server.call import Call, xml
from launcher.local.s3_server.documents import NO_VERSION, S3Error, Value, read_deletions, timestamp
from launcher.local.s3_server.http_server import Response
from launcher.local.s3_server.storage.walker import Page, make_page, make_scattered_page
from sagemaker_channels.contract import DIRECTORY_BUCKET

_REGION = "us-east-1"  # a bucket there has no LocationConstraint
_PAGE = 1000  # keys, as in S3
_OWNER = [("ID", "launcher")]


def list_buckets(call: Call) -> Response:
    """List the buckets of both folders."""
    buckets = [
        ("Bucket", [("Name", name), ("CreationDate", timestamp(changed))])
        for name, changed in call.store.buckets().items()
    ]
    return xml("ListAllMyBucketsResult", [("Buckets", buckets), ("Owner", _OWNER)])


def head_bucket(call: Call) -> Response:
    """Check that the bucket exists."""
    call.store.require_bucket(call.bucket)
    return Response(200, {"x-amz-bucket-region": _REGION})


def get_bucket_location(call: Call) -> Response:
    """Return the region."""
    call.store.require_bucket(call.bucket)
    return xml("LocationConstraint", [])


def create_session(call: Call) -> Response:
    """Return credentials for S3 Express, whose clients request some before anything else: those that signed the request."""
    key_id, secret = call.credentials
    credentials = [("SessionToken", "local"), ("SecretAccessKey", secret), ("AccessKeyId", key_id)]
    return xml("CreateSessionResult", [("Credentials", [*credentials, ("Expiration", timestamp(time.time() + 3600))])])


def create_bucket(call: Call) -> Response:
    """Make a bucket in the overlay, whichever region the body names."""
    call.store.create_bucket(call.bucket)
    return Response(200, {"Location": f"/{call.bucket}"})


def delete_bucket(call: Call) -> Response:
    """Remove an empty bucket that the job has made."""
    call.store.delete_bucket(call.bucket)
    return Response(204)


def list_objects(call: Call) -> Response:
    """ListObjectsV2, or ListObjects without `list-type=2`."""
    second = call.query.get("list-type") == "2"
    encode, page = _encoding(call), _page(call, _marker(call, second=second))
    pairs = _described(call, page)
    owned = not second or call.query.get("fetch-owner") == "true"
    contents = [("Contents", [*entry, ("Owner", _OWNER)] if owned else entry) for entry in _entries(call, page)]
    if second:
        pairs.append(("KeyCount", len(contents) + len(page.common)))
        if token := call.query.get("continuation-token"):
            pairs.append(("ContinuationToken", token))
        if page.truncated:
            pairs.append(("NextContinuationToken", base64.urlsafe_b64encode(page.last.encode()).decode()))
        if start := call.query.get("start-after"):
            pairs.append(("StartAfter", encode(start)))
    else:
        pairs.append(("Marker", encode(call.query.get("marker", ""))))
        if page.truncated and call.query.get("delimiter"):
            pairs.append(("NextMarker", encode(page.last)))
    return xml("ListBucketResult", [*pairs, *contents, *_common_prefixes(call, page)])


def list_object_versions(call: Call) -> Response:
    """List the objects, each with its only version, as S3 lists a bucket without versioning."""
    marker = call.query.get("key-marker", "")
    encode, page = _encoding(call), _page(call, marker)
    pairs = [*_described(call, page), ("KeyMarker", encode(marker))]
    if page.truncated:
        pairs += [("NextKeyMarker", encode(page.last)), ("NextVersionIdMarker", NO_VERSION)]
    version: list[tuple[str, Value]] = [("VersionId", NO_VERSION), ("IsLatest", True)]
    pairs += [("Version", [*entry, *version]) for entry in _entries(call, page)]
    return xml("ListVersionsResult", [*pairs, *_common_prefixes(call, page)])


def list_multipart_uploads(call: Call) -> Response:
    """List the unfinished uploads whose key begins with the prefix, all in one response."""
    encode = _encoding(call)
    prefix = call.query.get("prefix", "")
    uploads = [
        ("Upload", [("Key", encode(upload.key)), ("UploadId", name), ("Initiated", timestamp(upload.started))])
        for name, upload in call.uploads.of_bucket(call.bucket)
        if upload.key.startswith(prefix)
    ]
    return xml("ListMultipartUploadsResult", [("Bucket", call.bucket), ("IsTruncated", False), *uploads])


def delete_objects(call: Call) -> Response:
    """Delete the keys of the request's body and report the result of each."""
    keys, quiet = read_deletions(call.document_body())
    call.store.require_bucket(call.bucket)
    pairs: list[tuple[str, Value]] = []
    for key in keys:
        try:
            call.store.delete(call.bucket, key)
        except S3Error as error:
            pairs.append(("Error", [("Key", key), ("Code", error.code), ("Message", error.details["Message"])]))
        else:
            pairs += [] if quiet else [("Deleted", [("Key", key)])]
    return xml("DeleteResult", pairs)


def _page(call: Call, marker: str) -> Page:
    call.store.require_bucket(call.bucket)
    prefix, limit = call.query.get("prefix", ""), min(call.number("max-keys", _PAGE), _PAGE)
    delimiter = call.query.get("delimiter", "")
    if not call.bucket.endswith(DIRECTORY_BUCKET):
        return make_page(partial(call.store.keys, call.bucket, prefix), prefix, delimiter, marker, limit)
    if call.query.get("list-type") != "2" or "start-after" in call.query:
        raise S3Error("NotImplemented", Message="directory buckets have only ListObjectsV2, without StartAfter")
    if delimiter not in ("", "/") or not f"/{prefix}".endswith("/"):
        raise S3Error(
            "InvalidRequest", Message="directory buckets list only folders: prefixes that end in /, the delimiter"
        )
    return make_scattered_page(call.store.keys(call.bucket, prefix, ""), prefix, delimiter, marker, limit)


def _described(call: Call, page: Page) -> list[tuple[str, Value]]:
    """Return the elements that every listing begins with."""
    encode, delimiter = _encoding(call), call.query.get("delimiter")
    pairs: list[tuple[str, Value]] = [("Name", call.bucket), ("Prefix", encode(call.query.get("prefix", "")))]
    pairs += [("Delimiter", encode(delimiter))] if delimiter else []
    pairs += [("EncodingType", "url")] if "encoding-type" in call.query else []
    return [*pairs, ("MaxKeys", min(call.number("max-keys", _PAGE), _PAGE)), ("IsTruncated", page.truncated)]


def _entries(call: Call, page: Page) -> Iterator[list[tuple[str, Value]]]:
    """Yield the elements of each object of the page that still exists."""
    encode = _encoding(call)
    for key, path in page.keys:
        stored = call.store.describe(call.bucket, key, path)
        if stored is not None:
            yield [
                ("Key", encode(key)),
                ("LastModified", timestamp(stored.modified)),
                ("ETag", f'"{stored.etag}"'),
                ("Size", stored.size),
                ("StorageClass", stored.headers.get("x-amz-storage-class", "STANDARD")),
            ]


def _common_prefixes(call: Call, page: Page) -> list[tuple[str, Value]]:
    encode = _encoding(call)
    return [("CommonPrefixes", [("Prefix", encode(common))]) for common in page.common]


def _encoding(call: Call) -> Callable[[str], str]:
    """Return the encoding of keys in a response: none, or percent-encoding if the client requests it."""
    kind = call.query.get("encoding-type")
    if kind not in (None, "url"):
        raise S3Error("InvalidArgument", Message="Invalid Encoding Method specified in Request")
    return quote if kind else str


def _marker(call: Call, *, second: bool) -> str:
    if not second:
        return call.query.get("marker", "")
    token = call.query.get("continuation-token")
    if token is None:
        return call.query.get("start-after", "")
    try:
        marker = base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        marker = ""
    if not marker:
        raise S3Error("InvalidArgument", Message="The continuation token provided is incorrect")
    return marker
