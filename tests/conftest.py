"""What the tests share: the optional system parts, and a spec that is right."""

from __future__ import annotations

import os
import shutil

import pytest

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


def need(what: str) -> None:
    """Skip a test whose optional part is missing; under CI=true that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
