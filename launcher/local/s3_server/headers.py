"""The headers of a request about an object: attributes to keep, and conditions to meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timezone
from email.utils import parsedate_to_datetime

from launcher.local.s3_server.call import Call
from launcher.local.s3_server.documents import S3Error
from launcher.local.s3_server.storage import checksums
from launcher.local.s3_server.storage.store import Stored
from launcher.local.s3_server.storage.uploads import PART_SIZES

# Attributes that a client can put with an object and gets back with it, besides x-amz-meta-*. Spelt as in S3's responses.
# A GET can override each by a query parameter, `response-content-type` and so on.
KEPT_HEADERS = (
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Type",
    "Expires",
)
OVERRIDES = frozenset(f"response-{name.lower()}" for name in KEPT_HEADERS)

# These are kept and returned like the above, without effect: nothing is encrypted, and storage classes do not differ.
_ENCRYPTION = "x-amz-server-side-encryption"
_STORAGE_CLASS = "x-amz-storage-class"
KEPT_AMZ = (_ENCRYPTION, f"{_ENCRYPTION}-aws-kms-key-id", f"{_ENCRYPTION}-bucket-key-enabled", _STORAGE_CLASS)
_STORAGE_CLASSES = frozenset(
    ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY")
)


def kept_headers(call: Call) -> dict[str, str]:
    """Return the headers of a write that are stored with the object. Raises S3Error for a storage class of archives."""
    headers = call.request.headers
    kept = {name: headers[name.lower()] for name in KEPT_HEADERS if headers.get(name.lower())}
    coding = ",".join(part for part in kept.pop("Content-Encoding", "").split(",") if part.strip() != "aws-chunked")
    if coding:
        kept["Content-Encoding"] = coding.strip()
    kept |= {name: headers[name] for name in KEPT_AMZ if name in headers}
    storage_class = kept.get(_STORAGE_CLASS, "STANDARD")
    if storage_class not in _STORAGE_CLASSES:  # objects in an archive could not be read again
        raise S3Error("NotImplemented", Header=f"{_STORAGE_CLASS}: {storage_class}")
    return kept | {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}


def shown_headers(stored: Stored) -> dict[str, str]:
    """Return an object's headers without those that a response contains only on request."""
    hidden = (PART_SIZES, *checksum_headers(stored.headers))
    return {name: value for name, value in stored.headers.items() if name not in hidden}


def checksum_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that hold checksums."""
    return {name: value for name, value in headers.items() if name.startswith(checksums.PREFIX)}


def encryption_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers about encryption, which S3 repeats in the response to every write."""
    return {name: value for name, value in headers.items() if name.startswith(_ENCRYPTION)}


def write_condition(call: Call) -> Callable[[Stored | None], None]:
    """Return the check before an object is replaced: the request's If-Match and If-None-Match."""
    if_match, if_none_match = (call.request.headers.get(name) for name in ("if-match", "if-none-match"))

    def allow(existing: Stored | None) -> None:
        if if_match is not None and existing is None:
            raise S3Error("NoSuchKey", Key=call.key)
        if if_match is not None and existing is not None and not _matches(if_match, existing.etag):
            raise S3Error("PreconditionFailed", Condition="If-Match")
        if if_none_match is not None and existing is not None and _matches(if_none_match, existing.etag):
            raise S3Error("PreconditionFailed", Condition="If-None-Match")

    return allow


def unchanged(headers: Mapping[str, str], stored: Stored, prefix: str = "") -> bool:
    """Return whether the response is 304 Not Modified, by the conditions whose headers begin with `prefix`.

    Order and precedence are those of RFC 9110 (13.2.2).

    Raises:
        S3Error: PreconditionFailed.
    """
    if (tags := headers.get(f"{prefix}if-match")) is not None:
        if not _matches(tags, stored.etag):
            raise S3Error("PreconditionFailed", Condition=f"{prefix}If-Match")
    elif (since := _seconds(headers.get(f"{prefix}if-unmodified-since"))) is not None and int(stored.modified) > since:
        raise S3Error("PreconditionFailed", Condition=f"{prefix}If-Unmodified-Since")
    if (tags := headers.get(f"{prefix}if-none-match")) is not None:
        return _matches(tags, stored.etag)
    since = _seconds(headers.get(f"{prefix}if-modified-since"))
    return since is not None and int(stored.modified) <= since


def _matches(tags: str, etag: str) -> bool:
    return any(tag.strip().removeprefix("W/").strip('"') in (etag, "*") for tag in tags.split(","))


def _seconds(date: str | None) -> float | None:
    """Return an HTTP date in seconds since 1970; None if it is absent or not a date, which HTTP ignores."""
    try:
        parsed = parsedate_to_datetime(date) if date else None
    except ValueError:
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or timezone.utc).timestamp() if parsed else None
