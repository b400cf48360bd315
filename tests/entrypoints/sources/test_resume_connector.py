"""A connector channel whose objects change between a state and its reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from faulty_s3 import environment_of
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.states import merge_states
from sagemaker_channels.errors import ChannelError
from served_bucket import served_bucket


def test_object_written_again_in_the_middle_of_its_reading_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environment_of(tmp_path, "s3://bucket/", "text/plain")
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
