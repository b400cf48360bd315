"""The HTTP server: reads a call, applies a fault, answers it or has moto answer it, and records it."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from aws_stand_in.errors import Answer, Refusal, written
from aws_stand_in.moto_app import Moto
from aws_stand_in.state import State
from aws_stand_in.wire import Call, read_call

_BEFORE = ("throttle", "500", "expired", "invalid", "signature", "skewed", "denied", "refuse")
_LOGIN = Answer(200, b"<html><body>Please log in.</body></html>", {"Content-Type": "text/html", "ETag": '"1"'})


class Server(ThreadingHTTPServer):
    """Listens on loopback, one thread per connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.moto, self.moto_is_clean = Moto(), True
        self.state = State(self.moto)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have disconnected; show any other error."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: `/_stand_in/calls` returns the record of calls."""

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def answer(self) -> None:
        body = self._body()
        path = urlsplit(self.path).path
        if path.startswith("/_stand_in/"):
            self._send(self._control(unquote(path.removeprefix("/_stand_in/")), body))
        elif path.startswith("/moto-api"):
            self._send(self._moto(body))
        else:
            self._serve(read_call(self.command, self.path, self.headers, body))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = answer

    def _serve(self, call: Call) -> None:
        state = self.server.state
        entry = state.record(call)
        fault = state.faults.due(call)
        if fault is not None and fault.kind == "reset":
            entry["outcome"] = "reset"
            self._reset()
            return
        try:
            if fault is not None and fault.kind in _BEFORE:
                raise fault.refusal(call)
            answer = _LOGIN if fault is not None and fault.kind == "html" else state.answer(call)
            if answer is None:
                answer = self._moto(call.body)
                self.server.moto_is_clean &= not call.writes
            if answer is not _LOGIN:
                state.seen(call, answer)
            if fault is not None and fault.kind == "500-after":
                raise fault.refusal(call)
        except Refusal as refusal:
            answer = written(refusal, call.protocol)
            entry["code"] = refusal.code
        entry["outcome"] = answer.status if fault is None else fault.kind
        entry["status"] = answer.status
        if fault is not None and fault.kind == "reset-after":
            self._reset()
            return
        if fault is not None and fault.kind == "hang":
            state.faults.hang(fault.seconds)
        self._send(answer)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass  # trailers, which no service here reads
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _moto(self, body: bytes) -> Answer:
        return self.server.moto.answer(self.command, self.path, self.headers.items(), body)

    def _control(self, name: str, body: bytes) -> Answer:
        headers = {"Content-Type": "application/json"}
        try:
            result = self.server.state.control(name, json.loads(body or b"{}"))
            if (
                name == "reset" and not self.server.moto_is_clean
            ):  # a test that wrote nothing there need not wait for it
                self.server.moto.reset()
                self.server.moto_is_clean = True
        except Refusal as refusal:
            return Answer(
                refusal.status, json.dumps({"code": refusal.code, "message": refusal.message}).encode(), headers
            )
        except (KeyError, TypeError, ValueError) as error:
            message = f"/_stand_in/{name}: {type(error).__name__}: {error}"
            return Answer(400, json.dumps({"code": "BadControl", "message": message}).encode(), headers)
        return Answer(200, json.dumps(result).encode(), headers)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers and answer.status not in (204, 304):
            self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    def _reset(self) -> None:
        """Drop the connection with a TCP reset and no answer."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())


def serve(server: Server) -> threading.Thread:
    """Serve in a thread, until `server.shutdown()`."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    return thread
