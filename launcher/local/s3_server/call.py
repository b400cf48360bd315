"""The argument of every operation of the embedded S3 server: one parsed request, its conditions, attributes and body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote
from xml.etree import ElementTree

from launcher.local.s3_server.documents import Pairs, S3Error, document, read_all
from launcher.local.s3_server.http_server import Request, Response, unchunked
from launcher.local.s3_server.store import Received, Store, Stored
from launcher.local.s3_server.uploads import Upload
from launcher.s3.reading import as_file

RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)
_BODY_LIMIT = 8 * 1024 * 1024  # bytes of an XML body; 10,000 parts or 1,000 keys to delete need less

# Attributes that a client can put with an object and gets back with it, spelt as in S3's responses.
_KEPT = ("Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires")


@dataclass(frozen=True)
class Call:
    """One parsed request. `bucket` and `key` are empty if the path does not name them. Its methods raise S3Errors."""

    store: Store
    uploads: dict[str, Upload]
    request: Request
    bucket: str
    key: str
    query: Mapping[str, str]
    credentials: tuple[str, str]  # the access key id and the secret that signed it

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers, with names in lower case."""
        return self.request.headers

    def number(self, name: str, default: int) -> int:
        """Return a query parameter that is a count."""
        text = self.query.get(name) or str(default)
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise S3Error("InvalidArgument", ArgumentName=name, ArgumentValue=text)
        return int(text)

    def upload(self) -> Upload:
        """Return the upload that the query names."""
        upload = self.uploads.get(self.query["uploadId"])
        is_over = upload is not None and upload.stored is not None and self.request.method != "POST"
        if upload is None or is_over or (upload.bucket, upload.key) != (self.bucket, self.key):
            raise S3Error("NoSuchUpload", UploadId=self.query["uploadId"])
        return upload

    def root(self) -> ElementTree.Element:
        """Return the root of the XML body."""
        try:
            return ElementTree.fromstring(read_all(self._blocks(), _BODY_LIMIT, "MalformedXML"))
        except ElementTree.ParseError as error:
            raise S3Error("MalformedXML") from error

    def kept_headers(self) -> dict[str, str]:
        """Return the headers of a write that are stored with the object."""
        kept = {name: self.headers[name.lower()] for name in _KEPT if self.headers.get(name.lower())}
        codings = [part.strip() for part in kept.pop("Content-Encoding", "").split(",")]
        if coding := ", ".join(part for part in codings if part and part != "aws-chunked"):
            kept["Content-Encoding"] = coding
        return kept | {name: value for name, value in self.headers.items() if name.startswith("x-amz-meta-")}

    def receive(self) -> Received:
        """Receive the object's bytes without S3's own chunks."""
        received = self.store.receive(self._blocks())
        if self._is_aws_chunked() and str(received.size) != self.headers.get("x-amz-decoded-content-length"):
            received.discard()
            raise S3Error("IncompleteBody")
        return received

    def check_write(self, existing: Stored | None) -> None:
        """Check If-Match and If-None-Match before the existing object is replaced."""
        if existing is None and "if-match" in self.headers:
            raise S3Error("NoSuchKey", Key=self.key)
        if existing is not None and self.is_unchanged(existing):
            raise S3Error("PreconditionFailed", Condition="If-None-Match")

    def is_unchanged(self, stored: Stored, prefix: str = "") -> bool:
        """Return whether If-None-Match names the object's ETag; raises if If-Match does not. `prefix` begins the headers' names."""
        tags, other_tags = (self.headers.get(f"{prefix}{name}") for name in ("if-match", "if-none-match"))
        if tags is not None and not _matches(tags, stored.etag):
            raise S3Error("PreconditionFailed", Condition=f"{prefix}If-Match")
        return other_tags is not None and _matches(other_tags, stored.etag)

    def source(self) -> tuple[str, str]:
        """Return bucket and key of the object that a copy names as its source."""
        path = self.headers["x-amz-copy-source"]
        bucket, _, key = unquote(path).removeprefix("/").partition("/")
        if "?versionId=" in path or not key:
            raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source", ArgumentValue=path)
        return bucket, key

    def _blocks(self) -> Iterator[bytes]:
        return unchunked(as_file(self.request.body)) if self._is_aws_chunked() else self.request.body

    def _is_aws_chunked(self) -> bool:
        """Return whether the body is in S3's own chunks; like S3, ignore Content-Encoding."""
        is_streamed = self.headers.get("x-amz-content-sha256", "").startswith("STREAMING-")
        return is_streamed or "x-amz-decoded-content-length" in self.headers


def xml(root: str, pairs: Pairs) -> Response:
    return Response(200, {"Content-Type": "application/xml"}, document(root, pairs))


def _matches(tags: str, etag: str) -> bool:
    return any(tag.strip().removeprefix("W/").strip('"') in (etag, "*") for tag in tags.split(","))


def bounds_of(asked: str, size: int) -> tuple[int, int] | None:
    """Return the start and end of the requested range in bytes, the end excluded; None for the whole object.

    Like S3, ignore a Range that is malformed or names several ranges.
    """
    found = RANGE.fullmatch(asked.replace(" ", ""))
    if found is None or found[0] == "bytes=-" or (found[1] and found[2] and int(found[1]) > int(found[2])):
        return None
    if found[1]:
        start, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    else:
        start, end = max(size - int(found[2]), 0), size
    if start >= end:
        raise S3Error("InvalidRange", RangeRequested=asked, ActualObjectSize=size)
    return start, end
