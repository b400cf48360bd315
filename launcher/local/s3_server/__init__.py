"""A small S3 server on this machine: `DIR/s3/<bucket>/<key>` is object `<key>` of `<bucket>`.

A local run serves its `--data` folder to programs that speak S3: FastFile's mount, s3torchconnector, and scripts. moto would read
a whole object into memory for every range; this server sends files by sendfile, and writes go to the run's own folder (store.py).
It answers boto3, the AWS CRT, rclone and s3fs as S3 does, path-style only, and refuses what none of them sends as NotImplemented.

Other users of this machine reach it too, so it answers only requests that are signed with its keys (signatures.py). Unlike S3, it
compares no body with its signed hash or checksum, since client and server are on one machine; checksums, encryption and storage
class are stored and returned without effect; the ETag of a file in the data folder is made of inode, size and time; there are no
versions, ACLs, tags or locks, and one region, us-east-1. A bucket with the name of a directory bucket (S3 Express) lists only
folders, and not in the order of keys.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import parse_qsl, unquote

from launcher.local.s3_server.call import NO_VERSION, Call
from launcher.local.s3_server.documents import S3Error
from launcher.local.s3_server.http_server import Answer, BrokenBodyError, Request, Response, listening
from launcher.local.s3_server.operations import OPERATIONS, Operation
from launcher.local.s3_server.signatures import Keys, signing_key_id
from launcher.local.s3_server.store import Store
from launcher.local.s3_server.uploads import Upload

_log = logging.getLogger(__name__)
_request_ids = itertools.count(1)

# An unknown parameter, such as `acl`, or header, such as x-amz-tagging, would change the operation, so it is refused.
_PARTS = frozenset(part for _, _, part in OPERATIONS if part)
_PARAMETERS = frozenset(
    (
        *("prefix", "delimiter", "encoding-type", "list-type", "max-keys", "marker", "start-after", "fetch-owner"),
        *("continuation-token", "key-marker", "version-id-marker", "versionId", "max-buckets", "bucket-region", "x-id"),
        *(
            "partNumber",
            "AWSAccessKeyId",
            "Signature",
            "Expires",
        ),  # the last three sign the request, in S3's older form
    )
)
_HEADERS = frozenset(
    f"x-amz-{name}"
    for name in (
        *("date", "content-sha256", "security-token", "s3session-token", "user-agent", "te", "trailer", "acl"),
        *("decoded-content-length", "expected-bucket-owner", "source-expected-bucket-owner", "request-payer"),
        *("copy-source", "copy-source-range", "copy-source-if-match", "copy-source-if-none-match", "object-ownership"),
        *("metadata-directive", "tagging-directive", "mp-object-size", "bypass-governance-retention", "storage-class"),
        *("optional-object-attributes", "server-side-encryption", "server-side-encryption-context"),
        *("server-side-encryption-aws-kms-key-id", "server-side-encryption-bucket-key-enabled"),
    )
)
_HEADER_PREFIXES = ("x-amz-meta-", "x-amz-checksum-", "x-amz-sdk-")
_OTHER_HEADERS = ("if-modified-since", "if-unmodified-since")  # conditions that no client of ours sends
_ACLS = (None, "private", "bucket-owner-full-control")


@contextmanager
def serve(
    store: Store, keys: Keys, around: Callable[[Answer], Answer] | None = None, *, address: str = "127.0.0.1"
) -> Iterator[str]:
    """Serve a store to the clients that have one of the keys; yields the endpoint, `http://<address>:<port>`.

    Args:
        store: The store; one server at a time may use its overlay.
        keys: Access key id -> secret access key.
        around: Wraps the server's `Answer`, to delay or replace responses.
        address: The address of this machine to listen on.
    """
    try:
        own: Answer = partial(_answer, store, {}, keys)
        with listening(around(own) if around else own, address) as (host, port):
            yield f"http://{host}:{port}"
    finally:
        store.clear()


def _answer(store: Store, uploads: dict[str, Upload], keys: Keys, request: Request) -> Response:
    """Return the response to one request; an error is a response as well."""
    request_id = f"{next(_request_ids):016X}"
    try:
        key_id = signing_key_id(request, keys)
        call = _call(store, uploads, request, (key_id, keys[key_id]))
        response = _operation(call)(call)
    except (S3Error, BrokenBodyError) as error:
        _log.debug("%s %s: %s", request.method, request.path, error)
        response = _refusal(error if isinstance(error, S3Error) else S3Error("IncompleteBody"), request_id)
    except ConnectionError:  # the client has disconnected
        raise
    except Exception:  # noqa: BLE001 - one request must not end the server: it answers InternalError and logs the error
        _log.exception("the local S3 server failed at %s %s", request.method, request.path)
        response = _refusal(S3Error("InternalError"), request_id)
    response.headers["x-amz-request-id"] = request_id
    return response


def _refusal(error: S3Error, request_id: str) -> Response:
    return Response(error.status, {"Content-Type": "application/xml"}, error.document(request_id))


def _call(store: Store, uploads: dict[str, Upload], request: Request, credentials: tuple[str, str]) -> Call:
    try:
        path = unquote(request.path, errors="strict")
        query = dict(parse_qsl(request.query, keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError as error:
        raise S3Error("InvalidURI") from error
    bucket, _, key = path.removeprefix("/").partition("/")
    return Call(store, uploads, request, bucket, key, query, credentials)


def _operation(call: Call) -> Operation:
    headers, level = call.headers, "object" if call.key else "bucket" if call.bucket else "service"
    part = next((name for name in call.query if name in _PARTS), "")
    for name in call.query:
        if (
            name not in _PARTS and name not in _PARAMETERS and not name.lower().startswith("x-amz-")
        ):  # these sign the request
            raise S3Error("NotImplemented", Parameter=name)
    for name in headers:
        is_unknown = name.startswith("x-amz-") and name not in _HEADERS and not name.startswith(_HEADER_PREFIXES)
        if is_unknown or name in _OTHER_HEADERS:
            raise S3Error("NotImplemented", Header=name)
    if headers.get("x-amz-acl") not in _ACLS:
        raise S3Error("NotImplemented", Header=f"x-amz-acl: {headers['x-amz-acl']}")
    if call.query.get("versionId", NO_VERSION) != NO_VERSION:
        raise S3Error("InvalidArgument", Message="Invalid version id specified", ArgumentName="versionId")
    operation = OPERATIONS.get((call.request.method, level, part))
    if operation is None:
        raise S3Error("MethodNotAllowed", Method=call.request.method, ResourceType=part or level)
    return operation
