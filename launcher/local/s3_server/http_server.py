"""HTTP/1.1 for the embedded S3 server: requests from a socket, responses to it, files by sendfile.

http.server would request a client's body before checking the request, does not support chunked bodies, and is slower by a fifth.
There is one thread per connection: S3 clients keep theirs open, and reading, sending and hashing release the GIL.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, TypeAlias

_log = logging.getLogger(__name__)
_BUFFER = 64 * 1024  # bytes; a file up to this size is sent with its headers in one packet
DIGITS = 20  # of 2**64; Python refuses thousands
_LINE_LIMIT = 64 * 1024  # bytes of one header line
_SENDFILE_LIMIT = 1 << 30  # bytes per call; the kernel sends at most 2 GB
_SCRAP = bytearray(_BUFFER)  # for bytes to be discarded, shared by all threads
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_CLOSING_SECONDS = 10.0  # for which the server waits for running requests at its end


@dataclass(frozen=True)
class FileSlice:
    """`count` bytes of an open file from `offset` on. The sender closes the descriptor."""

    descriptor: int
    offset: int
    count: int


@dataclass
class Response:
    """Status, headers and body; Content-Length follows from the body unless it is among the headers."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | FileSlice = b""


@dataclass(frozen=True)
class Request:
    """One request. Header names are in lower case; path and query are still percent-encoded."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: io.RawIOBase  # without HTTP's own chunks, but with S3's


Answer: TypeAlias = Callable[[Request], Response]  # latency and faults are such functions around the server's own


class _MalformedRequest(Exception):
    """The request is not HTTP, so the connection must end."""


class CountedBody(io.RawIOBase):
    """The next `length` bytes of a stream. `start` is called before any of them is read.

    Reading raises ConnectionError if the stream ends earlier, so that half an object is never treated as a whole one.
    """

    def __init__(self, stream: io.BufferedReader, length: int, start: Callable[[], None] = lambda: None) -> None:
        self._stream, self._left, self._start = stream, length, start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: self._left]
        if not view:
            return 0
        self._start()
        count = self._stream.readinto(view)
        if not count:
            raise ConnectionError("the client went away in the middle of a body")
        self._left -= count
        return count


class BrokenChunks(ConnectionError):
    """A chunked body that ends early or is malformed."""


class ChunkedBody(io.RawIOBase):
    """A stream of chunks, each `<hex size>[;extension]` CRLF data CRLF, the last of size 0 and followed by trailers.

    HTTP's chunked transfer coding and S3's aws-chunked content coding share this form; one can contain the other.
    `trailers` are complete at the end, with names in lower case. Reading raises BrokenChunks.
    """

    def __init__(self, stream: io.BufferedReader, start: Callable[[], None] = lambda: None) -> None:
        self._stream, self._start = stream, start
        self._left = 0  # of this chunk
        self._began = self._ended = False
        self.trailers: dict[str, str] = {}

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if not view or self._ended or not (self._left or self._next_chunk()):
            return 0
        count = self._stream.readinto(view[: self._left])
        if not count:
            raise BrokenChunks("the body ends in the middle of a chunk")
        self._left -= count
        return count

    def _next_chunk(self) -> int:
        if not self._began:
            self._start()
        elif self._stream.readline(_LINE_LIMIT).strip():
            raise BrokenChunks("a chunk is longer than its stated size")
        self._began = True
        line = self._stream.readline(_LINE_LIMIT)
        try:
            self._left = int(line.partition(b";")[0], 16)
        except ValueError as error:
            raise BrokenChunks(f"not the start of a chunk: {line[:40]!r}") from error
        if not self._left:
            self._ended = True
            while trailer := self._stream.readline(_LINE_LIMIT).decode("latin-1").strip():
                name, _, value = trailer.partition(":")
                self.trailers[name.strip().lower()] = value.strip()
        return self._left


@contextmanager
def listening(answer: Answer, address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """Answer on a free port of an address of this machine; yields both. On leaving, all connections and threads have ended."""
    with _Server(answer, address) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="s3-accept", daemon=True)
        thread.start()
        try:
            yield address, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 1024  # the CRT opens dozens of connections together

    def __init__(self, answer: Answer, address: str) -> None:
        super().__init__((address, 0), socketserver.BaseRequestHandler)
        self._answer = answer
        self._address = address
        self._open: dict[threading.Thread, socket.socket] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the new connection, registered for `server_close` before it runs."""
        thread = threading.Thread(target=self._converse, args=(request,), name="s3-connection", daemon=True)
        self._open[thread] = request
        thread.start()

    def _converse(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("rb") as stream:
                while _exchange(stream, connection, self._answer, self._address):
                    pass
        except ConnectionError as error:
            _log.debug("a connection ended: %s", error)
        except Exception:  # noqa: BLE001 - the thread ends here: log the error instead of printing it to the user's terminal
            _log.exception("the local S3 server lost a connection")
        finally:
            self.shutdown_request(connection)
            del self._open[threading.current_thread()]

    def server_close(self) -> None:
        """End all connections too, and wait for running requests."""
        super().server_close()
        connections = dict(self._open)
        for connection in connections.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections:
            thread.join(_CLOSING_SECONDS)


def _exchange(stream: io.BufferedReader, connection: socket.socket, answer: Answer, address: str) -> bool:
    """Read one request and send its response; return whether the connection stays open.

    A request for another host is refused, since a web page can let its own name lead to this server. Any port will do: for S3
    Express, the CRT names none.
    """
    waiting = False  # the client waits for "100 Continue" before it sends the body

    def send_continue() -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    try:
        request = _read_request(stream, send_continue)
    except _MalformedRequest as error:
        _send(connection, Response(400, {"Connection": "close"}, str(error).encode()), with_body=True)
        return False
    if request is None:
        return False
    if request.headers.get("host", "").partition(":")[0] not in (address, "localhost"):
        _send(connection, Response(403, {"Connection": "close"}, f"this is {address} only".encode()), with_body=True)
        return False
    waiting = request.headers.get("expect", "").lower() == "100-continue"
    response = answer(request)
    keep = request.headers.get("connection", "").lower() != "close" and not waiting
    if not keep:
        response.headers["Connection"] = "close"
    _send(connection, response, with_body=request.method != "HEAD")
    while keep and request.body.readinto(_SCRAP):  # the rest of the body, which precedes the next request
        pass
    return keep


def _read_request(stream: io.BufferedReader, start: Callable[[], None]) -> Request | None:
    """Return the next request of a connection; None if the client has closed it."""
    line = stream.readline(_LINE_LIMIT)
    if line in (b"\r\n", b"\n"):  # a stray blank line between requests, which HTTP allows
        line = stream.readline(_LINE_LIMIT)
    if not line:
        return None
    words = line.decode("latin-1").split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _MalformedRequest("not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    while (line := stream.readline(_LINE_LIMIT)) not in (b"\r\n", b"\n"):
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise _MalformedRequest("a header without a colon, or headers cut off")
        headers[name.strip().lower()] = value.strip()
    if words[2] == "HTTP/1.0":
        headers["connection"] = "close"
    path, _, query = words[1].partition("?")
    return Request(words[0], path, query, headers, _body(stream, headers, start))


def _body(stream: io.BufferedReader, headers: Mapping[str, str], start: Callable[[], None]) -> io.RawIOBase:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return ChunkedBody(stream, start)
    length = whole_number(headers.get("content-length", "0"))
    if length is None:
        raise _MalformedRequest("the header Content-Length is not a whole number of bytes")
    return CountedBody(stream, length, start)


def whole_number(text: str) -> int | None:
    """Return a number >= 0, such as a header has; None if the text is another or longer than any number of bytes."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def _send(connection: socket.socket, response: Response, *, with_body: bool) -> None:
    body = response.body
    try:
        lines = [f"HTTP/1.1 {response.status} {_PHRASES[response.status]}", f"Date: {formatdate(usegmt=True)}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        if response.status not in (204, 304):
            lines.append(f"Content-Length: {len(body) if isinstance(body, bytes) else body.count}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        if not with_body:
            connection.sendall(head)
        elif isinstance(body, bytes):
            connection.sendall(head + body)
        else:
            _send_file(connection, head, body)
    finally:
        if isinstance(body, FileSlice):
            os.close(body.descriptor)


def _send_file(connection: socket.socket, head: bytes, body: FileSlice) -> None:
    """Send head and file; end the connection if the file became shorter, since the client waits for the promised bytes."""
    sent = 0
    if body.count <= _BUFFER:
        content = os.pread(body.descriptor, body.count, body.offset)
        connection.sendall(head + content)
        sent = len(content)
    else:
        connection.sendall(head)
        while step := min(body.count - sent, _SENDFILE_LIMIT):
            if not (count := os.sendfile(connection.fileno(), body.descriptor, body.offset + sent, step)):
                break
            sent += count
    if sent != body.count:
        raise ConnectionError("the file became shorter while it was sent")
