"""Credentials that expire while objects are read, listed and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from expiring_keys import Keys, issued_keys
from faulty_s3 import faulty_s3
from sagemaker_channels import ChannelError, ChannelMapDataset, Checkpoints, contract
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.sources import s3_client
from served_bucket import serve


@pytest.mark.parametrize(("seconds", "stated"), [(5, 5), (1, 3600)], ids=["as-stated", "sooner-than-stated"])
def test_expired_keys_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, stated: float
) -> None:
    (tmp_path / "s3/bucket").mkdir(parents=True)
    (tmp_path / "s3/bucket/a").write_bytes(b"content")
    keys = Keys(seconds, stated)
    with serve(tmp_path / "s3", tmp_path / "overlay", keys.around) as endpoint, issued_keys(keys, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        while len(keys.used) < 3:
            assert s3_client.fetch("bucket", "a", None, None) == b"content"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keys]:
    """Keys that expire after some requests, long before they should, of a store with 20 objects."""
    folder = tmp_path / "s3/bucket/data"
    folder.mkdir(parents=True)
    for number in range(20):
        (folder / f"{number:02}").write_text(str(number))
    keys = Keys(3600, uses=8)
    with serve(tmp_path / "s3", tmp_path / "overlay", keys.around) as endpoint, issued_keys(keys, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield keys


def list_by_the_client(tmp_path: Path) -> None:
    [(page, _)] = s3_client.pages("bucket", "data/")
    assert len(page) == 20


def read_by_map_style(tmp_path: Path) -> None:
    entry = {"channel": "train", "s3_uri": "s3://bucket/data/", "style": "map"}
    environment = load_environment(tmp_path, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
    dataset = ChannelMapDataset("train", environment=environment)
    assert [sample["data"] for sample in dataset.__getitems__([3, 17])] == [b"3", b"17"]


def upload(tmp_path: Path) -> None:
    s3_client.upload("bucket", "new", lambda stream: [stream.write(bytes(5 << 20)) for _ in range(3)])
    assert s3_client.head("bucket", "new")[0] == 15 << 20


@pytest.mark.parametrize("work", [list_by_the_client, read_by_map_style, upload])
def test_keys_that_expire_too_soon_are_replaced(work: Callable[[Path], None], keys: Keys, tmp_path: Path) -> None:
    while len(keys.used) < 2:
        work(tmp_path)
    assert keys.refused


def test_expired_keys_that_nobody_renews_are_named_whatever_the_request(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a HEAD has no body with the reason, and was reported as a denied access."""
    monkeypatch.setattr(s3_client, "PATIENCE_SECONDS", 0.5)
    keys.uses = 0
    for request in (s3_client.head, s3_client.delete, partial(s3_client.fetch, start=None, end=None)):
        with pytest.raises(
            ChannelError, match=r"s3://bucket/a cannot .*: the credentials have expired \(ExpiredToken\)"
        ):
            request("bucket", "a")


def test_head_is_repeated_if_the_object_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are refused to a HEAD can have been renewed by the next request; an empty object has no byte to ask for."""
    with faulty_s3(tmp_path, monkeypatch) as store:
        (store.folder / "a").touch()
        store.faults["/bucket/a"] = [400]
        assert s3_client.head("bucket", "a")[0] == 0


def test_checkpoints_outlive_keys(keys: Keys) -> None:
    """Each save is by a process with keys of its own; the next save finds those of the last one expired."""
    model = torch.nn.Linear(3, 3)
    with Checkpoints("s3://bucket/checkpoints", keep=1) as checkpoints:
        for step in range(2):
            checkpoints.save(step, model=model)
        checkpoints.wait()
        assert checkpoints.load(model=model) == 1
    assert len(keys.used) > 2
