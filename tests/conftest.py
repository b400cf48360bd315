"""What the tests share: the optional system parts, and a spec that is right."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

import aws_stand_in

OPTIONAL = {"fusermount3": "FUSE (package fuse3)", "rclone": "rclone"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="write tests/golden anew from the bundled specs")


@pytest.fixture
def fuse() -> None:
    """Needs a FUSE tool; where it is missing, CI fails and a laptop skips."""
    missing = [what for tool, what in OPTIONAL.items() if shutil.which(tool) is None]
    if not os.path.exists("/dev/fuse"):  # noqa: PTH110 - a device, not a file
        missing.append("/dev/fuse")
    if missing:
        need(f"needs {', '.join(missing)}")


@pytest.fixture(scope="session")
def running_aws() -> Iterator[aws_stand_in.StandIn]:
    """The stand-in for AWS, in processes of its own, for all tests; take `aws`, which is empty."""
    with aws_stand_in.running() as stand_in:
        yield stand_in


@pytest.fixture
def aws(running_aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch) -> aws_stand_in.StandIn:
    """An empty AWS account, which this process and its children find where they look for AWS."""
    running_aws.reset()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in running_aws.environ.items():
        monkeypatch.setenv(name, value)
    return running_aws


def need(what: str) -> None:
    """Skip a test whose optional part is missing; under CI=true that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
