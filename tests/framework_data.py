"""A job, datasets and loaders over its channels, and loops over them that need no framework but torch."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.map import ChannelMapDataset
from sagemaker_channels.torch_data.ranks import even_batches, gather_state
from sagemaker_channels.torch_data.worker_loader import WorkerLoader

BATCH = 4
Seen = dict[int, list[int]]  # by epoch


def make_job(root: Path, objects: int, files: int = 5, lines: int = 13, name: str = "objects") -> Path:
    """Make a job with the numbers from 0 on in an object each (channel `name`), and in lines, whose number no rank knows."""
    config = {}
    for channel, count, each in ((name, objects, 1), ("lines", files, lines)):
        folder = root / "input/data" / channel
        folder.mkdir(parents=True)
        for number in range(count):
            text = "".join(f"{line}\n" for line in range(number * each, (number + 1) * each))
            (folder / f"{number:03}").write_text(text)
        config[channel] = {"TrainingInputMode": "File"} | ({"ContentType": "text/plain"} if channel == "lines" else {})
    (root / "input/config").mkdir()
    (root / "input/config/inputdataconfig.json").write_text(json.dumps(config))
    return root


def number_of(sample: dict[str, Any]) -> Any:
    return torch.tensor([float(sample["data"])])


def as_inputs(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": number_of(sample)}


def numbers(batch: Any) -> list[int]:
    return [int(number) for number in (batch["x"] if isinstance(batch, dict) else batch)[:, 0]]


def dataset_of(root: Path, kind: str, transform: Any = number_of, seed: int | None = 7) -> Any:
    """Return a dataset of a channel, of both (`mixed`), or with random access (`map`)."""
    environment = load_environment(root, dict(os.environ))
    if kind == "map":
        return ChannelMapDataset("objects", transform, environment=environment)
    channels = ("objects", "lines") if kind == "mixed" else (kind,)
    parts = [
        ChannelDataset(each, transform=transform, seed=seed, block=10, environment=environment) for each in channels
    ]
    return MixedDataset(parts) if kind == "mixed" else parts[0]


LOADERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda dataset: DataLoader(dataset, BATCH),
    "workers": lambda dataset: DataLoader(dataset, BATCH, num_workers=2),
    "stateful": lambda dataset: WorkerLoader(dataset, BATCH),
    "stateful workers": lambda dataset: WorkerLoader(dataset, BATCH, num_workers=2),
    "threads": lambda dataset: ThreadLoader(dataset, BATCH, num_workers=2),
}


def own_rank() -> tuple[int, int]:
    """Return this rank and the number of ranks, and remove torchrun's variables, as if something else had started the ranks."""
    found = {name: int(os.environ.pop(name)) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return found["RANK"], found["WORLD_SIZE"]


def by_loop(root: Path, kind: str, loader: str, state: Any = None, stop: int | None = None) -> tuple[Seen, Any]:
    """Train two epochs with DistributedDataParallel, or so many steps; then also return the state of all ranks."""
    rank, ranks = own_rank()
    dataset = dataset_of(root, kind)  # before there is a process group
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    return _trained(dataset, loader, state, stop)


def by_left_loops(root: Path, loader: str, is_set: bool, seed: int | None = 7) -> list[list[int]]:
    """Leave each loop after 9 steps, which is after the end of some ranks; return the samples of each."""
    rank, ranks = own_rank()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    dataset = dataset_of(root, "lines", seed=seed)
    batches, seen = LOADERS[loader](dataset), list[list[int]]()
    for loop in range(3):
        if is_set:
            dataset.set_epoch(loop)
        seen.append([number for batch in islice(batches, 9) for number in numbers(batch)])
        dist.barrier()
    return seen


def by_one_left_loop(root: Path, loader: str) -> None:
    """Leave a loop on rank 0, which reads the epoch again before the other rank has read it to its end."""
    rank, ranks = own_rank()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    batches = LOADERS[loader](dataset_of(root, "lines"))
    begun = iter(batches)
    next(begun)
    if rank == 0:
        list(batches)
    dist.barrier()
    list(begun)
    list(batches)
    dist.barrier()  # the store is in rank 0's process


def by_even_batches(lengths: list[int]) -> list[tuple[str, bool]]:
    """Return what even_batches yields on this rank, of batches named by the rank that has them and their number."""
    rank, count = own_rank()
    dist.init_process_group("gloo", rank=rank, world_size=count)
    return list(even_batches([f"{rank}.{number}" for number in range(lengths[rank])]))


def by_groups(root: Path, groups: list[int]) -> list[tuple[list[int], bool]]:
    """Return what even_batches yields on this rank of the group that is named for it."""
    rank, count = own_rank()
    dist.init_process_group("gloo", rank=rank, world_size=count)
    dataset = ChannelDataset(
        "lines",
        transform=number_of,
        ranks=(groups[rank], 1 + max(groups)),
        environment=load_environment(root, dict(os.environ)),
    )
    return [(numbers(batch), counts) for batch, counts in even_batches(ThreadLoader(dataset, BATCH))]


def by_given(dataset: Any, loader: str) -> Seen:
    """Train with a dataset that was made in another process."""
    rank, ranks = own_rank()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    return _trained(dataset, loader)[0]


def by_fork(root: Path, kind: str, loader: str, ranks: int) -> list[Seen]:
    """Train on ranks that are forked with a dataset that exists already; return the samples of each."""
    own_rank()
    dataset = dataset_of(root, kind)
    with tempfile.TemporaryDirectory() as folder:
        start_processes(  # type: ignore[no-untyped-call]
            _forked, (dataset, loader, folder, ranks), nprocs=ranks, start_method="fork"
        )
        return [pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(ranks)]


def _forked(rank: int, dataset: Any, loader: str, folder: str, ranks: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    seen, _ = _trained(dataset, loader)
    dist.barrier()
    (Path(folder) / str(rank)).write_bytes(pickle.dumps(seen))


def _trained(dataset: Any, loader: str, state: Any = None, stop: int | None = None) -> tuple[Seen, Any]:
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    if isinstance(dataset, ChannelMapDataset):
        sampler: Any = DistributedSampler(dataset)
        batches: Any = DataLoader(dataset, BATCH, sampler=sampler)
    else:
        sampler, batches = dataset, LOADERS[loader](dataset)
    if state is not None:
        getattr(batches, "load_state_dict", dataset.load_state_dict)(state)
    seen, steps = defaultdict[int, list[int]](list), 0
    for _ in range(2):
        epoch = sampler.epoch
        with Join([model]):
            for batch in batches:
                model(batch).sum().backward()
                seen[epoch] += numbers(batch)
                steps += 1
                if steps == stop:
                    return dict(seen), gather_state(batches)
    return dict(seen), None
