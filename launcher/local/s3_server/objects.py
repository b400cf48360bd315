"""Operations on one object: reading, writing, copying and deleting it, and its multipart uploads.

Each takes a `Call` and gives the response; the names are S3's. Failures are S3Errors.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from datetime import timezone
from email.utils import formatdate, parsedate_to_datetime
from urllib.parse import unquote

from launcher.local.s3_server.call import Call, xml
from launcher.local.s3_server.documents import Pairs, S3Error, Value, read_parts, timestamp
from launcher.local.s3_server.store import Arrived, Stored
from launcher.local.s3_server.wire import ChunkedBody, CountedBody, FileSlice, Response

_DEFAULT_TYPE = "binary/octet-stream"  # S3's own
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)
_PART = 1000  # parts in one answer of ListParts

# What a client can say of an object when it puts it and gets back with it, beside x-amz-meta-*. Written as S3 answers it.
_KEPT_HEADERS = (
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Type",
    "Expires",
)


def get_object(call: Call) -> Response:
    """GetObject and HeadObject: the wire leaves the body of the latter away."""
    descriptor, stored = call.store.open(call.bucket, call.key)
    try:
        headers = {
            "ETag": f'"{stored.etag}"',
            "Last-Modified": formatdate(stored.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "Content-Type": _DEFAULT_TYPE,
            **stored.headers,
        }
        if _unchanged(call, stored):
            os.close(descriptor)
            return Response(304, headers)
        bounds = _bounds(call, stored.size)
        if bounds is None:
            return Response(200, headers, FileSlice(descriptor, 0, stored.size))
        start, end = bounds
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{stored.size}"
        return Response(206, headers, FileSlice(descriptor, start, end - start))
    except BaseException:
        os.close(descriptor)
        raise


def put_object(call: Call) -> Response:
    """PutObject, or CopyObject where the request names a source."""
    if "x-amz-copy-source" in call.request.headers:
        return _copy_object(call)
    call.store.require_bucket(call.bucket)  # before the body is read
    arrived = call.store.receive(_content(call))
    _check_length(call, arrived)
    stored = call.store.put((call.bucket, call.key), arrived, _kept_headers(call), allow=_write_condition(call))
    return Response(200, {"ETag": f'"{stored.etag}"'})


def delete_object(call: Call) -> Response:
    """Deletes it; an object that is not there is no error."""
    call.store.delete(call.bucket, call.key)
    return Response(204)


def create_multipart_upload(call: Call) -> Response:
    """Begins an upload."""
    upload_id = call.uploads.create(call.bucket, call.key, _kept_headers(call))
    pairs = [("Bucket", call.bucket), ("Key", call.key), ("UploadId", upload_id)]
    return xml("InitiateMultipartUploadResult", pairs)


def upload_part(call: Call) -> Response:
    """UploadPart, or UploadPartCopy where the request names a source."""
    upload = call.uploads.get(call.bucket, call.key, call.query["uploadId"])
    number = call.number("partNumber", 0)
    if "x-amz-copy-source" in call.request.headers:
        arrived, _ = _receive_source(call)
        call.uploads.add_part(upload, number, arrived)
        pairs = [("LastModified", timestamp(arrived.path.stat().st_mtime)), ("ETag", f'"{arrived.md5}"')]
        return xml("CopyPartResult", pairs)
    arrived = call.store.receive(_content(call))
    _check_length(call, arrived)
    call.uploads.add_part(upload, number, arrived)
    return Response(200, {"ETag": f'"{arrived.md5}"'})


def list_parts(call: Call) -> Response:
    """The parts that have arrived, a thousand at a time."""
    upload_id = call.query["uploadId"]
    upload = call.uploads.get(call.bucket, call.key, upload_id)
    marker = call.number("part-number-marker", 0)
    limit = min(call.number("max-parts", _PART), _PART)
    numbers = sorted(number for number in upload.parts.copy() if number > marker)
    shown = numbers[:limit]
    pairs: list[tuple[str, Value]] = [("Bucket", call.bucket), ("Key", call.key), ("UploadId", upload_id)]
    pairs += [("PartNumberMarker", marker), ("NextPartNumberMarker", shown[-1] if shown else 0), ("MaxParts", limit)]
    pairs.append(("IsTruncated", "true" if len(numbers) > limit else "false"))
    for number in shown:
        part = upload.parts[number]
        changed = timestamp(part.path.stat().st_mtime)
        entry: Pairs = [
            ("PartNumber", number),
            ("LastModified", changed),
            ("ETag", f'"{part.md5}"'),
            ("Size", part.size),
        ]
        pairs.append(("Part", entry))
    return xml("ListPartsResult", pairs)


def complete_multipart_upload(call: Call) -> Response:
    """Makes one object of the parts that the body names."""
    upload_id = call.query["uploadId"]
    upload = call.uploads.get(call.bucket, call.key, upload_id)
    stored = call.uploads.complete(upload_id, upload, read_parts(call.document_body()), _write_condition(call))
    pairs = [
        ("Location", f"http://{call.request.headers.get('host', '')}/{call.bucket}/{call.key}"),
        ("Bucket", call.bucket),
        ("Key", call.key),
        ("ETag", f'"{stored.etag}"'),
    ]
    return xml("CompleteMultipartUploadResult", pairs)


def abort_multipart_upload(call: Call) -> Response:
    """Ends an upload without an object."""
    call.uploads.get(call.bucket, call.key, call.query["uploadId"])
    call.uploads.abort(call.query["uploadId"])
    return Response(204)


def _copy_object(call: Call) -> Response:
    call.store.require_bucket(call.bucket)
    arrived, source = _receive_source(call)
    replace = call.request.headers.get("x-amz-metadata-directive", "COPY").upper() == "REPLACE"
    headers = _kept_headers(call) if replace else source.headers
    stored = call.store.put((call.bucket, call.key), arrived, headers, allow=_write_condition(call))
    pairs = [("LastModified", timestamp(stored.modified)), ("ETag", f'"{stored.etag}"')]
    return xml("CopyObjectResult", pairs)


def _receive_source(call: Call) -> tuple[Arrived, Stored]:
    """Reads the object, or the range of it, that a copy names as its source."""
    headers = call.request.headers
    path, _, version = headers["x-amz-copy-source"].partition("?versionId=")
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    if version or not key:
        raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source", ArgumentValue=path)
    descriptor, stored = call.store.open(bucket, key)
    with os.fdopen(descriptor, "rb") as file:
        start, end = 0, stored.size
        asked = headers.get("x-amz-copy-source-range")
        if asked is not None:
            found = _RANGE.fullmatch(asked)
            if found is None or not (found[1] and found[2]) or int(found[2]) >= stored.size:
                raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source-range", ArgumentValue=asked)
            start, end = int(found[1]), int(found[2]) + 1
        if not _matches(headers.get("x-amz-copy-source-if-match", "*"), stored.etag):
            raise S3Error("PreconditionFailed", Condition="x-amz-copy-source-If-Match")
        file.seek(start)
        return call.store.receive(CountedBody(file, end - start)), stored


def _content(call: Call) -> io.RawIOBase:
    """The object's bytes, freed of S3's own chunks if the client sent it in those."""
    headers = call.request.headers
    if "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", ""):
        raise S3Error("MissingContentLength")
    if _is_aws_chunked(call):
        return ChunkedBody(io.BufferedReader(call.request.body))
    return call.request.body


def _is_aws_chunked(call: Call) -> bool:
    headers = call.request.headers
    return headers.get("x-amz-content-sha256", "").startswith("STREAMING-") or "aws-chunked" in headers.get(
        "content-encoding", ""
    )


def _check_length(call: Call, arrived: Arrived) -> None:
    """Discards what is shorter or longer than the client said: with aws-chunked, HTTP's own length does not tell."""
    expected = call.request.headers.get("x-amz-decoded-content-length", str(arrived.size))
    if expected != str(arrived.size):
        call.store.discard(arrived)
        raise S3Error("IncompleteBody")


def _kept_headers(call: Call) -> dict[str, str]:
    headers = call.request.headers
    kept = {name: headers[name.lower()] for name in _KEPT_HEADERS if headers.get(name.lower())}
    coding = ",".join(part for part in kept.pop("Content-Encoding", "").split(",") if part.strip() != "aws-chunked")
    if coding:
        kept["Content-Encoding"] = coding.strip()
    return kept | {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}


def _write_condition(call: Call) -> Callable[[Stored | None], None]:
    """What the store asks before it replaces an object: the request's If-Match and If-None-Match."""
    if_match, if_none_match = (call.request.headers.get(name) for name in ("if-match", "if-none-match"))

    def allow(existing: Stored | None) -> None:
        if if_match is not None and existing is None:
            raise S3Error("NoSuchKey", Key=call.key)
        if if_match is not None and existing is not None and not _matches(if_match, existing.etag):
            raise S3Error("PreconditionFailed", Condition="If-Match")
        if if_none_match is not None and existing is not None and _matches(if_none_match, existing.etag):
            raise S3Error("PreconditionFailed", Condition="If-None-Match")

    return allow


def _unchanged(call: Call, stored: Stored) -> bool:
    """Whether the answer is 304 Not Modified. S3Error PreconditionFailed. Order and precedence are RFC 9110's (13.2.2)."""
    headers = call.request.headers
    if (tags := headers.get("if-match")) is not None:
        if not _matches(tags, stored.etag):
            raise S3Error("PreconditionFailed", Condition="If-Match")
    elif (since := _seconds(headers.get("if-unmodified-since"))) is not None and int(stored.modified) > since:
        raise S3Error("PreconditionFailed", Condition="If-Unmodified-Since")
    if (tags := headers.get("if-none-match")) is not None:
        return _matches(tags, stored.etag)
    since = _seconds(headers.get("if-modified-since"))
    return since is not None and int(stored.modified) <= since


def _matches(tags: str, etag: str) -> bool:
    return any(tag.strip().removeprefix("W/").strip('"') in (etag, "*") for tag in tags.split(","))


def _seconds(date: str | None) -> float | None:
    """An HTTP date in seconds since 1970; None for none, and for one that is not a date, which HTTP says to ignore."""
    try:
        parsed = parsedate_to_datetime(date) if date else None
    except ValueError:
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or timezone.utc).timestamp() if parsed else None


def _bounds(call: Call, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last of the range asked for; None for the whole object.

    As S3, a Range that cannot be read, or names several, is ignored. S3Error InvalidRange.
    """
    part = call.number("partNumber", 0)
    if part:  # each object is told to have one
        if part > 1:
            raise S3Error("InvalidPartNumber", ActualPartCount=1)
        return (0, size) if size else None
    asked = call.request.headers.get("range", "").replace(" ", "")
    found = _RANGE.fullmatch(asked)
    if found is None or asked == "bytes=-" or (found[1] and found[2] and int(found[1]) > int(found[2])):
        return None
    if found[1]:
        start, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    else:
        start, end = max(size - int(found[2]), 0), size
    if start >= end:
        raise S3Error("InvalidRange", RangeRequested=asked, ActualObjectSize=size)
    return start, end
