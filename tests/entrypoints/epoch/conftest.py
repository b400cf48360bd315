"""What the tests of order and resuming share."""

from __future__ import annotations

import pytest

from sagemaker_channels.job.environment import Environment
from shuffled_channels import make_environment


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("ml"))
