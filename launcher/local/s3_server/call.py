"""The argument of every operation of the embedded S3 server: one parsed request, its conditions, attributes and body."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timezone
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from launcher.local.s3_server.documents import NO_VERSION, Pairs, S3Error, document
from launcher.local.s3_server.http_server import DIGITS, ChunkedBody, CountedBody, Request, Response, whole_number
from launcher.local.s3_server.storage import checksums
from launcher.local.s3_server.storage.changes import Stored
from launcher.local.s3_server.storage.incoming import Received, Slot
from launcher.local.s3_server.storage.store import Store
from launcher.local.s3_server.storage.uploads import PART_SIZES, Uploads

_BODY_LIMIT = 8 * 1024 * 1024  # bytes of an XML body; 10,000 parts or 1,000 keys to delete need less
_SOURCE_RANGE = re.compile(rf"bytes=(\d{{1,{DIGITS}}})-(\d{{1,{DIGITS}}})", re.ASCII)

# Attributes that a client can put with an object and gets back with it, besides x-amz-meta-*. Spelt as in S3's responses.
# A GET can override each by a query parameter, `response-content-type` and so on.
KEPT = ("Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires")

# These are kept and returned like the above, without effect: nothing is encrypted, and storage classes do not differ. S3 repeats
# the headers about encryption in the response to every write.
ENCRYPTION = "x-amz-server-side-encryption"
_STORAGE_CLASS = "x-amz-storage-class"
KEPT_AMZ = (ENCRYPTION, f"{ENCRYPTION}-aws-kms-key-id", f"{ENCRYPTION}-bucket-key-enabled", _STORAGE_CLASS)
_STORAGE_CLASSES = ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY")


@dataclass(frozen=True)
class Call:
    """One parsed request. `bucket` and `key` are empty if the path does not name them. Its methods raise S3Errors."""

    store: Store
    uploads: Uploads
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
        number = whole_number(text)
        if number is None:
            raise S3Error("InvalidArgument", ArgumentName=name, ArgumentValue=text)
        return number

    def checksum_algorithm(self) -> str:
        """Return the checksum algorithm that the client requests, in lower case; empty for none."""
        asked = self.headers.get("x-amz-checksum-algorithm")
        return checksums.algorithm(asked) if asked else ""

    def document_body(self) -> bytes:
        """Return the whole XML body."""
        content = bytearray()
        while block := self.request.body.read(_BODY_LIMIT):
            content += block
            if len(content) > _BODY_LIMIT:
                raise S3Error("MalformedXML")
        return bytes(content)

    def kept_headers(self) -> dict[str, str]:
        """Return the headers of a write that are stored with the object; refuses a storage class of archives."""
        kept = {name: self.headers[name.lower()] for name in KEPT if self.headers.get(name.lower())}
        coding = ",".join(part for part in kept.pop("Content-Encoding", "").split(",") if part.strip() != "aws-chunked")
        if coding:
            kept["Content-Encoding"] = coding.strip()
        kept |= {name: self.headers[name] for name in KEPT_AMZ if name in self.headers}
        storage_class = kept.get(_STORAGE_CLASS, "STANDARD")
        if storage_class not in _STORAGE_CLASSES:  # objects in an archive could not be read again
            raise S3Error("NotImplemented", Header=f"{_STORAGE_CLASS}: {storage_class}")
        return kept | headers_with("x-amz-meta-", self.headers)

    def check_write(self, existing: Stored | None) -> None:
        """Check If-Match and If-None-Match before the existing object is replaced."""
        if_match, if_none_match = (self.headers.get(name) for name in ("if-match", "if-none-match"))
        if existing is None:
            if if_match is not None:
                raise S3Error("NoSuchKey", Key=self.key)
            return
        if if_match is not None and not _matches(if_match, existing.etag):
            raise S3Error("PreconditionFailed", Condition="If-Match")
        if if_none_match is not None and _matches(if_none_match, existing.etag):
            raise S3Error("PreconditionFailed", Condition="If-None-Match")

    def unchanged(self, stored: Stored, prefix: str = "") -> bool:
        """Return whether the response is 304 Not Modified, by the conditions whose headers begin with `prefix`.

        Order and precedence are those of RFC 9110 (13.2.2).
        """
        tags, unless_tags = (self.headers.get(f"{prefix}{name}") for name in ("if-match", "if-none-match"))
        if tags is not None:
            if not _matches(tags, stored.etag):
                raise S3Error("PreconditionFailed", Condition=f"{prefix}If-Match")
        elif (since := self._seconds(f"{prefix}if-unmodified-since")) is not None and int(stored.modified) > since:
            raise S3Error("PreconditionFailed", Condition=f"{prefix}If-Unmodified-Since")
        if unless_tags is not None:
            return _matches(unless_tags, stored.etag)
        since = self._seconds(f"{prefix}if-modified-since")
        return since is not None and int(stored.modified) <= since

    def _seconds(self, header: str) -> float | None:
        """Return a date in seconds since 1970; None if it is absent or not a date, which HTTP ignores."""
        try:
            parsed = parsedate_to_datetime(self.headers.get(header, ""))
        except ValueError:
            return None
        return parsed.replace(tzinfo=parsed.tzinfo or timezone.utc).timestamp()

    def source(self) -> tuple[str, str]:
        """Return bucket and key of the object that a copy names as its source."""
        path, _, version = self.headers["x-amz-copy-source"].partition("?versionId=")
        bucket, _, key = unquote(path).removeprefix("/").partition("/")
        if version not in ("", NO_VERSION) or not key:
            raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source", ArgumentValue=path)
        return bucket, key

    def receive_source(self, algorithm: str) -> tuple[Received, Stored]:
        """Read the object, or the range of it, that a copy names as its source."""
        descriptor, stored = self.store.open(*self.source())
        with os.fdopen(descriptor, "rb") as file:
            start, end = 0, stored.size
            asked = self.headers.get("x-amz-copy-source-range")
            if asked is not None:
                found = _SOURCE_RANGE.fullmatch(asked)
                if found is None or int(found[2]) >= stored.size:
                    raise S3Error("InvalidArgument", ArgumentName="x-amz-copy-source-range", ArgumentValue=asked)
                start, end = int(found[1]), int(found[2]) + 1
            if self.unchanged(stored, "x-amz-copy-source-"):
                raise S3Error("PreconditionFailed", Condition="x-amz-copy-source-If-None-Match")
            file.seek(start)
            body = checksums.HashedBody(CountedBody(file, end - start), {algorithm} if algorithm else set(), {})
            received = self.store.incoming.receive(body)
            return replace(received, checksums=body.checksums({})), stored

    def receive(self, algorithm: str = "", slot: Slot | None = None) -> Received:
        """Receive the object's bytes without S3's own chunks, and compare them with the stated length and checksums."""
        if "content-length" not in self.headers and "chunked" not in self.headers.get("transfer-encoding", ""):
            raise S3Error("MissingContentLength")
        names = checksums.stated(self.headers) | ({algorithm} if algorithm else set())
        if self._is_aws_chunked():
            chunked = ChunkedBody(io.BufferedReader(self.request.body))
            body = checksums.HashedBody(chunked, names, chunked.trailers)
        else:
            body = checksums.HashedBody(self.request.body, names, {})
        received = self.store.incoming.receive(body, slot)
        try:
            if self.stated_size() not in (None, received.size):
                raise S3Error("IncompleteBody")
            checksums.check_md5(self.headers, received.md5)
            return replace(received, checksums=body.checksums(self.headers))
        except S3Error:
            if slot is None:
                received.discard()
            raise

    def stated_size(self) -> int | None:
        """Return the number of bytes that the client states; with aws-chunked, HTTP's own length differs."""
        return whole_number(
            self.headers.get("x-amz-decoded-content-length" if self._is_aws_chunked() else "content-length", "")
        )

    def _is_aws_chunked(self) -> bool:
        """Return whether the body is in S3's own chunks; like S3, ignore Content-Encoding."""
        streamed = self.headers.get("x-amz-content-sha256", "").startswith("STREAMING-")
        return streamed or "x-amz-decoded-content-length" in self.headers


def xml(root: str, pairs: Pairs) -> Response:
    """Return a response that is an XML document."""
    return Response(200, {"Content-Type": "application/xml"}, document(root, pairs))


def shown_headers(stored: Stored) -> dict[str, str]:
    """Return an object's headers without those that a response contains only on request."""
    return {
        name: value for name, value in stored.headers.items() if not name.startswith((PART_SIZES, checksums.PREFIX))
    }


def headers_with(prefix: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose name begins with the prefix."""
    return {name: value for name, value in headers.items() if name.startswith(prefix)}


def _matches(tags: str, etag: str) -> bool:
    return any(tag.strip().removeprefix("W/").strip('"') in (etag, "*") for tag in tags.split(","))
