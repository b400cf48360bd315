"""S3's XML, written from nested lists of (element, value) pairs, and its errors, as in the Amazon S3 API reference (2006-03-01)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TypeAlias
from xml.etree import ElementTree

Value: TypeAlias = "str | int | bool | Sequence[tuple[str, Value]]"
Pairs: TypeAlias = "Sequence[tuple[str, Value]]"

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
# S3 writes control characters as references, even if XML 1.0 forbids them.
_ESCAPED = {code: f"&#{code};" for code in (*range(32), 127, *map(ord, '&<>"'))}

# Code -> status and S3's message.
ERRORS: Mapping[str, tuple[int, str]] = {
    "AccessDenied": (403, "Access Denied"),
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed object size."),
    "IncompleteBody": (400, "The number of bytes read is not the number that the Content-Length header gave."),
    "InternalError": (500, "The local S3 server failed; see its log."),
    "InvalidAccessKeyId": (403, "The AWS Access Key Id you provided does not exist in our records."),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidBucketName": (400, "The specified bucket is not valid."),
    "InvalidPart": (400, "One or more of the specified parts could not be found, or its ETag differs."),
    "InvalidPartOrder": (400, "The list of parts was not in ascending order of part numbers."),
    "InvalidRange": (416, "The requested range is not satisfiable"),
    "InvalidRequest": (400, "Invalid Request"),
    "InvalidURI": (400, "Couldn't parse the specified URI."),
    "KeyTooLongError": (400, "Your key is too long"),
    "MalformedXML": (400, "The XML you provided was not well-formed or did not validate."),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchUpload": (404, "The specified multipart upload does not exist: it may have been aborted or completed."),
    "NotImplemented": (501, "The local S3 server does not support this part of S3."),
    "PreconditionFailed": (412, "At least one of the pre-conditions you specified did not hold"),
    "SignatureDoesNotMatch": (403, "The request signature we calculated does not match the signature you provided."),
}


class S3Error(Exception):
    """An error response: a code of `ERRORS` and the details that S3 adds, such as the Key."""

    def __init__(self, code: str, **details: str | int) -> None:
        status, message = ERRORS[code]
        super().__init__(f"{code}: {details}")
        self.code = code
        self.status = status
        self.details = {"Message": message, **details}

    def document(self, request_id: str) -> bytes:
        return document("Error", [("Code", self.code), *self.details.items(), ("RequestId", request_id)], "")


def document(root: str, pairs: Pairs, namespace: str = f' xmlns="{_NAMESPACE}"') -> bytes:
    """Return a document: `root` with its children in this order; a value that is a list is nested."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{namespace}>{_elements(pairs)}</{root}>'.encode()


def _elements(pairs: Pairs) -> str:
    pieces = []
    for name, value in pairs:
        if isinstance(value, str):
            text = value.translate(_ESCAPED)
        else:
            text = str(value).lower() if isinstance(value, int) else _elements(value)
        pieces.append(f"<{name}>{text}</{name}>")
    return "".join(pieces)


def timestamp(seconds: float) -> str:
    """Return a time (in seconds since 1970) as S3 writes it, such as 2026-01-31T12:00:00.000Z."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def read_all(blocks: Iterable[bytes], limit: int, code: str) -> bytes:
    """Return a body. Raises an S3Error of the code if it has more bytes than the limit."""
    body = bytearray()
    for block in blocks:
        body += block
        if len(body) > limit:
            raise S3Error(code)
    return bytes(body)


def text_of(parent: ElementTree.Element, name: str) -> str:
    """Return the text of an element's child. Raises S3Error MalformedXML if there is none."""
    text = parent.findtext("{*}" + name)
    if not text:
        raise S3Error("MalformedXML")
    return text
