"""A small S3 server on this machine: `DIR/s3/<bucket>/<key>` is object `<key>` of `<bucket>`.

A local run serves its `--data` folder to programs that speak S3: FastFile's mount, s3torchconnector, and scripts. moto would read
a whole object into memory for every range; this server sends files by sendfile, and writes go to the run's own folder (store.py).
It answers boto3, the AWS CRT, rclone and s3fs as S3 does, path-style only, and refuses what none of them sends as NotImplemented.

Other users of this machine reach it too, so it answers only requests that are signed with its keys (signatures.py). Unlike S3, it
compares no body with its signed hash or checksum, since client and server are on one machine; headers for checksums, encryption,
storage class, ACLs, tags and locks have no effect; the ETag of a file in the data folder is made of inode, size and time; there are
no versions, and one region, us-east-1; and directory buckets (S3 Express) list in the order of keys, too.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import parse_qsl, unquote

from launcher.local.s3_server.call import Call
from launcher.local.s3_server.documents import S3Error
from launcher.local.s3_server.http_server import Answer, BrokenBodyError, Request, Response, listening
from launcher.local.s3_server.operations import OPERATIONS, Operation
from launcher.local.s3_server.signatures import Keys, signing_key_id
from launcher.local.s3_server.store import Store
from launcher.local.s3_server.uploads import Upload

_log = logging.getLogger(__name__)
_request_ids = itertools.count(1)

# An unknown parameter, such as `acl`, would change the operation, so it is refused.
_PARTS = frozenset(part for _, _, part in OPERATIONS if part)
_PARAMETERS = frozenset(
    (
        *("prefix", "delimiter", "encoding-type", "list-type", "max-keys", "marker", "start-after"),
        *("continuation-token", "max-buckets", "bucket-region", "x-id", "partNumber"),
    )
)
# Conditions, and a place in the object, that no client of ours sends; without them the request would do something else.
_REFUSED_HEADERS = ("if-modified-since", "if-unmodified-since", "x-amz-write-offset-bytes")


@contextmanager
def serve(
    store: Store, keys: Keys, around: Callable[[Answer], Answer] | None = None, *, address: str = "127.0.0.1"
) -> Iterator[str]:
    """Serve a store to the clients that have one of the keys; yields the endpoint, `http://<address>:<port>`.

    One server at a time may use the store's overlay. `keys` maps access key ids to secret access keys. `around` wraps the server's
    `Answer`, to delay or replace responses.
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
    level = "object" if call.key else "bucket" if call.bucket else "service"
    part = next((name for name in call.query if name in _PARTS), "")
    for name in call.query:
        # Those of Amazon sign the request.
        if name not in _PARTS and name not in _PARAMETERS and not name.lower().startswith("x-amz-"):
            raise S3Error("NotImplemented", Parameter=name)
    for name in _REFUSED_HEADERS:
        if name in call.headers:
            raise S3Error("NotImplemented", Header=name)
    operation = OPERATIONS.get((call.request.method, level, part))
    if operation is None:
        raise S3Error("MethodNotAllowed", Method=call.request.method, ResourceType=part or level)
    return operation
