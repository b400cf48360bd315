"""moto as a WSGI application in this process; three quarters of what its server takes for a call are the server's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from werkzeug.test import run_wsgi_app

from aws_stand_in.errors import Answer

_OF_ONE_HOP = ("connection", "transfer-encoding", "keep-alive", "date", "server", "content-length")


class Moto:
    """All services and accounts of moto."""

    def __init__(self) -> None:
        os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # which takes seconds
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._application = DomainDispatcherApplication(create_backend_app)
        self.answer("GET", "/moto-api/data.json", (), b"")  # imports what every call needs

    def answer(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes) -> Answer:
        """Return moto's answer to a request, whose target is the path and query as received."""
        path, _, query = target.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "QUERY_STRING": query,
            "REQUEST_URI": target,
            "RAW_URI": target,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in headers:
            if name.lower() not in ("connection", "expect", "transfer-encoding"):
                environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE", "")
        environ.pop("HTTP_CONTENT_LENGTH", None)
        environ["CONTENT_LENGTH"] = str(len(body))
        parts, status, answered = run_wsgi_app(self._application, environ, buffered=True)
        kept = {name: value for name, value in answered if name.lower() not in _OF_ONE_HOP}
        if method == "HEAD" and (length := answered.get("Content-Length")):
            kept["Content-Length"] = length
        return Answer(int(status.split()[0]), b"".join(parts), kept)

    def reset(self) -> None:
        """Forget everything, in half a second."""
        self.answer("POST", "/moto-api/reset", (), b"")
