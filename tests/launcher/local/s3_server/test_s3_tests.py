"""Ceph's compatibility tests for S3 against the embedded server: those of data/s3_tests.txt, which needs a checkout of them.

The list leaves out what the server refuses by design: ACLs, versioning, object locks, policies, tags, wrong signatures, and the
removal of buckets. The tests also remove their buckets when they end, which is done here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from launcher.local.s3_server.http_server import Answer, Request, Response
from served_bucket import serve

CHECKOUT = os.environ.get("LAUNCHER_S3_TESTS", "")
CHOSEN = (Path(__file__).parents[3] / "data" / "s3_tests.txt").read_text().splitlines()
ACCOUNTS = ("s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root")


def removing_buckets(overlay: Path) -> Callable[[Answer], Answer]:
    """Remove a bucket with all in it, and show no versions of objects."""

    def answered(answer: Answer, request: Request) -> Response:
        if request.method == "DELETE" and "/" not in request.path.strip("/"):
            shutil.rmtree(overlay / request.path.strip("/"))
            return Response(204)
        if "versions" in request.query.split("&"):
            return Response(200, {}, b"<ListVersionsResult><IsTruncated>false</IsTruncated></ListVersionsResult>")
        return answer(request)

    return lambda answer: partial(answered, answer)


@pytest.mark.s3_tests
@pytest.mark.skipif(not CHECKOUT, reason="make s3-tests fetches the tests and sets LAUNCHER_S3_TESTS")
def test_chosen_s3_tests_pass(tmp_path: Path) -> None:
    with serve(tmp_path / "s3", tmp_path / "overlay", removing_buckets(tmp_path / "overlay")) as url:
        server = urlsplit(url)
        general = [f"host = {server.hostname}", f"port = {server.port}", "is_secure = False", "ssl_verify = False"]
        prefixes = ["bucket prefix = t-{random}-", "iam name prefix = t-", "iam path prefix = /t/"]
        lines = ["[DEFAULT]", *general, "[fixtures]", *prefixes]
        for account in ACCOUNTS:
            names = ("display_name", "user_id", "email", "access_key", "secret_key", "tenant")
            lines += [f"[{account}]", "api_name = default", *(f"{name} = any" for name in names)]
        (tmp_path / "s3tests.conf").write_text("\n".join(lines))
        chosen = [f"s3tests/functional/{name}" for name in CHOSEN]
        done = subprocess.run(
            [f"{CHECKOUT}/.venv/bin/python", "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *chosen],
            cwd=CHECKOUT,
            env={**os.environ, "S3TEST_CONF": str(tmp_path / "s3tests.conf")},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
