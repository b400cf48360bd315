"""Operations on one object: reading, writing, copying and deleting it, and uploading it in parts.

Each takes a `Call`, returns the response, and raises S3Errors; the names are S3's.
"""

from __future__ import annotations

import os
import re
from email.utils import formatdate
from itertools import accumulate

from launcher.local.s3_server.call import ENCRYPTION, KEPT, KEPT_AMZ, Call, headers_with, shown_headers, xml
from launcher.local.s3_server.documents import Pairs, S3Error, Value, read_parts, timestamp
from launcher.local.s3_server.http_server import DIGITS, FileSlice, Response
from launcher.local.s3_server.storage import checksums
from launcher.local.s3_server.storage.changes import Stored
from launcher.local.s3_server.storage.uploads import PART_SIZES

_DEFAULT_TYPE = "binary/octet-stream"  # S3's own
_RANGE = re.compile(rf"bytes=(\d{{0,{DIGITS}}})-(\d{{0,{DIGITS}}})", re.ASCII)
_PAGE = 1000  # parts in one response of ListParts


def get_object(call: Call) -> Response:
    """GetObject and HeadObject; http_server.py omits the body of the latter."""
    descriptor, stored = call.store.open(call.bucket, call.key)
    try:
        headers = {
            "ETag": f'"{stored.etag}"',
            "Last-Modified": formatdate(stored.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "Content-Type": _DEFAULT_TYPE,
            **shown_headers(stored),
            **_replaced_headers(call),
        }
        if call.unchanged(stored):
            os.close(descriptor)
            return Response(304, headers)
        bounds = _bounds(call, stored)
        if bounds is None:
            if call.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
                headers |= headers_with(checksums.PREFIX, stored.headers)
            return Response(200, headers, FileSlice(descriptor, 0, stored.size))
        start, end = bounds
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{stored.size}"
        if "partNumber" in call.query and PART_SIZES in stored.headers:
            headers["x-amz-mp-parts-count"] = str(len(stored.headers[PART_SIZES].split(",")))
        return Response(206, headers, FileSlice(descriptor, start, end - start))
    except BaseException:
        os.close(descriptor)
        raise


def _replaced_headers(call: Call) -> dict[str, str]:
    """Return the headers that the query states. Raises S3Error InvalidArgument if one cannot be a header, or has more in it."""
    found = {name: text for name in KEPT if (text := call.query.get(f"response-{name.lower()}"))}
    for name, text in found.items():
        if not text.isprintable() or max(text) > "\xff":
            message = "Header value cannot be represented using ISO-8859-1."
            raise S3Error("InvalidArgument", Message=message, ArgumentName=f"response-{name.lower()}")
    return found


def put_object(call: Call) -> Response:
    """PutObject, or CopyObject if the request names a source."""
    call.store.require_bucket(call.bucket)  # before the body is read
    if "x-amz-copy-source" in call.headers:
        return _copy_object(call)
    headers = call.kept_headers()
    received = call.receive()
    if received.checksums:
        headers |= {**received.checksums, checksums.TYPE: checksums.FULL}
    stored = call.store.put((call.bucket, call.key), received, headers, allow=call.check_write)
    shown = headers_with(checksums.PREFIX, headers) | headers_with(ENCRYPTION, headers)
    return Response(200, {"ETag": f'"{stored.etag}"', **shown})


def delete_object(call: Call) -> Response:
    """Delete the object; a missing object is not an error."""
    call.store.delete(call.bucket, call.key)
    return Response(204)


def _copy_object(call: Call) -> Response:
    algorithm, headers = call.checksum_algorithm(), call.kept_headers()
    replaces = call.headers.get("x-amz-metadata-directive", "COPY").upper() == "REPLACE"
    if not replaces and call.source() == (call.bucket, call.key) and not headers.keys() & set(KEPT_AMZ):
        os.close(call.store.open(call.bucket, call.key)[0])  # S3 reports a missing object first
        raise S3Error("InvalidRequest", Message="This copy of an object to itself would change nothing.")
    received, source = call.receive_source(algorithm)
    if not replaces:
        own = {name: value for name, value in headers.items() if name in KEPT_AMZ}
        headers = {name: value for name, value in shown_headers(source).items() if name not in KEPT_AMZ} | own
    if received.checksums:
        headers |= {**received.checksums, checksums.TYPE: checksums.FULL}
    elif source.headers.get(checksums.TYPE) == checksums.FULL:
        headers |= headers_with(checksums.PREFIX, source.headers)
    stored = call.store.put((call.bucket, call.key), received, headers, allow=call.check_write)
    pairs: list[tuple[str, Value]] = [("LastModified", timestamp(stored.modified)), ("ETag", f'"{stored.etag}"')]
    response = xml("CopyObjectResult", [*pairs, *checksums.as_pairs(headers)])
    response.headers |= headers_with(ENCRYPTION, headers)
    return response


def _bounds(call: Call, stored: Stored) -> tuple[int, int] | None:
    """Return the start and end of the requested range in bytes, the end excluded; None for the whole object.

    Like S3, ignore a Range that is malformed or names several ranges.
    """
    size, part = stored.size, call.number("partNumber", 0)
    if part:
        ends = list(accumulate(map(int, stored.headers.get(PART_SIZES, str(size)).split(",")), initial=0))
        if part >= len(ends):
            raise S3Error("InvalidPartNumber", ActualPartCount=len(ends) - 1)
        return (ends[part - 1], ends[part]) if size else None
    asked = call.headers.get("range", "").replace(" ", "")
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


def create_multipart_upload(call: Call) -> Response:
    """Begin an upload."""
    headers, name = call.kept_headers(), call.checksum_algorithm()
    if name:
        default = checksums.FULL if name == "crc64nvme" else checksums.COMPOSITE
        headers[checksums.TYPE] = call.headers.get(checksums.TYPE, default).upper()
        if headers[checksums.TYPE] == checksums.FULL and name.startswith("sha"):
            reason = f"{name.upper()} checksums of whole objects cannot be made of parts."
            raise S3Error("InvalidRequest", Message=reason)
    upload_id = call.uploads.create(call.bucket, call.key, headers, name)
    response = xml("InitiateMultipartUploadResult", _upload_fields(call, upload_id))
    if name:
        response.headers |= {"x-amz-checksum-algorithm": name.upper(), checksums.TYPE: headers[checksums.TYPE]}
    response.headers |= headers_with(ENCRYPTION, headers)
    return response


def upload_part(call: Call) -> Response:
    """UploadPart, or UploadPartCopy if the request names a source."""
    upload = call.uploads.get(call.bucket, call.key, call.query["uploadId"])
    number = call.number("partNumber", 0)
    if "x-amz-copy-source" in call.headers:
        received, _ = call.receive_source(upload.checksum)
        call.uploads.add_part(upload, number, received)
        pairs = [("LastModified", timestamp(received.modified)), ("ETag", f'"{received.md5}"')]
        return xml("CopyPartResult", [*pairs, *checksums.as_pairs(received.checksums)])
    size = call.stated_size()
    slot = None if size is None else call.uploads.slot(upload, number, size)
    received = call.receive(upload.checksum, slot)
    call.uploads.add_part(upload, number, received)
    return Response(
        200, {"ETag": f'"{received.md5}"', **received.checksums, **headers_with(ENCRYPTION, upload.headers)}
    )


def list_parts(call: Call) -> Response:
    """List the parts received, up to a thousand per response."""
    upload_id = call.query["uploadId"]
    upload = call.uploads.get(call.bucket, call.key, upload_id)
    marker = call.number("part-number-marker", 0)
    limit = min(call.number("max-parts", _PAGE), _PAGE)
    parts = sorted((number, part) for number, part in upload.parts.copy().items() if number > marker)
    shown = parts[:limit]
    pairs: list[tuple[str, Value]] = [*_upload_fields(call, upload_id), ("PartNumberMarker", marker)]
    pairs += [("NextPartNumberMarker", shown[-1][0] if shown else 0), ("MaxParts", limit)]
    pairs.append(("IsTruncated", len(parts) > limit))
    for number, part in shown:
        entry: Pairs = [
            ("PartNumber", number),
            ("LastModified", timestamp(part.modified)),
            ("ETag", f'"{part.md5}"'),
            ("Size", part.size),
            *checksums.as_pairs(part.checksums),
        ]
        pairs.append(("Part", entry))
    return xml("ListPartsResult", pairs)


def complete_multipart_upload(call: Call) -> Response:
    """Make one object of the parts that the body names."""
    upload = call.uploads.get(call.bucket, call.key, call.query["uploadId"], completed=True)
    expected = call.headers.get(checksums.PREFIX + upload.checksum) if upload.checksum else None
    stored = call.uploads.complete(upload, read_parts(call.document_body()), expected, call.check_write)
    pairs: list[tuple[str, Value]] = [
        ("Location", f"http://{call.headers.get('host', '')}/{call.bucket}/{call.key}"),
        ("Bucket", call.bucket),
        ("Key", call.key),
        ("ETag", f'"{stored.etag}"'),
        *checksums.as_pairs(stored.headers),
    ]
    response = xml("CompleteMultipartUploadResult", pairs)
    response.headers |= headers_with(ENCRYPTION, stored.headers)
    return response


def abort_multipart_upload(call: Call) -> Response:
    """End an upload without an object."""
    call.uploads.get(call.bucket, call.key, call.query["uploadId"])
    call.uploads.abort(call.query["uploadId"])
    return Response(204)


def _upload_fields(call: Call, upload_id: str) -> list[tuple[str, Value]]:
    return [("Bucket", call.bucket), ("Key", call.key), ("UploadId", upload_id)]
