"""A refusal, and how each of AWS's protocols writes one.

Sources: the "Common errors" page of each service's API reference; S3's "Error responses"; EC2's "Error codes"; Smithy's pages on
awsJson1.1, restJson1, restXml, awsQuery and ec2Query for the forms.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

_INVALID = "The security token included in the request is invalid."
_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and"
    " signing method. Consult the service documentation for details."
)
_SKEWED = "Signature expired: 20261126T100000Z is now earlier than 20261126T115500Z (20261126T120000Z - 5 min.)"
# Where a fault has no code of its own in a protocol's row, the one of `json` holds.
_CODES: dict[str, dict[str, tuple[str, int, str]]] = {
    "throttle": {
        "json": ("ThrottlingException", 400, "Rate exceeded"),
        "rest-json": ("ThrottlingException", 429, "Rate exceeded"),
        "query": ("Throttling", 400, "Rate exceeded"),
        "ec2": ("RequestLimitExceeded", 503, "Request limit exceeded."),
        "rest-xml": ("SlowDown", 503, "Please reduce your request rate."),
    },
    "500": {
        "json": ("InternalFailure", 500, "The request processing has failed because of an unknown error."),
        "rest-json": ("InternalServerError", 500, "An internal error has occurred."),
        "query": ("InternalFailure", 500, "The request processing has failed because of an unknown error."),
        "ec2": ("InternalError", 500, "An internal error has occurred."),
        "rest-xml": ("InternalError", 500, "We encountered an internal error. Please try again."),
    },
    "expired": {
        "json": ("ExpiredTokenException", 400, "The security token included in the request is expired"),
        "rest-json": ("ExpiredTokenException", 403, "The security token included in the request is expired"),
        "query": ("ExpiredToken", 403, "The security token included in the request is expired"),
        "ec2": ("RequestExpired", 400, "Request has expired."),
        "rest-xml": ("ExpiredToken", 400, "The provided token has expired."),
    },
    "invalid": {  # an access key that does not exist
        "json": ("UnrecognizedClientException", 400, _INVALID),
        "rest-json": ("UnrecognizedClientException", 403, _INVALID),
        "query": ("InvalidClientTokenId", 403, _INVALID),
        "ec2": ("AuthFailure", 401, "AWS was not able to validate the provided access credentials"),
        "rest-xml": ("InvalidAccessKeyId", 403, "The AWS Access Key Id you provided does not exist in our records."),
    },
    "signature": {  # a wrong secret
        "json": ("InvalidSignatureException", 400, _SIGNATURE),
        "rest-json": ("InvalidSignatureException", 403, _SIGNATURE),
        "query": ("SignatureDoesNotMatch", 403, _SIGNATURE),
        "ec2": ("AuthFailure", 401, "AWS was not able to validate the provided access credentials"),
        "rest-xml": ("SignatureDoesNotMatch", 403, _SIGNATURE),
    },
    "skewed": {  # a clock that is wrong
        "json": ("InvalidSignatureException", 400, _SKEWED),
        "rest-json": ("InvalidSignatureException", 403, _SKEWED),
        "query": ("SignatureDoesNotMatch", 403, _SKEWED),
        "ec2": ("AuthFailure", 401, "AWS was not able to validate the provided access credentials"),
        "rest-xml": (
            "RequestTimeTooSkewed",
            403,
            "The difference between the request time and the current time is too large.",
        ),
    },
    "denied": {
        "json": ("AccessDeniedException", 400, ""),
        "rest-json": ("AccessDeniedException", 403, ""),
        "query": ("AccessDenied", 403, ""),
        "ec2": ("UnauthorizedOperation", 403, ""),
        "rest-xml": ("AccessDenied", 403, ""),
    },
}
CALLER = "arn:aws:sts::123456789012:assumed-role/developer/stand-in"


class Refusal(Exception):
    """AWS's refusal of a call: its code, message and HTTP status, and the headers that S3 adds."""

    def __init__(self, code: str, message: str, status: int = 400, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.headers = code, message, status, headers or {}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. The body of an answer to HEAD is never sent."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def refusal_of(kind: str, protocol: str, call: str) -> Refusal:
    """Return a fault's refusal in a protocol: `refusal_of("throttle", "rest-xml", "s3:PutObject")` is S3's SlowDown."""
    code, status, message = _CODES[kind][protocol]
    if kind == "denied":
        why = f"because no identity-based policy allows the {call} action"
        message = f"User: {CALLER} is not authorized to perform: {call} {why}"
    return Refusal(code, message, status)


def written(refusal: Refusal, protocol: str) -> Answer:
    """Return a refusal as its protocol writes it."""
    request, code, message = str(uuid.uuid4()), escape(refusal.code), escape(refusal.message)
    headers = {"x-amzn-RequestId": request, **refusal.headers}
    if protocol in ("json", "rest-json"):
        if protocol == "json":
            content = {"__type": refusal.code, "message": refusal.message}
            headers["Content-Type"] = "application/x-amz-json-1.1"
        else:
            content = {"ErrorCode": refusal.code, "message": refusal.message}
            headers |= {"Content-Type": "application/json", "x-amzn-ErrorType": refusal.code}
        return Answer(refusal.status, json.dumps(content).encode(), headers)
    error = f"<Code>{code}</Code><Message>{message}</Message>"
    if protocol == "query":
        kind = "Sender" if refusal.status < 500 else "Receiver"
        text = (
            f"<ErrorResponse><Error><Type>{kind}</Type>{error}</Error><RequestId>{request}</RequestId></ErrorResponse>"
        )
    elif protocol == "ec2":
        text = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request}</RequestID></Response>"
    else:
        text = f"<Error>{error}<RequestId>{request}</RequestId></Error>"
        headers = {"x-amz-request-id": request, **refusal.headers}
    headers["Content-Type"] = "text/xml" if protocol != "rest-xml" else "application/xml"
    return Answer(refusal.status, b'<?xml version="1.0" encoding="UTF-8"?>\n' + text.encode(), headers)
