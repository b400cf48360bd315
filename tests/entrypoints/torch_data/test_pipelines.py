"""A ChannelDataset inside the pipelines of other packages: webdataset, torchdata's nodes and Hugging Face's datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torchdata.nodes as nodes
import webdataset as wds
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

from sagemaker_channels import ChannelDataset, ThreadLoader
from sagemaker_channels.errors import ChannelError

SAMPLES = 60
Pipeline = Callable[[Any], Iterable[Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    for number in range(3):
        lines = "\n".join(map(str, range(number, SAMPLES, 3)))
        (folder / f"{number}.txt").write_text(lines, encoding="utf-8")
    return folder


def numbered(sample: dict[str, Any]) -> dict[str, int]:
    return {"number": int(sample["data"])}


def dataset(folder: Path, **how: Any) -> ChannelDataset:
    return ChannelDataset(str(folder), format="lines", transform=numbered, seed=1, **how)


def numbers(samples: Iterable[Any]) -> list[int]:
    return [int(number) for sample in samples for number in sample["number"]]


def singles(samples: Iterable[Any]) -> list[int]:
    return [sample["number"] for sample in samples]


def generated(of: ChannelDataset) -> Iterable[Any]:
    yield from of


def by_generator(of: ChannelDataset) -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(generated, gen_kwargs={"of": of})


def by_loader(*stages: Any, workers: int = 0) -> Pipeline:
    return lambda of: wds.WebLoader(
        wds.DataPipeline(of, *stages, wds.shuffle(10), wds.batched(8)), batch_size=None, num_workers=workers
    )


def mapped(method: str) -> Pipeline:
    return lambda of: nodes.Loader(
        nodes.Batcher(
            nodes.Prefetcher(nodes.ParallelMapper(nodes.IterableWrapper(of), listed, num_workers=2, method=method), 4),
            8,
            drop_last=False,
        )
    )


def listed(sample: dict[str, int]) -> dict[str, list[int]]:
    return {"number": [sample["number"]]}


def flat(pipeline: Pipeline) -> Pipeline:
    return lambda of: [sample for batch in pipeline(of) for sample in batch]


PIPELINES: dict[str, Pipeline] = {
    "webdataset": by_loader(),
    "webdataset, 2 workers": by_loader(workers=2),
    "webdataset, a node": by_loader(wds.split_by_node, wds.split_by_worker),
    "nodes, threads": flat(mapped("thread")),
    "nodes, processes": flat(mapped("process")),
    "datasets": lambda of: DataLoader(by_generator(of).shuffle(buffer_size=10), batch_size=8),
    "datasets, 1 worker": lambda of: DataLoader(by_generator(of), batch_size=8, num_workers=1),
}


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_each_epoch_has_each_sample_once(folder: Path, pipeline: Pipeline) -> None:
    over = dataset(folder)
    epochs = [numbers(pipeline(over)) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [[*range(SAMPLES)]] * 2
    assert epochs[0] != epochs[1]


def on_ranks(monkeypatch: pytest.MonkeyPatch, folder: Path, pipeline: Pipeline, **how: Any) -> list[int]:
    """Return what two ranks read."""
    found = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        found += numbers(pipeline(dataset(folder, **how)))
    return found


@pytest.mark.parametrize("name", ["webdataset", "webdataset, 2 workers", "nodes, threads", "datasets"])
def test_two_ranks_have_each_sample_once(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> None:
    assert sorted(on_ranks(monkeypatch, folder, PIPELINES[name])) == [*range(SAMPLES)]


def by_node(of: Any) -> Iterable[Any]:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return DataLoader(split_dataset_by_node(by_generator(of), rank, ranks), batch_size=8)


def test_what_divides_again_is_refused_or_divides_all(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for package, pipeline in {"datasets": by_node, "webdataset": by_loader(wds.split_by_node)}.items():
        with pytest.raises(ChannelError, match=rf"split_by_node of {package} would lose samples, .* ranks=\(0, 1\)"):
            on_ranks(monkeypatch, folder, pipeline)
    assert sorted(on_ranks(monkeypatch, folder, by_node, ranks=(0, 1))) == [*range(SAMPLES)]


@pytest.mark.parametrize(
    ("pipeline", "refusal"),
    [
        (by_loader(wds.split_by_worker, workers=2), "split_by_worker of webdataset would lose samples.*; leave it out"),
        (
            lambda of: DataLoader(by_generator(of), batch_size=8, num_workers=2),
            "num_workers of datasets would lose samples, .* use num_workers=1",
        ),
    ],
    ids=["webdataset", "datasets"],
)
def test_workers_that_would_lose_samples_are_refused(folder: Path, pipeline: Pipeline, refusal: str) -> None:
    with pytest.raises(ChannelError, match=refusal):
        numbers(pipeline(dataset(folder)))


def test_stored_dataset_of_one_rank_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> None:
    def stored(of: ChannelDataset) -> Any:
        return datasets.Dataset.from_generator(generated, gen_kwargs={"of": of}, cache_dir=str(tmp_path))

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(datasets.exceptions.DatasetGenerationError) as caught:
        stored(dataset(folder))
    assert "ranks=(0, 1)" in str(caught.value.__cause__)
    assert sorted(singles(stored(dataset(folder, ranks=(0, 1))))) == [*range(SAMPLES)]


@pytest.mark.parametrize("over", ["samples", "batches"])
@pytest.mark.parametrize("ahead", [0, 4])
def test_nodes_resume_at_the_very_next_sample(folder: Path, over: str, ahead: int) -> None:
    """They keep the state of what they iterate over, which knows its own position."""

    def made() -> Any:
        of: Any = dataset(folder) if over == "samples" else ThreadLoader(dataset(folder), 8)
        node = nodes.IterableWrapper(of)
        return nodes.Loader(nodes.Prefetcher(node, ahead) if ahead else node)

    seen = singles if over == "samples" else numbers
    whole, first = seen(made()), made()
    loop = iter(first)
    found = seen([next(loop) for _ in range(5)])
    state = first.state_dict()
    resumed = made()
    resumed.load_state_dict(state)
    assert found + seen(resumed) == whole
