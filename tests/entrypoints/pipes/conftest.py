"""What the tests of Pipes with several readers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipe_feeder import Feed, feeding
from sagemaker_channels.job.environment import Environment, load_environment


@pytest.fixture
def feed(root: Path) -> Iterator[Feed]:
    """A function that starts a Feeder of one of the root's channels."""
    with feeding(root) as start:
        yield start


@pytest.fixture
def environment(root: Path) -> Environment:
    return load_environment(root, {})
