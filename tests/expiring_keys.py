"""A container's credentials that expire: a server that issues keys, and a store that refuses expired ones as S3 does."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from launcher.local.s3_server.http_server import Answer, Request, Response

_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


class Keys:
    """The keys that were issued.

    Args:
        seconds: How long a key is valid.
        stated: How long the issuer says that it is valid, if that is wrong.
        uses: After how many requests a key has expired, too; then no test depends on the machine's speed.
    """

    def __init__(self, seconds: float, stated: float | None = None, uses: float = math.inf) -> None:
        self.seconds, self.stated, self.uses = seconds, seconds if stated is None else stated, uses
        self.issued: list[float] = []  # when each key expires
        self.used: Counter[int] = Counter()
        self.refused = 0  # requests

    def issue(self) -> bytes:
        now = time.time()
        self.issued.append(now + self.seconds)
        expires = datetime.fromtimestamp(now + self.stated, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        number = len(self.issued) - 1
        key = {"AccessKeyId": f"ASIA{number}", "SecretAccessKey": "secret", "Token": f"token{number}"}
        return json.dumps({**key, "Expiration": expires}).encode()

    def around(self, answer: Answer) -> Answer:
        """The store's answers to valid keys, else its refusal."""

        def checked(request: Request) -> Response:
            found = re.search(r"Credential=ASIA(\d+)/", request.headers.get("authorization", ""))
            assert found is not None, "the request is not signed"
            number = int(found[1])
            self.used[number] += 1
            if time.time() >= self.issued[number] or self.used[number] > self.uses:
                self.refused += 1
                return Response(400, {"Content-Type": "application/xml"}, _EXPIRED)
            return answer(request)

        return checked


@contextmanager
def issued_keys(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Issue the keys to this process and its children as SageMaker issues a container's."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = keys.issue()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{server.server_address[1]}/keys")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
