"""Receiving an object's bytes, from a request or from another object."""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from urllib.parse import unquote

from launcher.local.s3_server.call import Call
from launcher.local.s3_server.documents import NO_VERSION, S3Error
from launcher.local.s3_server.headers import unchanged
from launcher.local.s3_server.incoming import Arrived, Slot
from launcher.local.s3_server.storage import checksums
from launcher.local.s3_server.storage.checksums import HashedBody
from launcher.local.s3_server.storage.store import Stored
from launcher.local.s3_server.wire import ChunkedBody, CountedBody

_SOURCE_RANGE = re.compile(r"bytes=(\d+)-(\d+)", re.ASCII)


def source_name(call: Call) -> tuple[str, str]:
    """Return bucket and key of the object that a copy names as its source.

    Raises:
        S3Error: InvalidArgument.
    """
    path, _, version = call.request.headers["x-amz-copy-source"].partition("?versionId=")
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    if version not in ("", NO_VERSION) or not key:
        raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source", ArgumentValue=path)
    return bucket, key


def receive_source(call: Call, algorithm: str) -> tuple[Arrived, Stored]:
    """Read the object, or the range of it, that a copy names as its source."""
    headers = call.request.headers
    descriptor, stored = call.store.open(*source_name(call))
    with os.fdopen(descriptor, "rb") as file:
        start, end = 0, stored.size
        asked = headers.get("x-amz-copy-source-range")
        if asked is not None:
            found = _SOURCE_RANGE.fullmatch(asked)
            if found is None or int(found[2]) >= stored.size:
                raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source-range", ArgumentValue=asked)
            start, end = int(found[1]), int(found[2]) + 1
        if unchanged(headers, stored, "x-amz-copy-source-"):
            raise S3Error("PreconditionFailed", Condition="x-amz-copy-source-If-None-Match")
        file.seek(start)
        body = HashedBody(CountedBody(file, end - start), {algorithm} if algorithm else set(), {})
        arrived = call.store.incoming.receive(body)
        return replace(arrived, checksums=body.checksums({})), stored


def receive(call: Call, algorithm: str = "", slot: Slot | None = None) -> Arrived:
    """Receive the object's bytes without S3's own chunks, and compare them with the stated length and checksums."""
    headers = call.request.headers
    if "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", ""):
        raise S3Error("MissingContentLength")
    names = checksums.stated(headers) | ({algorithm} if algorithm else set())
    if _is_aws_chunked(call):
        chunked = ChunkedBody(io.BufferedReader(call.request.body))
        body = HashedBody(chunked, names, chunked.trailers)
    else:
        body = HashedBody(call.request.body, names, {})
    arrived = call.store.incoming.receive(body, slot)
    try:
        if stated_size(call) not in (None, arrived.size):
            raise S3Error("IncompleteBody")
        checksums.check_md5(headers, arrived.md5)
        return replace(arrived, checksums=body.checksums(headers))
    except S3Error:
        if slot is None:
            arrived.discard()
        raise


def stated_size(call: Call) -> int | None:
    """Return the number of bytes that the client states; with aws-chunked, HTTP's own length differs."""
    header = "x-amz-decoded-content-length" if _is_aws_chunked(call) else "content-length"
    text = call.request.headers.get(header, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _is_aws_chunked(call: Call) -> bool:
    """Return whether the body is in S3's own chunks; like S3, ignore Content-Encoding."""
    headers = call.request.headers
    streamed = headers.get("x-amz-content-sha256", "").startswith("STREAMING-")
    return streamed or "x-amz-decoded-content-length" in headers
