"""Every loader that has a state, by name, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.worker_loader import WorkerLoader

SHUFFLED: dict[str, Any] = {"seed": 7, "block": 10}


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["data"]).decode()


def stateful(workers: int, **options: Any) -> Callable[[Any], Any]:
    return lambda dataset: WorkerLoader(dataset, batch_size=4, num_workers=workers, collate_fn=list, **options)


LOADERS: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda dataset: dataset,
    "threads": lambda dataset: ThreadLoader(dataset, 4, num_workers=2, collate_fn=list),
    "one process": stateful(0),
    "workers": stateful(2),
    "persistent workers": stateful(2, persistent_workers=True),
}


def given(loader: Any) -> list[str]:
    return [text for batch in loader for text in ([batch] if isinstance(batch, str) else batch)]


def dataset_of(loader: Any) -> Any:
    return getattr(loader, "stream", getattr(loader, "dataset", loader))  # a WorkerLoader has batches as its dataset


def read(loader: Any, epoch: int | None) -> list[str]:
    if epoch is not None:
        dataset_of(loader).set_epoch(epoch)
    return given(loader)
