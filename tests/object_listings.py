"""A listing that a store answers from a list of keys, in the order of the list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, quote
from xml.sax.saxutils import escape

from launcher.local.s3_server.http_server import Answer, Request, Response


def listing_of(keys: Sequence[str], folder: Path) -> Answer:
    """Answers ListObjectsV2 for a bucket in this folder: keys that begin with the prefix, and come after `start-after`."""

    def answer(request: Request) -> Response:
        query = {name: values[0] for name, values in parse_qs(request.query).items()}
        chosen = [key for key in keys if key.startswith(query.get("prefix", "")) and key > query.get("start-after", "")]
        start = int(query.get("continuation-token", 0))
        page = chosen[start : start + int(query.get("max-keys", 1000))]
        end = start + len(page)
        encode = quote if "encoding-type" in query else escape
        entries = [f"<Contents><Key>{encode(key)}</Key>{_described(folder / key)}</Contents>" for key in page]
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(chosen) else ""
        encoding = "<EncodingType>url</EncodingType>" if "encoding-type" in query else ""
        truncated = str(end < len(chosen)).lower()
        body = f"<IsTruncated>{truncated}</IsTruncated>{more}{encoding}{''.join(entries)}"
        text = f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>{body}</ListBucketResult>'
        return Response(200, {"Content-Type": "application/xml"}, text.encode())

    return answer


def _described(file: Path) -> str:
    content = file.read_bytes() if file.exists() else b""
    size = f"<Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass>"
    return f"<LastModified>2026-11-22T10:11:12.000Z</LastModified><ETag>&quot;&quot;</ETag>{size}"
