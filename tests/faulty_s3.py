"""A folder served as S3, with latency and faults, and a connector channel there: what the tests of the connector share."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.local.s3_server.http_server import Answer, Request, Response
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.job.environment import Channel, Environment, load_environment
from sagemaker_channels.sources.pace import pace_of
from sagemaker_channels.sources.s3 import numbers
from served_bucket import served_bucket

RESET = 0  # in place of a status: the connection is cut
CODES = {404: "NoSuchKey", 403: "AccessDenied", 500: "InternalError", 503: "SlowDown"}


class Store:
    """A served folder, the requests that came, and what is done to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[Request] = []
        self.faults: dict[str, list[int]] = {}  # of a range, or of a path: how its next requests are answered
        self.fault_delay = 0.0  # seconds until a fault is sent
        self.gone = threading.Event()  # while it is set, every connection is cut
        self.speaking = threading.Event()  # while it is not set, nothing is answered
        self.speaking.set()
        self.hushed: set[str] = set()  # paths that are not answered
        self.silent_methods: set[str] = set()  # requests with them are not answered
        self.on_silence: Callable[[], None] = lambda: None  # is called by each request that then waits

    def around(self, answer: Answer) -> Answer:
        """The server's answers, 2 ms late, or one of the faults."""

        def watched(request: Request) -> Response:
            self.requests.append(request)
            if self.gone.is_set():
                raise ConnectionResetError
            if not self.speaking.is_set():
                self.on_silence()
                self.speaking.wait()
            if request.path in self.hushed:
                self.on_silence()
                while request.path in self.hushed:
                    time.sleep(0.02)
            while request.method in self.silent_methods:
                time.sleep(0.02)
            for name in (request.headers.get("range", ""), request.path):
                if faults := self.faults.get(name):
                    time.sleep(self.fault_delay)
                    return _fault(faults.pop(0))
            time.sleep(0.002)
            return answer(request)

        return watched

    def listings(self) -> int:
        """How many pages were asked for."""
        return sum("list-type" in request.query for request in self.requests)


def _fault(status: int) -> Response:
    if status == RESET:
        raise ConnectionResetError
    body = f"<Error><Code>{CODES.get(status, 'Other')}</Code><Message>no</Message></Error>"
    return Response(status, {"Content-Type": "application/xml"}, body.encode())


@contextmanager
def faulty_s3(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Serves the bucket `bucket` for this process and its children."""
    pace_of.cache_clear()  # so that requests of short tests are not repeated, and can be counted
    numbers.clear()
    found = Store(root / "s3" / "bucket")
    with served_bucket(root, monkeypatch, found.around):
        yield found
        found.hushed.clear()
        found.silent_methods.clear()
        found.speaking.set()
        for thread in threading.enumerate():  # answered now; the client ends the process if Python ends before that
            if thread.name in ("prefetch", "s3 request"):
                thread.join(PATIENCE)


def environment_of(root: Path, uri: str, content_type: str | None = None) -> Environment:
    """A job of one host whose channel `train` is read through the connector."""
    entry = {"channel": "train", "s3_uri": uri, "style": "iterable"} | (
        {"content_type": content_type} if content_type else {}
    )
    return load_environment(root, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})


def channel_of(root: Path, uri: str = "s3://bucket/") -> Channel:
    """That channel."""
    return environment_of(root, uri).channels["train"]
