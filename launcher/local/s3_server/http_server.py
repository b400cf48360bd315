"""HTTP/1.1 for the embedded S3 server, on http.server: bodies in chunks, files by sendfile, one thread per connection."""

from __future__ import annotations

import io
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO, TypeAlias

_log = logging.getLogger(__name__)
_PIECE = 256 * 1024  # bytes
_LINE_LIMIT = 64 * 1024  # bytes of the line before a chunk


@dataclass(frozen=True)
class FileSlice:
    """`count` bytes of an open file from `offset` on. The sender closes the file."""

    file: BinaryIO
    offset: int
    count: int


@dataclass
class Response:
    """Status, headers and body; Content-Length follows from the body."""

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
    body: Iterator[bytes]  # without HTTP's own chunks, but with S3's


Answer: TypeAlias = Callable[[Request], Response]  # latency and faults are such functions around the server's own


class BrokenBodyError(ConnectionError):
    """A body that ends early, or whose chunks are malformed."""


def unchunked(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield the content of chunks, each `<hex size>[;extension]` CRLF data CRLF, the last of size 0 and followed by trailers.

    HTTP's chunked transfer coding and S3's aws-chunked content coding share this form; one can contain the other.
    """
    try:
        while size := int(stream.readline(_LINE_LIMIT).partition(b";")[0], 16):
            yield from _counted(stream, size)
            stream.readline(_LINE_LIMIT)
    except ValueError:
        raise BrokenBodyError("not the start of a chunk") from None
    while stream.readline(_LINE_LIMIT).strip():
        pass  # a trailer, such as a checksum


def _counted(stream: io.BufferedIOBase, size: int) -> Iterator[bytes]:
    while size > 0:
        piece = stream.read(min(size, _PIECE))
        if not piece:
            raise BrokenBodyError("the body ends early")
        size -= len(piece)
        yield piece


@contextmanager
def listening(answer: Answer, address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """Answer on a free port of an address of this machine; yields both. On leaving, all connections and threads have ended."""
    with _Server((address, 0), _Handler) as server:
        server.answer = answer
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="s3-accept", daemon=True)
        thread.start()
        try:
            yield address, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 1024  # the CRT opens dozens of connections together
    answer: Answer

    def __init__(self, *arguments: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error instead of printing it to the user's terminal."""
        _log.debug("a connection ended", exc_info=True)

    def server_close(self) -> None:
        """End all connections too, and wait for their threads."""
        for connection in self._open.copy():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *arguments: Any) -> None:
        _log.debug(format, *arguments)

    def _answer(self) -> None:
        headers = {name.lower(): value.strip() for name, value in self.headers.items()}
        is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        body = unchunked(self.rfile) if is_chunked else _counted(self.rfile, int(headers.get("content-length", "0")))
        path, _, query = self.path.partition("?")
        self._send(self.server.answer(Request(self.command, path, query, headers, body)))
        for _ in body:  # the rest of it, which precedes the next request
            pass

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _send(self, response: Response) -> None:
        body = response.body
        with nullcontext() if isinstance(body, bytes) else body.file:  # closed even if the client has gone
            self.send_response_only(response.status)
            self.send_header("Date", self.date_time_string())
            for name, value in response.headers.items():
                self.send_header(name, value)
            if response.status not in (204, 304):
                self.send_header("Content-Length", str(len(body) if isinstance(body, bytes) else body.count))
            self.end_headers()
            if self.command == "HEAD":
                return
            if isinstance(body, bytes):
                self.wfile.write(body)
            elif body.count and self.connection.sendfile(body.file, body.offset, body.count) != body.count:
                raise ConnectionError("the file became shorter while it was sent")
