"""The operations of multipart uploads, by S3's names: each takes a `Call`, returns the response, and raises S3Errors."""

from __future__ import annotations

from launcher.local.s3_server.bodies import receive, receive_source, stated_size
from launcher.local.s3_server.call import Call, xml
from launcher.local.s3_server.documents import Pairs, S3Error, Value, read_parts, timestamp
from launcher.local.s3_server.headers import checksum_headers, encryption_headers, kept_headers, write_condition
from launcher.local.s3_server.storage import checksums
from launcher.local.s3_server.wire import Response

_PART = 1000  # parts in one response of ListParts


def create_multipart_upload(call: Call) -> Response:
    """Begin an upload."""
    headers = kept_headers(call)
    asked = call.request.headers.get("x-amz-checksum-algorithm", "")
    name = checksums.algorithm(asked) if asked else ""
    if name:
        default = checksums.FULL if name == "crc64nvme" else checksums.COMPOSITE
        headers[checksums.TYPE] = call.request.headers.get(checksums.TYPE, default).upper()
        if headers[checksums.TYPE] == (checksums.FULL if name.startswith("sha") else ""):
            raise S3Error("InvalidRequest", Message=f"{asked} checksums of whole objects cannot be made of parts.")
    upload_id = call.uploads.create(call.bucket, call.key, headers, name)
    pairs = [("Bucket", call.bucket), ("Key", call.key), ("UploadId", upload_id)]
    response = xml("InitiateMultipartUploadResult", pairs)
    chosen = {"x-amz-checksum-algorithm": name.upper(), checksums.TYPE: headers[checksums.TYPE]} if name else {}
    response.headers |= {**chosen, **encryption_headers(headers)}
    return response


def upload_part(call: Call) -> Response:
    """UploadPart, or UploadPartCopy if the request names a source."""
    upload = call.uploads.get(call.bucket, call.key, call.query["uploadId"])
    number = call.number("partNumber", 0)
    if "x-amz-copy-source" in call.request.headers:
        arrived, _ = receive_source(call, upload.checksum)
        call.uploads.add_part(upload, number, arrived)
        pairs = [("LastModified", timestamp(arrived.modified)), ("ETag", f'"{arrived.md5}"')]
        return xml("CopyPartResult", [*pairs, *checksums.as_pairs(arrived.checksums)])
    size = stated_size(call)
    slot = None if size is None else call.uploads.slot(upload, number, size)
    arrived = receive(call, upload.checksum, slot)
    call.uploads.add_part(upload, number, arrived)
    return Response(200, {"ETag": f'"{arrived.md5}"', **arrived.checksums, **encryption_headers(upload.headers)})


def list_parts(call: Call) -> Response:
    """List the parts received, up to a thousand per response."""
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
    expected = call.request.headers.get(checksums.PREFIX + upload.checksum) if upload.checksum else None
    stored = call.uploads.complete(upload, read_parts(call.document_body()), expected, write_condition(call))
    pairs: list[tuple[str, Value]] = [
        ("Location", f"http://{call.request.headers.get('host', '')}/{call.bucket}/{call.key}"),
        ("Bucket", call.bucket),
        ("Key", call.key),
        ("ETag", f'"{stored.etag}"'),
        *checksums.as_pairs(checksum_headers(stored.headers)),
    ]
    response = xml("CompleteMultipartUploadResult", pairs)
    response.headers |= encryption_headers(stored.headers)
    return response


def abort_multipart_upload(call: Call) -> Response:
    """End an upload without an object."""
    call.uploads.get(call.bucket, call.key, call.query["uploadId"])
    call.uploads.abort(call.query["uploadId"])
    return Response(204)
