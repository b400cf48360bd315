"""The demo's digits, and an /opt/ml with their channels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from launcher import demo
from sagemaker_channels import contract
from train_runs import CHANNELS, REPOSITORY, SPLIT


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("digits") / "data"
    demo.make_demo(directory, SPLIT)
    return directory


@pytest.fixture
def make_root(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """A function that makes an /opt/ml for this process, some of whose channels may differ."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "tests/data"))  # users_model
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are too small for more

    def make(name: str, **changed: dict[str, str]) -> Path:
        root = tmp_path / name
        (root / contract.CONFIG_DIR).mkdir(parents=True)
        (root / contract.DATA_DIR).mkdir()
        config = {
            channel: {"TrainingInputMode": "File", **changed.get(channel, {})} for channel in {**CHANNELS, **changed}
        }
        (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(config))
        for channel, folder in CHANNELS.items():
            if config[channel]["TrainingInputMode"] == "File":
                (root / contract.DATA_DIR / channel).symlink_to(data / folder)
        monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(root))
        return root

    yield make
    torch.set_num_threads(threads)
