"""Operations on one object: reading, writing, copying and deleting it.

Each takes a `Call`, returns the response, and raises S3Errors; the names are S3's.
"""

from __future__ import annotations

import os
import re
from email.utils import formatdate
from itertools import accumulate

from launcher.local.s3_server.bodies import receive, receive_source, source_name
from launcher.local.s3_server.call import Call, xml
from launcher.local.s3_server.documents import S3Error, Value, timestamp
from launcher.local.s3_server.headers import (
    KEPT_AMZ,
    KEPT_HEADERS,
    checksum_headers,
    encryption_headers,
    kept_headers,
    shown_headers,
    unchanged,
    write_condition,
)
from launcher.local.s3_server.storage import checksums
from launcher.local.s3_server.storage.store import Stored
from launcher.local.s3_server.storage.uploads import PART_SIZES
from launcher.local.s3_server.wire import FileSlice, Response

_DEFAULT_TYPE = "binary/octet-stream"  # S3's own
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


def get_object(call: Call) -> Response:
    """GetObject and HeadObject; wire.py omits the body of the latter."""
    descriptor, stored = call.store.open(call.bucket, call.key)
    try:
        headers = {
            "ETag": f'"{stored.etag}"',
            "Last-Modified": formatdate(stored.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "Content-Type": _DEFAULT_TYPE,
            **shown_headers(stored),
            **{name: text for name in KEPT_HEADERS if (text := call.query.get(f"response-{name.lower()}"))},
        }
        if unchanged(call.request.headers, stored):
            os.close(descriptor)
            return Response(304, headers)
        bounds = _bounds(call, stored)
        if bounds is None:
            if call.request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
                headers |= checksum_headers(stored.headers)
            return Response(200, headers, FileSlice(descriptor, 0, stored.size))
        start, end = bounds
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{stored.size}"
        if "partNumber" in call.query and PART_SIZES in stored.headers:
            headers["x-amz-mp-parts-count"] = str(len(stored.headers[PART_SIZES].split(",")))
        return Response(206, headers, FileSlice(descriptor, start, end - start))
    except BaseException:
        os.close(descriptor)
        raise


def put_object(call: Call) -> Response:
    """PutObject, or CopyObject if the request names a source."""
    if "x-amz-copy-source" in call.request.headers:
        return _copy_object(call)
    call.store.require_bucket(call.bucket)  # before the body is read
    headers = kept_headers(call)
    arrived = receive(call)
    if arrived.checksums:
        headers |= {**arrived.checksums, checksums.TYPE: checksums.FULL}
    stored = call.store.put((call.bucket, call.key), arrived, headers, allow=write_condition(call))
    return Response(200, {"ETag": f'"{stored.etag}"', **checksum_headers(headers), **encryption_headers(headers)})


def delete_object(call: Call) -> Response:
    """Delete the object; a missing object is not an error."""
    call.store.delete(call.bucket, call.key)
    return Response(204)


def _copy_object(call: Call) -> Response:
    call.store.require_bucket(call.bucket)
    asked = call.request.headers.get("x-amz-checksum-algorithm", "")
    headers = kept_headers(call)
    replaces = call.request.headers.get("x-amz-metadata-directive", "COPY").upper() == "REPLACE"
    if not replaces and source_name(call) == (call.bucket, call.key) and not headers.keys() & set(KEPT_AMZ):
        os.close(call.store.open(call.bucket, call.key)[0])  # S3 reports a missing object first
        raise S3Error("InvalidRequest", Message="This copy of an object to itself would change nothing.")
    arrived, source = receive_source(call, checksums.algorithm(asked) if asked else "")
    if not replaces:
        own = {name: value for name, value in headers.items() if name in KEPT_AMZ}
        headers = {name: value for name, value in shown_headers(source).items() if name not in KEPT_AMZ} | own
    if arrived.checksums:
        headers |= {**arrived.checksums, checksums.TYPE: checksums.FULL}
    elif source.headers.get(checksums.TYPE) == checksums.FULL:
        headers |= checksum_headers(source.headers)
    stored = call.store.put((call.bucket, call.key), arrived, headers, allow=write_condition(call))
    pairs: list[tuple[str, Value]] = [("LastModified", timestamp(stored.modified)), ("ETag", f'"{stored.etag}"')]
    response = xml("CopyObjectResult", [*pairs, *checksums.as_pairs(checksum_headers(headers))])
    response.headers |= encryption_headers(headers)
    return response


def _bounds(call: Call, stored: Stored) -> tuple[int, int] | None:
    """Return the start and end of the requested range in bytes, the end excluded; None for the whole object.

    Like S3, ignore a Range that is malformed or names several ranges. Raises S3Error InvalidRange.
    """
    size, part = stored.size, call.number("partNumber", 0)
    if part:
        ends = list(accumulate(map(int, stored.headers.get(PART_SIZES, str(size)).split(",")), initial=0))
        if part >= len(ends):
            raise S3Error("InvalidPartNumber", ActualPartCount=len(ends) - 1)
        return (ends[part - 1], ends[part]) if size else None
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
