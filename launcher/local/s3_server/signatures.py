"""Whether a request to the embedded S3 server is signed with one of its keys, in a header or in the URL.

This is AWS Signature Version 4. Not checked, since client and server are on one machine and a key lives as long as a run: the time
of a signature, the hash of a body, and the signatures of a streamed body's chunks.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from launcher.local.s3_server.documents import S3Error
from launcher.local.s3_server.http_server import Request

Keys: TypeAlias = Mapping[str, str]  # access key id -> secret access key

_SCHEME = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(rf"{_SCHEME} +Credential=([^,]+), *SignedHeaders=([^,]+), *Signature=([0-9a-f]+)")
_quote = partial(quote, safe="~", encoding="latin-1")
_REMEDY = (
    "leave credentials and signature_version out of the script, so that it signs with AWS_ACCESS_KEY_ID and its secret"
)


class _Signed(NamedTuple):
    """What a request states about its signature by version 4."""

    credential: str  # <access key id>/<date>/<region>/<service>/aws4_request
    headers: Sequence[str]
    signature: str
    moment: str  # such as 20260131T120000Z
    payload: str


def signing_key_id(request: Request, keys: Keys, payload: str | None = None) -> str:
    """Return the id of the key that a request is signed with. Raises an S3Error, like S3, unless that is one of the keys.

    `payload` is the hash of the body, which clients of other services than S3 sign without sending it.
    """
    query = parse_qsl(request.query, keep_blank_values=True, encoding="latin-1")
    values = dict(query)
    if "Signature" in values:
        remedy = "sign it with Config(signature_version='s3v4')"
        raise S3Error("AccessDenied", Message=f"The URL is signed by version 2; {remedy}")
    signed = _stated(request, values, payload)
    key_id, _, scope = signed.credential.partition("/")
    if key_id not in keys:
        message = f"The AWS Access Key Id you provided does not exist in our records; {_REMEDY}"
        raise S3Error("InvalidAccessKeyId", Message=message)
    unsigned = [name for name in request.headers if name.startswith("x-amz-") and name not in signed.headers]
    if unsigned or "host" not in signed.headers:
        raise S3Error("AccessDenied", Message="There were headers present in the request which were not signed")
    canonical = _canonical_request(request, query, signed)
    text = f"{_SCHEME}\n{signed.moment}\n{scope}\n{hashlib.sha256(canonical.encode('latin-1')).hexdigest()}"
    key = f"AWS4{keys[key_id]}".encode()
    for part in scope.split("/"):  # date, region, service, aws4_request
        key = hmac.digest(key, part.encode(), "sha256")
    if not hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex().encode(), signed.signature.encode()):
        raise S3Error("SignatureDoesNotMatch")
    return key_id


def _stated(request: Request, values: Mapping[str, str], payload: str | None) -> _Signed:
    if authorization := request.headers.get("authorization"):
        found = _AUTHORIZATION.fullmatch(authorization)
        if found is None:
            raise S3Error("AccessDenied", Message=f"The request is not signed with {_SCHEME}; {_REMEDY}")
        payload = request.headers.get("x-amz-content-sha256", payload)
        if payload is None:  # as from curl 7
            raise S3Error("AccessDenied", Message="Missing required header for this request: x-amz-content-sha256")
        moment = request.headers.get("x-amz-date", "")
        return _Signed(found[1], found[2].split(";"), found[3], moment, payload)
    if values.get("X-Amz-Algorithm") != _SCHEME:
        raise S3Error("AccessDenied", Message=f"The request is not signed; {_REMEDY}")
    credential, names, signature, moment = (
        values.get(f"X-Amz-{name}", "") for name in ("Credential", "SignedHeaders", "Signature", "Date")
    )
    return _Signed(credential, names.split(";"), signature, moment, "UNSIGNED-PAYLOAD")


def _canonical_request(request: Request, query: Sequence[tuple[str, str]], signed: _Signed) -> str:
    path = quote(unquote_to_bytes(request.path), safe="/~")
    pairs = sorted((_quote(name), _quote(value)) for name, value in query if name != "X-Amz-Signature")
    headers = "".join(f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in signed.headers)
    parameters = "&".join(f"{name}={value}" for name, value in pairs)
    return f"{request.method}\n{path}\n{parameters}\n{headers}\n{';'.join(signed.headers)}\n{signed.payload}"
