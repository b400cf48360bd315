"""An epoch that is left early: its files are closed by `with`, and by Python where nobody holds the iterator any more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from entrypoints.channel import open_channel
from entrypoints.environment import Environment, load_environment
from entrypoints.sampling import Reading


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A channel of one file of 100 lines."""
    folder = tmp_path / "input/data/lines"
    folder.mkdir(parents=True)
    (folder / "0.txt").write_text("".join(f"{number}\n" for number in range(100)))
    (tmp_path / "input/config").mkdir()
    entry = {"TrainingInputMode": "File", "ContentType": "text/plain"}
    (tmp_path / "input/config/inputdataconfig.json").write_text(json.dumps({"lines": entry}))
    return load_environment(tmp_path, {})


def is_open(environment: Environment) -> bool:
    here = Path("/proc/self/fd")
    opened = {os.readlink(here / name) for name in os.listdir(here) if (here / name).is_symlink()}  # noqa: PTH115, PTH208
    return str(environment.channels["lines"].path / "0.txt") in opened


@pytest.mark.parametrize("reading", [None, Reading(seed=1, block=10)], ids=["", "shuffled"])
def test_files_are_closed(environment: Environment, reading: Reading | None) -> None:
    with open_channel("lines", environment=environment, reading=reading) as samples:
        next(samples)
        assert is_open(environment)
    assert not is_open(environment)
    samples = open_channel("lines", environment=environment, reading=reading)
    next(samples)
    assert is_open(environment)
    del samples
    assert not is_open(environment)
