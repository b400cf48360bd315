"""Every item belongs to exactly one process of the job, whatever the ranks, hosts and workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_channels.epoch.placement import Placement, Shard, default_shard, placement_of
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel

small = st.integers(1, 4)


def of(shard: Shard, items: Sequence[int]) -> Sequence[int]:
    """A shard's items."""
    return items[shard.index :: shard.count]


def shard_for(distribution: str, placement: Placement, worker: int = 0, workers: int = 1) -> Shard:
    return default_shard(Channel("train", "File", None, distribution, "None", Path()), placement, worker, workers)


def placement_from(environ: dict[str, str], host_rank: int, host_count: int) -> Placement:
    environment: Any = SimpleNamespace(host_rank=host_rank, hosts=[f"algo-{n + 1}" for n in range(host_count)])
    with mock.patch.dict(os.environ, environ):
        return placement_of(environment)


def placements(hosts: int, local: int) -> list[Placement]:
    return [
        Placement(host * local + rank, hosts * local, rank, local) for host in range(hosts) for rank in range(local)
    ]


@given(small, small, small, st.integers(0, 50))
def test_replicated_channel_is_read_once_by_the_job(hosts: int, local: int, workers: int, count: int) -> None:
    shards = [
        shard_for("FullyReplicated", placement, w, workers)
        for placement in placements(hosts, local)
        for w in range(workers)
    ]
    assert sorted(item for shard in shards for item in of(shard, range(count))) == list(range(count))


@given(small, small, small, st.integers(0, 50))
def test_sharded_channel_is_read_once_by_each_host(hosts: int, local: int, workers: int, count: int) -> None:
    for host in range(hosts):
        own = placements(hosts, local)[host * local : (host + 1) * local]
        shards = [
            shard_for("ShardedByS3Key", placement, worker, workers) for placement in own for worker in range(workers)
        ]
        assert sorted(item for shard in shards for item in of(shard, range(count))) == list(range(count))


@given(small, small, st.integers(0, 50))
def test_rank_reads_the_same_with_any_number_of_workers(ranks: int, workers: int, count: int) -> None:
    placement = Placement(rank=ranks - 1, world_size=ranks)
    alone = list(of(shard_for("FullyReplicated", placement), range(count)))
    together = [
        item
        for worker in range(workers)
        for item in of(shard_for("FullyReplicated", placement, worker, workers), range(count))
    ]
    assert sorted(together) == alone


def test_without_torchrun_there_is_one_process_per_host() -> None:
    assert placement_from({}, host_rank=2, host_count=3) == Placement(2, 3, 0, 1)
    assert placement_from({"RANK": "1", "LOCAL_WORLD_SIZE": "8"}, host_rank=0, host_count=1) == Placement(0, 1, 0, 1)


def test_placement_follows_torchruns_variables() -> None:
    environ = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert placement_from(environ, host_rank=1, host_count=2) == Placement(5, 8, 1, 4)


def test_placement_follows_the_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that the script has started by multiprocessing have no variables."""
    for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 4}.items():
        monkeypatch.setattr(f"torch.distributed.{name}", lambda value=value: value)
    assert placement_from({}, host_rank=0, host_count=1) == Placement(1, 4, 1, 4)
    assert placement_from({"RANK": "0", "WORLD_SIZE": "1"}, host_rank=0, host_count=1) == Placement(1, 4, 1, 4)


def test_placement_follows_mpirun_unless_torchrun_runs_under_it() -> None:
    """Of `mpirun --map-by node` on two hosts, rank 2 is the second of the first host."""
    names = {"RANK": "2", "SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
    environ = {f"OMPI_COMM_WORLD_{name}": value for name, value in names.items()}
    placement = placement_from(environ, host_rank=0, host_count=2)
    assert placement == Placement(2, 4, 1, 2, host=0)
    assert shard_for("ShardedByS3Key", placement).host == (0, 2)
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    found = placement_from(environ | torchrun, host_rank=1, host_count=2)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (5, 8, 1, 4)


def test_placement_without_local_variables_is_derived() -> None:
    assert placement_from({"RANK": "5", "WORLD_SIZE": "8"}, host_rank=1, host_count=2) == Placement(5, 8, 1, 4)
    assert placement_from({"RANK": "0", "WORLD_SIZE": "1"}, host_rank=1, host_count=2) == Placement(0, 1, 0, 1)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "8", "WORLD_SIZE": "8"}, "RANK 8 of WORLD_SIZE 8"),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, "RANK -1"),
        ({"RANK": "x", "WORLD_SIZE": "8"}, "RANK is 'x'; expected a number"),
        ({"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK 2 of"),
    ],
)
def test_contradictory_rank_variables_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ChannelError, match=message):
        placement_from(environ, host_rank=0, host_count=1)
