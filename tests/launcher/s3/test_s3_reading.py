"""Naming an object and reading it to its end, against a server that has faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.exceptions import IncompleteReadError

from launcher.errors import RefusedError
from launcher.s3.uri import S3Location, parse_s3_uri
from s3_objects import remote_objects


def connect(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=2)
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="s", region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://b/k/x", ("b", "k/x")),
        ("s3://b", ("b", "")),
        ("s3://b//k", ("b", "/k")),
        ("https://b/k", ("b", "k")),
        ("https://s3.us-east-1.amazonaws.com/b/k/x", ("b", "k/x")),
        ("https://s3.amazonaws.com/b/k", ("b", "k")),
        ("https://s3.cn-north-1.amazonaws.com.cn/b/k", ("b", "k")),
        ("https://my.data.s3.eu-west-1.amazonaws.com/k/x", ("my.data", "k/x")),
        ("https://data.s3-eu-west-1.amazonaws.com/k", ("data", "k")),
    ],
)
def test_uri_names_bucket_and_key(uri: str, place: tuple[str, str]) -> None:
    assert parse_s3_uri(uri) == place


@pytest.mark.parametrize(
    "uri", ["", "bucket/key", "s3:/b/k", "s3:///k", "S3://b/k", "gs://b/k", "https://s3.amazonaws.com"]
)
def test_malformed_s3_uri_is_refused(uri: str) -> None:
    with pytest.raises(RefusedError, match="is not an S3 URI"):
        parse_s3_uri(uri)


def test_refused_connection_names_endpoint_and_remedy() -> None:
    with pytest.raises(RefusedError, match=r"no answer: .*AWS_ENDPOINT_URL"):
        list(remote_objects(connect("http://127.0.0.1:9")).read(S3Location("bucket", "a")))


BODY = bytes(range(256)) * 8192


class Faulty(BaseHTTPRequestHandler):
    """An S3 that cuts every answer after a million bytes, and that changes or refuses certain objects."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "denied" in self.path:
            text = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
            self.answer(403, text, len(text))
            return
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        if start and ("changed" in self.path or self.headers["If-Match"] != '"tag"'):
            text = b"<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>"
            self.answer(412, text, len(text))
            return
        size = 0 if "dead" in self.path else 1_000_000
        self.answer(206 if start else 200, BODY[start : start + size], len(BODY) - start)

    def answer(self, status: int, sent: bytes, announced: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(announced))
        if "page" not in self.path:
            self.send_header("ETag", '"tag"')
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def faulty_client() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Faulty) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield connect(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def test_broken_connection_resumes_where_it_broke() -> None:
    with faulty_client() as client:
        assert b"".join(remote_objects(client).read(S3Location("bucket", "cut"))) == BODY


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("changed", "the object changed while it was being read"),
        ("dead", "s3:GetObject: the connection breaks again and again"),
        ("denied", "access is denied; .*s3:GetObject"),
        ("page", "s3:GetObject: the answer is not from AWS; check the endpoint"),  # of a proxy, or of MinIO's console
    ],
)
def test_object_that_cannot_be_read_to_its_end_is_refused(key: str, message: str) -> None:
    with faulty_client() as client, pytest.raises(RefusedError, match=f"s3://bucket/{key} at http.*: {message}"):
        list(remote_objects(client).read(S3Location("bucket", key)))


def test_connection_of_an_answer_that_is_not_from_aws_is_closed() -> None:
    bodies: list[Any] = []
    with faulty_client() as client:
        client.meta.events.register("after-call.s3.GetObject", lambda parsed, **_: bodies.append(parsed["Body"]))
        with pytest.raises(RefusedError):
            list(remote_objects(client).read(S3Location("bucket", "page")))
        with pytest.raises(IncompleteReadError, match=r"^0 read"):
            bodies[0].read()
