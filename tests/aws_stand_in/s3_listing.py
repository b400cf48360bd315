"""Virtual objects: listed and headed without being stored, for prefixes of terabytes or of 50,000 keys.

Only virtual objects of a bucket that has any are listed; what moto stores in it can be read, but is not listed.

Source: S3's API reference (ListObjectsV2: keys in the order of their UTF-8 bytes, at most 1,000 keys and common prefixes together
on a page; HeadObject).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from aws_stand_in.errors import Answer

_MODIFIED = 1_700_000_000
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_ETAG = '"d41d8cd98f00b204e9800998ecf8427e"'


class Listing:
    """The keys of one bucket and their sizes."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._sorted: list[bytes] = []

    def add(self, sizes: Mapping[str, int]) -> None:
        """Add objects."""
        self._sizes |= sizes
        self._sorted = sorted(key.encode() for key in self._sizes)

    def head(self, key: str) -> Answer | None:
        """Return HeadObject's answer; None leaves the call to moto."""
        if key not in self._sizes:
            return None
        headers = {"Content-Length": str(self._sizes[key]), "ETag": _ETAG, "Content-Type": "binary/octet-stream"}
        return Answer(200, b"", headers | {"Last-Modified": formatdate(_MODIFIED, usegmt=True)})

    def page(self, bucket: str, parameters: Mapping[str, Any]) -> Answer:
        """Return ListObjectsV2's answer."""
        prefix, delimiter = parameters.get("prefix", "").encode(), parameters.get("delimiter", "").encode()
        limit = min(int(parameters.get("max-keys", 1000)), 1000)
        after = max(bytes.fromhex(parameters.get("continuation-token", "")), parameters.get("start-after", "").encode())
        at = max(bisect_left(self._sorted, prefix), bisect_right(self._sorted, after) if after else 0)
        entries: list[str] = []
        name = (lambda text: escape(quote(text, safe="/"))) if parameters.get("encoding-type") == "url" else escape
        last = b""
        while at < len(self._sorted) and self._sorted[at].startswith(prefix) and len(entries) < limit:
            key = self._sorted[at]
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end >= 0:
                folder = key[: end + len(delimiter)]
                at, last = bisect_left(self._sorted, folder + b"\xff"), folder + b"\xff"
                entries.append(f"<CommonPrefixes><Prefix>{name(folder.decode())}</Prefix></CommonPrefixes>")
            else:
                at, last = at + 1, key
                entries.append(self._entry(name(key.decode()), self._sizes[key.decode()]))
        more = at < len(self._sorted) and self._sorted[at].startswith(prefix) and limit > 0
        token = f"<NextContinuationToken>{last.hex()}</NextContinuationToken>" if more else ""
        encoding = "<EncodingType>url</EncodingType>" if parameters.get("encoding-type") == "url" else ""
        text = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="{_NAMESPACE}"><Name>{bucket}</Name>'
            f"<Prefix>{name(prefix.decode())}</Prefix><KeyCount>{len(entries)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
            f"{encoding}<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{''.join(entries)}</ListBucketResult>"
        )
        return Answer(200, text.encode(), {"Content-Type": "application/xml"})

    @staticmethod
    def _entry(name: str, size: int) -> str:
        return (
            f"<Contents><Key>{name}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified><ETag>{escape(_ETAG)}</ETag>"
            f"<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
