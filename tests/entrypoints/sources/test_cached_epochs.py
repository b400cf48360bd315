"""Epochs that are read from cache_dir, in every format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from format_channels import job
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sources import mounted
from shuffled_channels import CHANNELS, EVERY, make_environment, texts


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("ml"))


@pytest.fixture
def far(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the channels be on a remote file system; the list of files that are opened there."""
    opened: list[str] = []
    original = mounted.open_objects

    def noting(channel: Any, paths: Any) -> Any:
        def noted() -> Iterator[Any]:
            for path in paths:
                opened.append(path)
                yield path

        return original(channel, noted())

    monkeypatch.setattr("sagemaker_channels.epoch.channel.is_remote", lambda path: True)
    monkeypatch.setattr(mounted, "open_objects", noting)
    return opened


def test_second_epoch_is_read_from_the_cache(environment: Environment, far: list[str], tmp_path: Path) -> None:
    for name in CHANNELS:
        far.clear()
        reading: dict[str, Any] = {"cache_dir": tmp_path / name}
        first = texts(environment, name, **reading)
        assert far
        far.clear()
        assert texts(environment, name, 1, **reading) == first
        shuffled = {"seed": 1, "cache_dir": tmp_path / name}
        assert sorted(texts(environment, name, 1, Shard(0, 1), **shuffled)) == EVERY
        assert far == []


def test_object_that_is_left_early_is_kept(environment: Environment, far: list[str], tmp_path: Path) -> None:
    reading: dict[str, Any] = {"cache_dir": tmp_path}
    with closing(open_channel("tar", environment=environment, **reading)) as samples:
        for _ in range(25):
            next(samples)
    far.clear()
    assert sorted(texts(environment, "tar", **reading)) == EVERY
    assert far == [f"{shard}.tar" for shard in range(3, 7)], "three had been begun"
    assert list(tmp_path.rglob("parts/*")) == []


def test_full_disk_ends_caching_but_not_reading(
    environment: Environment, far: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sagemaker_channels.sources.object_cache.KEPT_FREE", 1.1)
    assert texts(environment, "tar", cache_dir=tmp_path) == texts(environment, "tar")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_cache_dir_with_a_pipe_is_refused(tmp_path: Path) -> None:
    environment = job(tmp_path, "application/x-tar", "Pipe")
    with pytest.raises(ChannelError, match="sends each epoch as one stream"):
        open_channel("train", environment=environment, cache_dir=tmp_path)
