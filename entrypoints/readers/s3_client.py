"""The client of Amazon's S3 Connector for PyTorch (s3torchconnector), made safe for many threads and for fork.

Its client takes requests from any number of threads, which is how it is fast: one request at a time is one latency at a
time. Two things it does not do by itself:

- It asks for as many connections as its `throughput_target_gbps` needs, and 25 of them, its default, are too few to hide
  the latency of small objects.
- Before a fork it drops its native client and waits half a second for its threads, which cannot end while a request is
  under way; the child then hangs or crashes. So requests are counted here, and a fork waits until there is none.

Everything that is asked of the client goes through this file. Its class has no public name; the connector's own datasets
and its Lightning and DCP integrations use it under this one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from entrypoints.errors import ChannelError

_TARGET_GBPS = 50.0  # 65 connections; 10, the client's default, are 25
_ATTEMPTS = 3  # of a request; the client itself makes ten in 40 s, and none where S3 has answered with a refusal
_PAUSE_SECONDS = 0.2
_FORK_SECONDS = 30.0  # that a fork waits for requests under way
_REFUSED = "Service error"  # how the client's messages begin where S3 said no: the key or the bucket is not there


class _Gate:
    """Counts requests and holds new ones back while the process is forked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False

    def __enter__(self) -> None:
        with self._changed:
            while self._shut:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            if self._shut:
                self._changed.notify_all()

    def shut(self) -> None:
        """Waits until nobody is inside, and lets nobody in."""
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: not self._inside, _FORK_SECONDS)

    def open(self) -> None:
        """Lets everybody in again."""
        with self._changed:
            self._shut = False
            self._changed.notify_all()


_gate = _Gate()


def _renew_gate() -> None:
    """In a child: the counts and locks of its parent's threads mean nothing there."""
    global _gate
    _gate = _Gate()


def require() -> None:
    """Raises ImportError, saying what to install, where the connector is missing."""
    try:
        import s3torchconnector  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed, and S3Connector channels and checkpoints in S3 need it: "
            "pip install 'sagemaker-launch[s3]'",
            name=error.name,
        ) from error


def connection(environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments by which the connector's classes reach the store that the environment names.

    Raises ChannelError where nothing names a region: the connector, unlike boto3, looks into no file for it.
    """
    from s3torchconnector import S3ClientConfig

    endpoint, region = _place(environ)
    # `bucket.host` resolves at AWS only; elsewhere the bucket is a part of the path.
    config = S3ClientConfig(force_path_style=endpoint is not None)
    return {"region": region, "endpoint": endpoint, "s3client_config": config}


def s3_exception() -> type[Exception]:
    """The one exception that the connector raises for whatever goes wrong at S3."""
    from s3torchconnectorclient import S3Exception

    exception: type[Exception] = S3Exception
    return exception


def pages(bucket: str, prefix: str, token: str | None = None) -> Iterator[tuple[list[Any], str | None]]:
    """The listing of a prefix by pages: ObjectInfos (key, size, etag), and the token of the next page, None at the end.

    Begins at the page of `token`. Between pages nothing of the client is held, so that the process may fork.
    """
    from s3torchconnectorclient._mountpoint_s3_client import ListObjectStream

    complete = False
    while not complete:
        with _gate:
            client = _client()
            stream = (
                client.list_objects(bucket, prefix)
                if token is None
                else ListObjectStream._from_state(client._client, bucket, prefix, "", 1000, token, False)
            )
            page = next(stream, None)
            token, complete = stream.continuation_token, stream.complete or page is None
            del stream
        if page is not None:
            yield page.object_info, None if complete else token


def fetch(bucket: str, key: str, start: int | None, end: int | None) -> bytes:
    """The bytes of an object from `start` up to `end`, or all of it where both are None.

    A request that breaks is taken up again at the byte that it reached. Raises S3Exception where that does not help.
    """
    failure = s3_exception()
    chunks: list[bytes] = []
    reached = start or 0
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with _gate:
                for chunk in _client()._client.get_object(bucket, key, reached if chunks else start, end):
                    chunks.append(chunk)
                    reached += len(chunk)
            break
        except failure as error:
            if attempt == _ATTEMPTS or str(error).startswith(_REFUSED):
                raise
            if chunks and end is None:  # all of an object that may be another by now
                chunks, reached = [], 0
            time.sleep(attempt * _PAUSE_SECONDS)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _client() -> Any:
    """This process's client for the store that the environment names now."""
    return _client_at(*_place(os.environ))


@cache
def _client_at(endpoint: str | None, region: str) -> Any:
    require()
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client

    _guard_forks()
    config = S3ClientConfig(throughput_target_gbps=_TARGET_GBPS, force_path_style=endpoint is not None)
    return S3Client(region, endpoint=endpoint, s3client_config=config)


@cache
def _guard_forks() -> None:
    """Registered after the connector's own: what is to run before a fork runs in the reverse order."""
    os.register_at_fork(before=lambda: _gate.shut(), after_in_parent=lambda: _gate.open(), after_in_child=_renew_gate)


def _place(environ: Mapping[str, str]) -> tuple[str | None, str]:
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None)
    if region is None:
        raise ChannelError("the region of S3 is not known: set AWS_REGION")
    return endpoint, region
