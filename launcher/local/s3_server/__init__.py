"""A small S3 server on this machine: `DIR/s3/<bucket>/<key>` is object `<key>` of `<bucket>`.

A local run serves its `--data` folder to programs that speak S3: FastFile's mount, s3torchconnector, and scripts. moto would read
a whole object into memory for every range; this server sends files by sendfile, and writes go to the run's own folder (store.py).
It answers boto3, the AWS CRT, rclone and s3fs as S3 does, path-style only, and refuses other operations as NotImplemented.

Other users of this machine reach it too, so it answers only requests that are signed with its keys (signatures.py). Unlike S3, it
compares no body with its signed hash; CRC32C and CRC64NVME are compared only if a package computes them; the ETag of a file in the
data folder is made of inode, size and time; encryption and storage class are stored without effect; there are no versions, ACLs,
tags or locks, and one region, us-east-1. A bucket with the name of a directory bucket (S3 Express) lists only folders, and not in
the order of keys.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

from launcher.local.s3_server import buckets, objects
from launcher.local.s3_server.call import KEPT, KEPT_AMZ, Call
from launcher.local.s3_server.documents import NO_VERSION, S3Error
from launcher.local.s3_server.http_server import Answer, BrokenChunks, Request, Response, listening
from launcher.local.s3_server.signatures import Keys, signing_key_id
from launcher.local.s3_server.storage.store import Store
from launcher.local.s3_server.storage.uploads import Uploads

_log = logging.getLogger(__name__)

Operation: TypeAlias = Callable[[Call], Response]

# Method, what the path names, and the query parameter that names a part of it (or an empty text) -> operation.
OPERATIONS: Mapping[tuple[str, str, str], Operation] = {
    ("GET", "service", ""): buckets.list_buckets,
    ("HEAD", "bucket", ""): buckets.head_bucket,
    ("GET", "bucket", ""): buckets.list_objects,
    ("GET", "bucket", "location"): buckets.get_bucket_location,
    ("GET", "bucket", "uploads"): buckets.list_multipart_uploads,
    ("GET", "bucket", "versions"): buckets.list_object_versions,
    ("GET", "service", "session"): buckets.create_session,  # The CRT leaves the bucket out.
    ("GET", "bucket", "session"): buckets.create_session,
    ("PUT", "bucket", ""): buckets.create_bucket,
    ("DELETE", "bucket", ""): buckets.delete_bucket,
    ("POST", "bucket", "delete"): buckets.delete_objects,
    ("GET", "object", ""): objects.get_object,
    ("HEAD", "object", ""): objects.get_object,
    ("GET", "object", "uploadId"): objects.list_parts,
    ("PUT", "object", ""): objects.put_object,
    ("PUT", "object", "uploadId"): objects.upload_part,
    ("POST", "object", "uploads"): objects.create_multipart_upload,
    ("POST", "object", "uploadId"): objects.complete_multipart_upload,
    ("DELETE", "object", ""): objects.delete_object,
    ("DELETE", "object", "uploadId"): objects.abort_multipart_upload,
}
_PARTS = frozenset(part for _, _, part in OPERATIONS if part)

# Parameters without effect on the operation. An unknown one, such as `acl` or `versioning`, would change the operation.
_PARAMETERS = frozenset(
    (
        *("prefix", "delimiter", "encoding-type", "list-type", "max-keys", "marker", "start-after", "fetch-owner"),
        *("continuation-token", "partNumber", "max-parts", "part-number-marker", "max-uploads", "key-marker"),
        *("upload-id-marker", "version-id-marker", "versionId", "max-buckets", "bucket-region", "x-id"),
        *("AWSAccessKeyId", "Signature", "Expires"),  # they sign the request, in S3's older form
        *(f"response-{name.lower()}" for name in KEPT),
    )
)

# Headers of Amazon that are supported or have no effect. Any other, such as x-amz-tagging, is refused.
_HEADERS = frozenset(
    f"x-amz-{name}"
    for name in (
        *("date", "content-sha256", "security-token", "s3session-token", "user-agent", "te", "trailer"),
        *("request-payer", "decoded-content-length", "expected-bucket-owner", "source-expected-bucket-owner"),
        *("object-ownership", "copy-source", "copy-source-range", "metadata-directive", "tagging-directive", "acl"),
        *("mp-object-size", "bypass-governance-retention", "optional-object-attributes", "max-parts"),
        *("part-number-marker", "server-side-encryption-context"),
        *(name.removeprefix("x-amz-") for name in KEPT_AMZ),
    )
)
_HEADER_PREFIXES = ("x-amz-meta-", "x-amz-checksum-", "x-amz-sdk-", "x-amz-copy-source-if-")
_ACLS = (None, "private", "bucket-owner-full-control")
_request_ids = itertools.count(1)


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
        own: Answer = partial(answer, store, Uploads(store), keys)
        with listening(around(own) if around else own, address) as (host, port):
            yield f"http://{host}:{port}"
    finally:
        store.incoming.clear()


def answer(store: Store, uploads: Uploads, keys: Keys, request: Request) -> Response:
    """Return the response to one request; an error is a response as well."""
    request_id = f"{next(_request_ids):016X}"
    try:
        key_id = signing_key_id(request, keys)
        call = _read_call(store, uploads, request, (key_id, keys[key_id]))
        response = _find_operation(call)(call)
    except S3Error as error:
        _log.debug("%s %s: %s", request.method, request.path, error)
        response = _refusal(error, request_id)
    except BrokenChunks:
        response = _refusal(S3Error("IncompleteBody"), request_id)
    except ConnectionError:  # the client has disconnected
        raise
    except Exception:  # noqa: BLE001 - one request must not end the server: it answers InternalError and logs the error
        _log.exception("the local S3 server failed at %s %s", request.method, request.path)
        response = _refusal(S3Error("InternalError"), request_id)
    response.headers["x-amz-request-id"] = request_id
    return response


def _refusal(error: S3Error, request_id: str) -> Response:
    return Response(error.status, {"Content-Type": "application/xml"}, error.document(request_id))


def _read_call(store: Store, uploads: Uploads, request: Request, credentials: tuple[str, str]) -> Call:
    try:
        path = unquote(request.path, errors="strict")
        query = dict(parse_qsl(request.query, keep_blank_values=True, errors="strict")) if request.query else {}
    except UnicodeDecodeError as error:
        raise S3Error("InvalidURI") from error
    bucket, _, key = path.removeprefix("/").partition("/")
    return Call(store, uploads, request, bucket, key, query, credentials)


def _find_operation(call: Call) -> Operation:
    level = "object" if call.key else "bucket" if call.bucket else "service"
    part = ""
    for name in call.query:
        if name in _PARTS:
            part = name
        elif name not in _PARAMETERS and not name.lower().startswith("x-amz-"):  # these sign the request
            raise S3Error("NotImplemented", Parameter=name)
    for name in call.request.headers:
        if name.startswith("x-amz-") and name not in _HEADERS and not name.startswith(_HEADER_PREFIXES):
            raise S3Error("NotImplemented", Header=name)
    if call.request.headers.get("x-amz-acl") not in _ACLS:
        raise S3Error("NotImplemented", Header=f"x-amz-acl: {call.request.headers['x-amz-acl']}")
    if call.query.get("versionId", NO_VERSION) != NO_VERSION:
        raise S3Error("InvalidArgument", Message="Invalid version id specified", ArgumentName="versionId")
    operation = OPERATIONS.get((call.request.method, level, part))
    if operation is None:
        raise S3Error("MethodNotAllowed", Method=call.request.method, ResourceType=part or level)
    return operation
