"""Wrong arguments of the public names are refused before anything begins, in one line with the value and what to give.

That includes values that are no states of ours, and damaged ones, which would lose or repeat samples if they were loaded.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from format_channels import lines_channel
from sagemaker_channels import (
    ChannelDataset,
    ChannelError,
    ChannelMapDataset,
    Environment,
    MixedDataset,
    ThreadLoader,
    contract,
    load_environment,
    merge_states,
    open_channel,
)
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.reading import Reading
from sagemaker_channels.samples.lst import read_lst
from sagemaker_channels.torch_data.worker_loader import WorkerLoader


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A channel `lines` of 12 lines in 4 objects."""
    return lines_channel(tmp_path, "lines", 4, 3)


@pytest.mark.parametrize("channel", [None, 3, ["lines"]])
def test_channel_that_is_not_a_name_is_refused(environment: Environment, channel: Any) -> None:
    for read in (open_channel, ChannelDataset, ChannelMapDataset):
        with pytest.raises(TypeError, match=r"^channel is .*; give a channel's name"):
            read(channel, environment=environment)
    with pytest.raises(TypeError, match=r"^channel is Channel\(.*; give a channel's name"):
        open_channel(environment.channels["lines"], environment=environment)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"format": len}, "^format is .*; give a content type or a short name .*transform="),
        ({"format": Reading(seed=1)}, "^format is Reading.*; give a content type"),
        ({"environment": {}}, "^environment is {}; give what load_environment"),
        ({"environment": "/opt/ml"}, "^environment is '/opt/ml'; give what load_environment"),
    ],
)
def test_format_or_reading_of_a_wrong_type_is_refused(
    environment: Environment, how: dict[str, Any], message: str
) -> None:
    for read in (open_channel, ChannelDataset):
        with pytest.raises(TypeError, match=message):
            read("lines", **{"environment": environment, **how})


@pytest.mark.parametrize("transform", [3, "decode"])
def test_transform_that_is_not_a_function_is_refused(environment: Environment, transform: Any) -> None:
    for dataset in (ChannelDataset, ChannelMapDataset):
        with pytest.raises(TypeError, match=r"^transform is .*; give a function of a sample"):
            dataset("lines", transform=transform, environment=environment)


@pytest.mark.parametrize("folder", [3, b"/tmp", ""])
def test_cache_that_is_not_a_folder_is_refused(folder: Any) -> None:
    with pytest.raises(TypeError, match=r"^cache_dir is .*; give the path of a folder"):
        Reading(cache_dir=folder)


@pytest.mark.parametrize(("index", "count"), [(-1, 2), (2, 2), (0, 0)])
def test_shard_outside_its_count_is_refused(index: int, count: int) -> None:
    with pytest.raises(ChannelError, match=f"^shard {index} of {count}: expected an index from 0"):
        Shard(index, count)


def test_shard_that_is_a_pair_is_refused(environment: Environment) -> None:
    with pytest.raises(TypeError, match=r"^shard is \(0, 2\); give a Shard"):
        open_channel("lines", environment=environment, shard=(0, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, 1.5, "4", None, True, float("nan")])
@pytest.mark.parametrize(("name", "least"), [("batch_size", 1), ("num_workers", 0), ("readers", 1)])
def test_thread_loader_number_that_is_not_whole_is_refused(
    environment: Environment, name: str, least: int, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"^{name} is .*; give a whole number from {least} on"):
        ThreadLoader(ChannelDataset("lines", environment=environment), **{name: value})


def test_collate_that_is_not_a_function_is_refused(environment: Environment) -> None:
    with pytest.raises(TypeError, match=r"^collate_fn is None; give a function of a list of samples"):
        ThreadLoader(ChannelDataset("lines", environment=environment), collate_fn=None)  # type: ignore[arg-type]


def test_mixture_as_a_mapping_is_refused(environment: Environment) -> None:
    with pytest.raises(TypeError, match=r"^parts is \{.*; give a list of datasets, and their weights= beside it"):
        MixedDataset({ChannelDataset("lines", environment=environment): 1.0})  # type: ignore[arg-type]


def test_list_can_be_named_by_text(tmp_path: Path) -> None:
    (tmp_path / "a.lst").write_text("0\t1\ta.png\n")
    assert list(read_lst(str(tmp_path / "a.lst"))) == ["a.png"]


NOTHING_OF_OURS: list[tuple[Any, str]] = [
    (None, "None"),
    ({}, "{}"),
    ([1], r"\[1\]"),
    ("x", "'x'"),
    ({"model": 1, "optimizer": 2}, "'model', 'optimizer'"),
    ({"epoch": 1}, "'epoch'"),
    ({"version": 3, "finished": True}, "of version 3"),
    ({"_snapshot": {}, "_num_yielded": 3}, "'_snapshot', '_num_yielded'"),
]


@pytest.mark.parametrize(("state", "what"), NOTHING_OF_OURS)
def test_values_that_are_not_states_are_refused(environment: Environment, state: Any, what: str) -> None:
    dataset = ChannelDataset("lines", environment=environment)
    for reader in (
        dataset,
        ThreadLoader(dataset, 2),
        WorkerLoader(dataset, 2),
        open_channel("lines", environment=environment),
    ):
        with pytest.raises(ChannelError, match=f"this is no state of ours, .*but {what}; .*restart the epoch"):
            reader.load_state_dict(state)
    assert sum(1 for _ in dataset) == 12, "it is as it was"


def edited(value: Any) -> Iterator[Any]:
    """Yield a value of JSON with each item left out, and with each leaf replaced."""
    if not isinstance(value, dict | list):
        others: list[Any] = [None, "x", -1, 0, 1.5, 10**30, []]
        yield from (each for each in others if each != value)
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        rest = copy.copy(value)
        old = rest.pop(key)
        yield rest
        for new in edited(old):
            yield {**value, key: new} if isinstance(value, dict) else [*value[:key], new, *value[key + 1 :]]


def test_edited_state_is_refused(environment: Environment) -> None:
    states = []
    for index in range(2):
        with open_channel("lines", environment=environment, shard=Shard(index, 2), seed=7, block=5) as samples:
            next(samples)
            states.append(samples.state_dict())
    dataset = ChannelDataset("lines", environment=environment, seed=7, block=5)
    dataset.load_state_dict(merge_states(states))
    next(iter(dataset))
    state = dataset.state_dict()
    edits = [*edited(state), {**state, "count": torch.ones(2)}]
    assert len(edits) > 300
    for reader in (open_channel("lines", environment=environment), dataset, ThreadLoader(dataset, 2)):
        for edit in edits:
            with pytest.raises(
                ChannelError, match=r"(state is damaged or was edited|is no state of ours).*restart the epoch"
            ):
                reader.load_state_dict(edit)
    dataset.load_state_dict(json.loads(json.dumps({**state, "step": 1.5}, sort_keys=True)))
    dataset.load_state_dict({**state, "weights": torch.ones(2)})


def connector(root: Path, s3_uri: str) -> Environment:
    entry = {"channel": "s3", "s3_uri": s3_uri, "style": "iterable", "content_type": "text/plain"}
    return load_environment(root, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})


@pytest.mark.parametrize("s3_uri", ["http://bucket/prefix", "s3:///prefix", "bucket/prefix", ""])
def test_s3_uri_without_a_bucket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_uri: str) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(ChannelError, match=f"^channel 's3': '{s3_uri}' is not an S3 URI; write s3://bucket/prefix/"):
        next(open_channel("s3", environment=connector(tmp_path, s3_uri)))


def test_endpoint_that_is_not_a_url_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("REGION", "us-east-1"),
        ("ENDPOINT_URL", "nonsense"),
        ("ACCESS_KEY_ID", "any"),
        ("SECRET_ACCESS_KEY", "any"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(ChannelError, match="the endpoint of S3 is 'nonsense'; set AWS_ENDPOINT_URL"):
        next(open_channel("s3", environment=connector(tmp_path, "s3://bucket/prefix/")))
