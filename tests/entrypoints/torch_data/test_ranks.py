"""Datasets and loaders as one rank has them: their positions, attributes and messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torch import distributed
from torch.distributed.checkpoint.state_dict_saver import save
from torch.utils.data import DataLoader, DistributedSampler

import framework_data
from sagemaker_channels import timed
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.torch_data import ranks
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.map import ChannelMapDataset
from sagemaker_channels.torch_data.ranks import EvenLoader, LightningLoader, even_batches, gather_state
from sagemaker_channels.torch_data.worker_loader import WorkerLoader


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return framework_data.make_job(tmp_path_factory.mktemp("job"), objects=61)


@pytest.mark.parametrize("loader", ["workers", "threads"])
def test_dataset_does_not_claim_to_know_the_position_of_its_loader(root: Path, loader: str) -> None:
    dataset = framework_data.dataset_of(root, "lines")
    batches = iter(framework_data.LOADERS[loader](dataset))
    next(batches)
    with pytest.raises(ChannelError, match=r"take the state_dict\(\) of a ThreadLoader"):
        dataset.state_dict()
    assert [*batches]
    if loader == "workers":  # Only the script knows that the loop has got all that they have read.
        dataset.set_epoch(dataset.epoch)
    state = dataset.state_dict()
    assert (state["epoch"], state["at"]) == (1, {"0": {"at": [0, 0]}})


def test_plain_loader_has_no_position(root: Path) -> None:
    loader = framework_data.LOADERS["plain"](framework_data.dataset_of(root, "lines"))
    for use in (gather_state, LightningLoader):
        with pytest.raises(ChannelError, match="a DataLoader does not know its position; use a ThreadLoader"):
            use(loader)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_position_of_which_dcp_would_load_a_part_is_refused(root: Path, tmp_path: Path) -> None:
    dataset = framework_data.dataset_of(root, "lines")
    loader = framework_data.LOADERS["threads"](dataset)
    for part in (dataset, loader, EvenLoader(loader)):
        with pytest.raises(ChannelError, match=r"use sagemaker_channels\.Checkpoints, or give it pickle\.dumps"):
            save({"loader": part}, checkpoint_id=tmp_path / "saved", no_dist=True)


@pytest.mark.parametrize(
    ("variables", "warns"), [({"RANK": "1", "WORLD_SIZE": "2"}, True), ({"WORLD_SIZE": "2"}, False)]
)
def test_rank_that_is_alone_in_its_group_is_a_warning(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    warns: bool,
) -> None:
    """As with the backend mpi under torchrun; WORLD_SIZE alone may be there for another reason."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    dataset = framework_data.dataset_of(root, "lines")
    monkeypatch.setattr(ranks, "stores", {})
    distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        next(iter(dataset))
    finally:
        distributed.destroy_process_group()
    text = (
        "this job has 2 ranks, but each is alone in torch.distributed and reads all samples; if not intended, call init"
    )
    assert (text in capsys.readouterr().err) == warns


def test_messages_about_loaders_name_what_the_user_gave(root: Path) -> None:
    dataset = framework_data.dataset_of(root, "lines")
    with pytest.raises(ChannelError, match=r"^a DataLoader does not know its position"):
        gather_state(timed(DataLoader(dataset)))  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match="give a ThreadLoader, WorkerLoader or DataLoader of a ChannelDataset or MixedDataset"
    ):
        EvenLoader(DataLoader(framework_data.dataset_of(root, "map")))
    with pytest.raises(TypeError, match=r"^collate_fn is 3; give a function of a list of samples"):
        WorkerLoader(dataset, collate_fn=3)  # type: ignore[arg-type]


def test_thread_loader_has_the_attributes_of_a_data_loader(root: Path) -> None:
    dataset = framework_data.dataset_of(root, "objects")
    loader = ThreadLoader(dataset, 4, num_workers=3, drop_last=True)
    assert isinstance(loader, DataLoader)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.pin_memory) == (4, 3, True, False)
    loader.set_epoch(2)
    assert dataset.epoch == 2
    assert len(loader) == sum(1 for _ in loader)
    assert dataset.epoch == 3


@pytest.mark.parametrize(("count", "is_refused"), [(4, True), (2, False)])
def test_sampler_of_all_ranks_is_refused_where_each_host_has_its_own_objects(
    root: Path, monkeypatch: pytest.MonkeyPatch, count: int, is_refused: bool
) -> None:
    environment = load_environment(root, {})
    channel = replace(environment.channels["objects"], distribution="ShardedByS3Key")
    environment = replace(environment, hosts=("algo-1", "algo-2"), channels={"objects": channel})
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    dataset = ChannelMapDataset("objects", environment=environment)
    assert len(dataset) == 61
    if is_refused:
        with pytest.raises(ChannelError, match=r"DistributedSampler\(dataset, num_replicas=LOCAL_WORLD_SIZE"):
            DistributedSampler(dataset, num_replicas=count, rank=1)
    else:
        assert len(DistributedSampler(dataset, num_replicas=count, rank=1)) == 31


def test_even_batches_of_one_process_all_count() -> None:
    assert list(even_batches([1, 2, 3])) == [(1, True), (2, True), (3, True)]
