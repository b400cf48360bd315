"""The order of objects in an epoch, the shards of hosts, and keys that cannot be files."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import RefusedError
from launcher.local.channels.delivery import Delivery
from launcher.local.channels.selection import (
    S3Object,
    as_tree,
    epoch_order,
)


def channel_of(distribution: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/", "S3DataDistributionType": distribution}
    return {"ChannelName": "train", "InputMode": "Pipe", "DataSource": {"S3DataSource": source}}


def objects(*paths: str) -> list[S3Object]:
    return [S3Object("bucket", f"k/{path}", 1, path) for path in paths]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "a//x", "./x", "a/.", "..", "", "a\0b"])
def test_key_that_cannot_be_a_file_is_refused_by_name(path: str) -> None:
    with pytest.raises(RefusedError) as caught:
        as_tree(objects("good", path))
    assert f"s3://bucket/k/{path}: {path!r} is not a valid file path" in str(caught.value)


@pytest.mark.parametrize("paths", [("a", "a/b"), ("a/b/c", "x", "a"), ("a/b", "a/b/c/d")])
def test_key_that_is_also_a_folder_is_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError, match="is an object and also a folder"):
        as_tree(objects(*paths))


def test_two_keys_of_one_path_are_refused_but_one_key_twice_is_one_file() -> None:
    tree = objects("train_old/a", "..a", "a.", "ä b")
    assert as_tree([*tree, tree[0]]) == tree
    with pytest.raises(RefusedError, match="has the same path 'train_old/a'"):
        as_tree([*tree, replace(tree[0], key="elsewhere")])


def test_epoch_order_is_a_pure_shuffle_that_differs_from_epoch_to_epoch() -> None:
    items = list(range(40))
    orders = [epoch_order(items, 7, epoch) for epoch in range(6)]
    assert all(sorted(order) == items for order in orders)
    assert orders == [epoch_order(items, 7, epoch) for epoch in range(6)]
    assert epoch_order(items, 7, 0) != epoch_order(items, 8, 0)
    assert len({tuple(order) for order in orders}) == 6
    assert epoch_order([], 1, 5) == []


@pytest.mark.parametrize(("items", "hosts"), [(10, 3), (2, 4), (0, 2), (5, 1)])
def test_shards_of_hosts_cover_all_items_once_and_evenly(items: int, hosts: int) -> None:
    shares = [one.select(range(items)) for one in deliveries(channel_of("ShardedByS3Key"), hosts)]
    assert sorted(itertools.chain(*shares)) == list(range(items))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def deliveries(channel: dict[str, Any], hosts: int) -> list[Delivery]:
    names = tuple(f"algo-{number + 1}" for number in range(hosts))
    store: Any = None  # selecting asks no store
    return [Delivery(channel, name, names, Path("in"), Path("scratch"), store, {}) for name in names]


def test_sharded_and_shuffled_hosts_get_other_objects_in_the_next_epoch() -> None:
    channel = channel_of("ShardedByS3Key") | {"ShuffleConfig": {"Seed": 3}}
    epochs = [[one.select(range(20), epoch) for one in deliveries(channel, 2)] for epoch in range(2)]
    assert all(sorted(first + second) == list(range(20)) for first, second in epochs)
    assert set(epochs[0][0]) != set(epochs[1][0])


def test_unsharded_hosts_get_everything_in_the_listing_order() -> None:
    channel = channel_of("FullyReplicated")
    assert [one.select([3, 1, 2], epoch=4) for one in deliveries(channel, 2)] == [[3, 1, 2], [3, 1, 2]]
