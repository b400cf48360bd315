"""Requests by the client of Amazon's S3 Connector for PyTorch (connector_client.py), safe for many threads and for fork.

The client takes requests from any number of threads, which makes it fast. Four things it does not do:

- It opens as many connections as its `throughput_target_gbps` needs. Its default, 25, cannot hide the latency of small objects.
- It makes ten attempts within 40 s and more, and S3's own failures may last longer or for ever. So it makes only a few attempts,
  and transient errors are retried here, for a limited time (s3_errors.py).
- It cannot be used after a fork; the child hangs or crashes. So requests are counted here, a fork waits until there is none, and
  the client and its threads are ended before it.
- If an answer arrives while Python exits, it panics, and may abort a process that has finished its work. So Python's exit waits for
  requests, too, for some seconds: a silent store sends no answer.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources import connector_client
from sagemaker_channels.sources.background import exit_deadline, in_background, leaving
from sagemaker_channels.sources.connector_client import Place, place
from sagemaker_channels.sources.s3_errors import cause_of
from sagemaker_channels.sources.s3_owners import check_owner
from sagemaker_channels.sources.silence import Silence, remote_silence

_TARGET_GBPS = 50.0  # 65 connections; the client's default, 10, makes 25
PATIENCE_SECONDS = 20.0  # of retries after transient errors; about 25 with the last attempts
_CLIENT_ATTEMPTS = 4  # some 3 s
_PAUSE_SECONDS = 0.2  # before the first retry; doubles each time
_LONGEST_PAUSE = 3.0
_FORK_SECONDS = 30.0  # that a fork waits for requests in flight

T = TypeVar("T")

_creating = threading.Lock()  # guards the creation of the client
_running = threading.Event()  # A client was made, and its threads have not been ended.
_made = 0.0  # when the last client was made


class _Gate:
    """A counter of requests that holds new ones back, so that a fork can wait until none is in flight."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside, self._shut = 0, False

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._shut)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self, seconds: float) -> None:
        """Hold new requests back, and wait until none is left, at most so long."""
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: not self._inside, seconds)

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()


_gate = _Gate()


def _renew_gate() -> None:
    """Reset in a child, in which the counts and locks of its parent's threads have no meaning."""
    global _gate
    _gate = _Gate()


@atexit.register
def _leave() -> None:
    _gate.shut(max(0.0, exit_deadline() - time.monotonic()))


def pages(bucket: str, prefix: str, where: Place | None = None) -> Iterator[tuple[list[Any], str | None]]:
    """Yield the pages of a prefix's listing: its ObjectInfos (key, size, etag), and the next page's token, None at the end.

    Between pages nothing of the client is held, so the process may fork. Raises ChannelError.
    """
    check_owner(bucket, is_own=False, where=where)
    name, token, is_last = f"s3://{bucket}/{prefix}", None, False
    while not is_last:
        request = partial(lambda token: connector_client.page(_client(where), bucket, prefix, token), token)
        page, token = _in_thread(
            name, partial(_patiently, f"{name} cannot be listed", request, where), "the list of its objects"
        )
        is_last = token is None
        yield page, token


def fetch(bucket: str, key: str, start: int | None, end: int | None, where: Place | None = None) -> bytes:
    """Return the bytes of an object from `start` up to `end`, or all of it if both are None.

    A broken request is resumed at the byte that it reached. Raises ChannelError if that does not help.
    """
    chunks: list[bytes] = []

    def request() -> None:
        if end is None:
            chunks.clear()  # The whole object is read, and it may be another one by now.
        reached = None if start is None else start + sum(map(len, chunks))
        for chunk in _client(where).get_object(bucket, key, reached, end):
            chunks.append(chunk)  # noqa: PERF402 - chunks before a break are kept

    _patiently(f"s3://{bucket}/{key} cannot be read", request, where)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def head(bucket: str, key: str, where: Place | None = None) -> tuple[int, str]:
    """Return the current size and ETag of an object. Raises ChannelError."""

    def request() -> Any:
        client = _client(where)
        try:
            return client.head_object(bucket, key)
        except connector_client.s3_error() as error:
            if "<no message>" not in str(error):
                raise
            next(client.get_object(bucket, key, None, None), None)  # Its answer can say that keys expired.
            return client.head_object(bucket, key)

    found = _patiently(f"s3://{bucket}/{key} cannot be read", request, where)
    return found.size, found.etag


def head_in_thread(bucket: str, key: str) -> tuple[int, str]:
    """Do the same as `head`, and react to Ctrl-C. Raises ChannelError also if S3 is silent for too long."""
    return _in_thread(f"s3://{bucket}/{key}", partial(head, bucket, key), "its size")


def content(bucket: str, key: str) -> bytes:
    """Return a small object of the job by one request, so all of it is of one version, and react to Ctrl-C. Raises ChannelError."""
    check_owner(bucket, is_own=True)
    return _in_thread(f"s3://{bucket}/{key}", partial(fetch, bucket, key, None, None), "its content")


def upload(bucket: str, key: str, write: Callable[[Any], object], gbps: float = _TARGET_GBPS) -> None:
    """Store what `write` writes to its argument, a stream; it is called again after a transient error.

    Unless everything is stored, an existing object stays as it was. Raises ChannelError, and what `write` raises.
    The client buffers what S3 has not received: 650 MB of 1 GB at the usual target of `gbps`, 200 MB at 2.
    """
    check_owner(bucket, is_own=True)
    silence = remote_silence(f"s3://{bucket}/{key}")
    given_up = threading.Event()

    def attempt() -> None:
        writer = _client(None, gbps).put_object(bucket, key)
        write(_Upload(writer, silence, given_up))
        if given_up.is_set():
            raise ChannelError(f"s3://{bucket}/{key}: its upload was given up")
        writer.close()

    try:
        _in_thread(
            silence, partial(_patiently, f"s3://{bucket}/{key} cannot be written", attempt), "its answer to an upload"
        )
    finally:
        given_up.set()


def delete(bucket: str, key: str) -> None:
    """Delete an object, if it exists, and react to Ctrl-C. Raises ChannelError."""
    check_owner(bucket, is_own=True)
    failing, name = f"s3://{bucket}/{key} cannot be deleted", f"s3://{bucket}/{key}"
    _in_thread(name, partial(_patiently, failing, lambda: _client(None).delete_object(bucket, key)), "its deletion")


class _Upload:
    """The stream of an upload: bytes that S3 accepts end its silence."""

    def __init__(self, writer: Any, silence: Silence, given_up: threading.Event) -> None:
        self._writer, self._silence, self._given_up = writer, silence, given_up

    def write(self, data: bytes) -> int:
        if self._given_up.is_set():
            raise ChannelError("the upload was given up")
        self._writer.write(bytes(data))
        self._silence.begin()
        self._silence.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


def _in_thread(who: str | Silence, ask: Callable[[], T], waiting_for: str) -> T:
    """Run `ask` in a thread, because the client ignores Ctrl-C. Raises ChannelError if `who` is silent for too long."""
    answer = in_background(ask, "s3 request")
    silence = remote_silence(who) if isinstance(who, str) else who
    while not wait([answer], silence.patience).done:
        silence.check(waiting_for)
    return answer.result()


def _patiently(failing: str, request: Callable[[], T], where: Place | None = None) -> T:
    """Return what a request returns, retrying transient errors. Raises ChannelError, which begins with `failing`."""
    begun, pause = time.monotonic(), _PAUSE_SECONDS
    while True:
        attempt = time.monotonic()
        try:
            with _gate:
                return request()
        except connector_client.s3_error() as error:
            cause = cause_of(str(error), (where or place(os.environ)).endpoint or "S3")
            seconds = time.monotonic() - begun
            patience = min(PATIENCE_SECONDS, cause.most_seconds)
            if not cause.passes or seconds >= patience or leaving.wait(pause):
                tried = f", tried for {seconds:.0f} s" if cause.passes else ""
                raise cause.error(f"{failing}: {cause.what}{tried}", remedy=cause.remedy) from error
            if "TOKEN_EXPIRED" in str(error):
                _renew_client(attempt)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _client(where: Place | None, gbps: float = _TARGET_GBPS) -> Any:
    """Return the client for a place; without one, for that of the variables."""
    with _creating:
        return _client_at(where or place(os.environ), gbps)


def _renew_client(since: float) -> None:
    """Let the next request make a client, unless one was made since then: it keeps credentials until they should expire."""
    with _creating:
        if _made <= since:
            _client_at.cache_clear()


@cache
def _client_at(where: Place, gbps: float) -> Any:
    global _made
    client = connector_client.new_client(where, gbps, _CLIENT_ATTEMPTS)
    _guard_forks()
    _running.set()
    _made = time.monotonic()
    return client


@cache
def _guard_forks() -> None:
    if "torch" in sys.modules:  # The script may use the connector, whose hook must run after ours: in reverse order.
        import s3torchconnector  # noqa: F401
    os.register_at_fork(before=_end_client, after_in_parent=lambda: _gate.open(), after_in_child=_renew_gate)


def _end_client() -> None:
    _gate.shut(_FORK_SECONDS)
    if not _running.is_set():
        return  # The next workers of a loader are forked without another collection.
    _client_at.cache_clear()
    gc.collect()  # Streams of failed requests keep it alive, too.
    with suppress(RuntimeError):  # Threads of a client of the script's own are still running.
        connector_client.end_threads(0.5)
        _running.clear()
