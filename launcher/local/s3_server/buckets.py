"""Operations on buckets: listing them and their objects, and deleting several objects in one request.

Each takes a `Call`, returns the response, and raises S3Errors; the names are S3's.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from urllib.parse import quote

from launcher.local.s3_server.call import Call, xml
from launcher.local.s3_server.documents import NO_VERSION, Pairs, S3Error, Value, read_deletions, timestamp
from launcher.local.s3_server.storage.walker import Page, make_page
from launcher.local.s3_server.wire import Response

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
    prefix, delimiter = call.query.get("prefix", ""), call.query.get("delimiter", "")
    limit = min(call.number("max-keys", _PAGE), _PAGE)
    second = call.query.get("list-type") == "2"
    encode = _encoding(call)

    def keys_from(low: str) -> Iterator[tuple[str, str]]:
        return call.store.keys(call.bucket, prefix, low)

    call.store.require_bucket(call.bucket)
    page = make_page(keys_from, prefix, delimiter, _marker(call, second=second), limit)
    pairs: list[tuple[str, Value]] = [("Name", call.bucket), ("Prefix", encode(prefix))]
    if delimiter:
        pairs.append(("Delimiter", encode(delimiter)))
    if "encoding-type" in call.query:
        pairs.append(("EncodingType", "url"))
    pairs += [("MaxKeys", limit), ("IsTruncated", "true" if page.truncated else "false")]
    contents = _contents(call, page, encode)
    if not second or call.query.get("fetch-owner") == "true":
        contents = [(name, [*entry, ("Owner", _OWNER)]) for name, entry in contents]
    if second:
        pairs.append(("KeyCount", len(contents) + len(page.common)))
        pairs += [("ContinuationToken", token)] if (token := call.query.get("continuation-token")) else []
        pairs += [("NextContinuationToken", _token(page.last))] if page.truncated else []
        pairs += [("StartAfter", encode(start))] if (start := call.query.get("start-after")) else []
    else:
        pairs.append(("Marker", encode(call.query.get("marker", ""))))
        pairs += [("NextMarker", encode(page.last))] if page.truncated and delimiter else []
    pairs += contents
    pairs += [("CommonPrefixes", [("Prefix", encode(common))]) for common in page.common]
    return xml("ListBucketResult", pairs)


def list_object_versions(call: Call) -> Response:
    """List the objects, each with its only version, as S3 lists a bucket without versioning."""
    prefix, delimiter, marker = (call.query.get(name, "") for name in ("prefix", "delimiter", "key-marker"))
    limit = min(call.number("max-keys", _PAGE), _PAGE)
    encode = _encoding(call)
    call.store.require_bucket(call.bucket)
    page = make_page(lambda low: call.store.keys(call.bucket, prefix, low), prefix, delimiter, marker, limit)
    pairs: list[tuple[str, Value]] = [("Name", call.bucket), ("Prefix", encode(prefix)), ("KeyMarker", encode(marker))]
    pairs += [("EncodingType", "url")] if "encoding-type" in call.query else []
    pairs += [("MaxKeys", limit), ("IsTruncated", "true" if page.truncated else "false")]
    if page.truncated:
        pairs += [("NextKeyMarker", encode(page.last)), ("NextVersionIdMarker", NO_VERSION)]
    for _, entry in _contents(call, page, encode):
        pairs.append(("Version", [*entry, ("VersionId", NO_VERSION), ("IsLatest", "true")]))
    pairs += [("CommonPrefixes", [("Prefix", encode(common))]) for common in page.common]
    return xml("ListVersionsResult", pairs)


def list_multipart_uploads(call: Call) -> Response:
    """List the unfinished uploads whose key begins with the prefix, all in one response."""
    encode = _encoding(call)
    prefix = call.query.get("prefix", "")
    uploads = [
        (
            "Upload",
            [("Key", encode(upload.key)), ("UploadId", upload_id), ("Initiated", timestamp(upload.started))],
        )
        for upload_id, upload in call.uploads.of_bucket(call.bucket)
        if upload.key.startswith(prefix)
    ]
    return xml("ListMultipartUploadsResult", [("Bucket", call.bucket), ("IsTruncated", "false"), *uploads])


def delete_objects(call: Call) -> Response:
    """Delete the keys of the request's body and report the result of each."""
    keys, quiet = read_deletions(call.document_body())
    call.store.require_bucket(call.bucket)
    pairs: list[tuple[str, Value]] = []
    for key in keys:
        error = _delete(call, key)
        if error is not None:
            pairs.append(("Error", [("Key", key), ("Code", error.code), ("Message", error.details["Message"])]))
        elif not quiet:
            pairs.append(("Deleted", [("Key", key)]))
    return xml("DeleteResult", pairs)


def _delete(call: Call, key: str) -> S3Error | None:
    try:
        call.store.delete(call.bucket, key)
    except S3Error as error:
        return error
    return None


def _contents(call: Call, page: Page, encode: Callable[[str], str]) -> list[tuple[str, Pairs]]:
    contents: list[tuple[str, Pairs]] = []
    for key, path in page.keys:
        stored = call.store.describe(call.bucket, key, path)
        if stored is not None:
            entry: Pairs = [
                ("Key", encode(key)),
                ("LastModified", timestamp(stored.modified)),
                ("ETag", f'"{stored.etag}"'),
                ("Size", stored.size),
                ("StorageClass", stored.headers.get("x-amz-storage-class", "STANDARD")),
            ]
            contents.append(("Contents", entry))
    return contents


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


def _token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()
