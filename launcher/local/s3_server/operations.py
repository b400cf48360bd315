"""The operations of the embedded S3 server, under S3's names. Each takes a `Call`, returns the response, and raises S3Errors."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from itertools import islice
from typing import TypeAlias
from urllib.parse import quote

from launcher.local.s3_server.call import RANGE, Call, bounds_of, xml
from launcher.local.s3_server.documents import Pairs, S3Error, Value, text_of, timestamp
from launcher.local.s3_server.http_server import FileSlice, Response
from launcher.local.s3_server.store import Received, Stored
from launcher.local.s3_server.uploads import LAST_NUMBER, Upload
from launcher.s3.walk import names_after

Operation: TypeAlias = Callable[[Call], Response]

_REGION = "us-east-1"  # a bucket there has no LocationConstraint
_PAGE = 1000  # keys in a response, and in one request to delete some, as in S3
_DEFAULT_TYPE = "binary/octet-stream"  # S3's own


def _list_buckets(call: Call) -> Response:
    found = call.store.buckets().items()
    buckets = [("Bucket", [("Name", name), ("CreationDate", timestamp(changed))]) for name, changed in found]
    return xml("ListAllMyBucketsResult", [("Buckets", buckets)])


def _head_bucket(call: Call) -> Response:
    call.store.require_bucket(call.bucket)
    return Response(200, {"x-amz-bucket-region": _REGION})


def _get_bucket_location(call: Call) -> Response:
    call.store.require_bucket(call.bucket)
    return xml("LocationConstraint", [])


def _create_session(call: Call) -> Response:
    """Return credentials for S3 Express, whose clients request some before anything else: those that signed the request."""
    key_id, secret = call.credentials
    credentials = [("SessionToken", "local"), ("SecretAccessKey", secret), ("AccessKeyId", key_id)]
    return xml("CreateSessionResult", [("Credentials", [*credentials, ("Expiration", timestamp(time.time() + 3600))])])


def _create_bucket(call: Call) -> Response:
    call.store.create_bucket(call.bucket)
    return Response(200, {"Location": f"/{call.bucket}"})


def _list_objects(call: Call) -> Response:
    """ListObjectsV2, or ListObjects without `list-type=2`."""
    query, is_second = call.query, call.query.get("list-type") == "2"
    marker = _after(call) if is_second else query.get("marker", "")
    page, last, encode = _page(call, marker)
    if is_second:
        page.append(("KeyCount", sum(name in ("Contents", "CommonPrefixes") for name, _ in page)))
        page += [(name, query[key]) for name, key in (("ContinuationToken", "continuation-token"),) if key in query]
        page += [("StartAfter", encode(query["start-after"]))] if "start-after" in query else []
        page += [("NextContinuationToken", base64.urlsafe_b64encode(last.encode()).decode())] if last else []
    else:
        page += [
            ("Marker", encode(marker)),
            *([("NextMarker", encode(last))] if last and query.get("delimiter") else []),
        ]
    return xml("ListBucketResult", page)


def _page(call: Call, after: str) -> tuple[list[tuple[str, Value]], str, Callable[[str], str]]:
    """Return the elements of a listing from the name `after` on, its last name if more follow, and the encoding of names in it."""
    prefix, delimiter = call.query.get("prefix", ""), call.query.get("delimiter", "")
    limit, encoding = min(call.number("max-keys", _PAGE), _PAGE), call.query.get("encoding-type")
    if encoding not in (None, "url"):
        raise S3Error("InvalidArgument", Message="Invalid Encoding Method specified in Request")
    encode: Callable[[str], str] = quote if encoding else str
    found = call.store.keys(call.bucket, prefix, after, one_each=delimiter == "/")
    names = list(islice(names_after(found, prefix, delimiter, after), limit + 1))
    is_truncated = len(names) > limit > 0
    page: list[tuple[str, Value]] = [("Name", call.bucket), ("Prefix", encode(prefix))]
    page += [("Delimiter", encode(delimiter))] if delimiter else []
    page += [("EncodingType", "url")] if encoding else []
    page += [("MaxKeys", limit), ("IsTruncated", is_truncated)]
    for name, path in names[:limit]:
        if path is None:
            page.append(("CommonPrefixes", [("Prefix", encode(name))]))
        elif (stored := call.store.describe(path)) is not None:  # else it was removed meanwhile
            about: list[tuple[str, Value]] = [("Key", encode(name)), ("LastModified", timestamp(stored.modified))]
            about += [("ETag", f'"{stored.etag}"'), ("Size", stored.size), ("StorageClass", "STANDARD")]
            page.append(("Contents", about))
    return page, names[limit - 1][0] if is_truncated else "", encode


def _after(call: Call) -> str:
    token = call.query.get("continuation-token")
    if token is None:
        return call.query.get("start-after", "")
    try:
        name = base64.urlsafe_b64decode(token).decode()
    except ValueError:
        name = ""
    if not name:
        raise S3Error("InvalidArgument", Message="The continuation token provided is incorrect")
    return name


def _delete_objects(call: Call) -> Response:
    root = call.root()
    entries = root.findall("{*}Object")
    if not 0 < len(entries) <= _PAGE:
        raise S3Error("MalformedXML")
    if any(entry.findtext("{*}VersionId") for entry in entries):
        raise S3Error("NotImplemented", Element="VersionId")
    call.store.require_bucket(call.bucket)
    is_quiet = root.findtext("{*}Quiet", "").strip().lower() == "true"
    for entry in entries:
        call.store.delete(call.bucket, text_of(entry, "Key"))
    return xml("DeleteResult", [] if is_quiet else [("Deleted", [("Key", text_of(each, "Key"))]) for each in entries])


def _get_object(call: Call) -> Response:
    """GetObject and HeadObject; http_server.py omits the body of the latter."""
    descriptor, stored = call.store.open(call.bucket, call.key)
    file = os.fdopen(descriptor, "rb", buffering=0)
    try:
        headers = {"ETag": f'"{stored.etag}"', "Last-Modified": formatdate(stored.modified, usegmt=True)}
        headers |= {"Accept-Ranges": "bytes", "Content-Type": _DEFAULT_TYPE}
        asked = call.headers.get("range", "")
        if part := call.query.get("partNumber"):  # the CRT sends 1 after it was refused a range of an empty object
            if part != "1" or stored.etag.partition("-")[2] not in ("", "1"):
                raise S3Error("NotImplemented", Parameter="partNumber")
            asked = "bytes=0-" if stored.size else ""
        bounds = bounds_of(asked, stored.size)
        headers |= stored.headers
        if call.is_unchanged(stored):
            file.close()
            return Response(304, headers)
        start, end = bounds or (0, stored.size)
        if bounds:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{stored.size}"
        return Response(206 if bounds else 200, headers, FileSlice(file, start, end - start))
    except S3Error:
        file.close()
        raise


def _put_object(call: Call) -> Response:
    """PutObject, or CopyObject if the request names a source."""
    call.store.require_bucket(call.bucket)  # before the body is read
    headers, is_copy = call.kept_headers(), "x-amz-copy-source" in call.headers
    if not is_copy:
        received = call.receive()
    else:
        received, source = _receive_source(call)
        if call.headers.get("x-amz-metadata-directive", "COPY").upper() != "REPLACE":
            headers = dict(source.headers)
    stored = call.store.put((call.bucket, call.key), received, headers, allow=call.check_write)
    if is_copy:
        return xml("CopyObjectResult", [("LastModified", timestamp(stored.modified)), ("ETag", f'"{stored.etag}"')])
    return Response(200, {"ETag": f'"{stored.etag}"'})


def _receive_source(call: Call) -> tuple[Received, Stored]:
    """Read the object, or the range of it, that a copy names as its source."""
    descriptor, stored = call.store.open(*call.source())
    with os.fdopen(descriptor, "rb") as file:
        if call.is_unchanged(stored, "x-amz-copy-source-"):
            raise S3Error("PreconditionFailed", Condition="x-amz-copy-source-If-None-Match")
        asked = call.headers.get("x-amz-copy-source-range")
        found = RANGE.fullmatch(asked or f"bytes=0-{stored.size}")
        if not (found and found[1] and found[2]) or (asked and int(found[2]) >= stored.size):
            raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source-range", ArgumentValue=str(asked))
        file.seek(int(found[1]))
        left = int(found[2]) + 1 - int(found[1])

        def blocks() -> Iterator[bytes]:
            nonlocal left
            while block := file.read(min(left, 1 << 20)):
                left -= len(block)
                yield block

        return call.store.receive(blocks()), stored


def _delete_object(call: Call) -> Response:
    call.store.require_bucket(call.bucket)
    call.store.delete(call.bucket, call.key)
    return Response(204)


def _create_multipart_upload(call: Call) -> Response:
    call.store.require_bucket(call.bucket)
    upload_id = os.urandom(16).hex()
    call.uploads[upload_id] = Upload(call.bucket, call.key, call.kept_headers())
    pairs = [("Bucket", call.bucket), ("Key", call.key), ("UploadId", upload_id)]
    return xml("InitiateMultipartUploadResult", pairs)


def _upload_part(call: Call) -> Response:
    """UploadPart, or UploadPartCopy if the request names a source."""
    upload, number = call.upload(), call.number("partNumber", 0)
    if not 1 <= number <= LAST_NUMBER:
        raise S3Error("InvalidArgument", Message=f"Part number must be between 1 and {LAST_NUMBER}, inclusive")
    is_copy = "x-amz-copy-source" in call.headers
    received = _receive_source(call)[0] if is_copy else call.receive()
    upload.add(number, received)
    if is_copy:
        return xml("CopyPartResult", [("LastModified", timestamp(time.time())), ("ETag", f'"{received.md5}"')])
    return Response(200, {"ETag": f'"{received.md5}"'})


def _complete_multipart_upload(call: Call) -> Response:
    """Make one object of the parts that the body names."""
    upload = call.upload()
    entries = call.root().findall("{*}Part")
    try:
        named = [(int(text_of(part, "PartNumber")), text_of(part, "ETag").strip('"')) for part in entries]
    except ValueError as error:
        raise S3Error("MalformedXML") from error
    if not named:
        raise S3Error("MalformedXML")
    stored = upload.complete(call.store, named, call.check_write)
    location = f"http://{call.headers.get('host', '')}/{call.bucket}/{call.key}"
    place: Pairs = [("Location", location), ("Bucket", call.bucket), ("Key", call.key)]
    return xml("CompleteMultipartUploadResult", [*place, ("ETag", f'"{stored.etag}"')])


def _abort_multipart_upload(call: Call) -> Response:
    call.upload().discard()
    del call.uploads[call.query["uploadId"]]
    return Response(204)


# Method, what the path names, and the query parameter that names a part of it (or an empty text) -> operation.
OPERATIONS: Mapping[tuple[str, str, str], Operation] = {
    ("GET", "service", ""): _list_buckets,
    ("HEAD", "bucket", ""): _head_bucket,
    ("GET", "bucket", ""): _list_objects,
    ("GET", "bucket", "location"): _get_bucket_location,
    ("GET", "service", "session"): _create_session,  # The CRT leaves the bucket out.
    ("GET", "bucket", "session"): _create_session,
    ("PUT", "bucket", ""): _create_bucket,
    ("POST", "bucket", "delete"): _delete_objects,
    ("GET", "object", ""): _get_object,
    ("HEAD", "object", ""): _get_object,
    ("PUT", "object", ""): _put_object,
    ("PUT", "object", "uploadId"): _upload_part,
    ("POST", "object", "uploads"): _create_multipart_upload,
    ("POST", "object", "uploadId"): _complete_multipart_upload,
    ("DELETE", "object", ""): _delete_object,
    ("DELETE", "object", "uploadId"): _abort_multipart_upload,
}
