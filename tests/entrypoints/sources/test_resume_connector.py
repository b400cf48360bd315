"""Connector channels resume with any number of readers, from pages of their listing."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from object_channels import fill
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.states import merge_states
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import load_environment
from served_bucket import served_bucket


@pytest.mark.parametrize("style", ["iterable", "map"])
@pytest.mark.parametrize("reading", [{}, {"seed": 2, "block": 10}], ids=["in order", "shuffled"])
def test_connector_channel_resumes_with_any_number_of_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: dict[str, Any], style: str
) -> None:
    keys = [f"{number:03}" for number in range(120)]
    entry = {"channel": "train", "s3_uri": "s3://bucket/", "style": style}
    environment = load_environment(tmp_path, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
    with served_bucket(tmp_path, monkeypatch) as folder:
        fill(folder, keys)
        found: list[str] = []
        merged = None
        for count, most in ((3, 11), (8, 3), (1, 10), (4, 9), (2, None)):
            states = []
            for index in range(count):
                with open_channel("train", environment=environment, shard=Shard(index, count), **reading) as samples:
                    if merged is not None:
                        samples.load_state_dict(merged)
                    found += [sample["data"].decode() for sample in islice(samples, most)]
                    states.append(samples.state_dict())
            merged = json.loads(json.dumps(merge_states(states)))
    assert sorted(found) == keys


def test_object_written_again_in_the_middle_of_its_reading_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"channel": "train", "s3_uri": "s3://bucket/", "style": "iterable", "content_type": "text/plain"}
    environment = load_environment(tmp_path, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
    with served_bucket(tmp_path, monkeypatch) as folder:
        for name in "ab":
            (folder / f"{name}.txt").write_text("1\n2\n3\n4\n")
        states = []
        for index in range(2):
            with open_channel("train", environment=environment, shard=Shard(index, 2)) as samples:
                next(samples)
                states.append(samples.state_dict())
        (folder / "b.txt").write_text("5\n6\n7\n8\n")  # as long as before
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))  # another job, which lists again
        for state, shard in ((states[1], Shard(1, 2)), (merge_states(states), Shard())):
            with open_channel("train", environment=environment, shard=shard) as samples:
                samples.load_state_dict(state)
                with pytest.raises(ChannelError, match=r"object 'b.txt' is not the one of when the state was taken"):
                    list(samples)
