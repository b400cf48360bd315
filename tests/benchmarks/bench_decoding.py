"""JPEG images in mounted tar shards to batches of tensors, with two threads or workers, against decoding alone.

The limit is two threads that decode the same images from memory and make no batches; `stacked` is the same with batches. `torch` is
a DataLoader of two workers that have the images in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from local_job import mounted_job, train_folder
from PIL import Image
from rounds import Row, exhaust, interleaved, row
from torch.utils.data import DataLoader, Dataset

from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.formats import tar
from sagemaker_channels.sample import Sample
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.shared_tensors import collate

SHARDS, IMAGES, PIXELS, BATCH = 4, 500, 256, 64


def measure(folder: Path) -> list[Row]:
    """Rows for a ThreadLoader with two threads and a DataLoader with two workers, which stay over the epochs."""
    environment = mounted_job(folder / "job", "application/x-tar")
    images = _images()
    for shard in range(SHARDS):
        with (train_folder(folder / "job") / f"{shard}.tar").open("wb") as stream:
            keys = (f"{shard}-{number:06d}" for number in range(IMAGES))
            tar.write(stream, ({"__key__": key, "jpg": images[n % len(images)]} for n, key in enumerate(keys)))
    samples = list(open_channel("train", environment=environment))
    rows = []
    for kind, transform in {"uint8": decode, "float32": decode_floats}.items():
        dataset = ChannelDataset("train", transform=transform, environment=environment)
        loaders: dict[str, Any] = {
            "ThreadLoader, 2 threads": ThreadLoader(dataset, BATCH, num_workers=2),
            "DataLoader, 2 workers": DataLoader(
                dataset, BATCH, num_workers=2, collate_fn=collate, persistent_workers=True
            ),
            "torch": DataLoader(_InMemory(samples, transform), BATCH, num_workers=2, persistent_workers=True),
        }
        works = {name: partial(_check, loader) for name, loader in loaders.items()}
        works |= {
            "limit": partial(_alone, samples, transform, exhaust),
            "stacked": partial(_alone, samples, transform, _stack),
        }
        found = interleaved(works)
        for name in list(loaders)[:2]:
            for peer in ("limit", "stacked", "torch"):
                work = f"tar of JPEG to {kind} batches, {name}"
                rows.append(row(work, {**found, "ours": found[name]}, peer, 0, per=len(samples)))
    return rows


class _InMemory(Dataset[torch.Tensor]):
    def __init__(self, samples: list[Sample], transform: Callable[[Sample], torch.Tensor]) -> None:
        self.samples, self.transform = samples, transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(self.samples[index])


def decode(sample: Sample) -> torch.Tensor:
    with Image.open(BytesIO(sample["jpg"])) as image:
        return torch.from_numpy(np.array(image.convert("RGB")))


def decode_floats(sample: Sample) -> torch.Tensor:
    return decode(sample).permute(2, 0, 1).float().div_(255)


def _images() -> list[bytes]:
    """Smooth noise, which compresses as photographs do: about 20 KB each."""
    random = np.random.default_rng(0)
    images = []
    for _ in range(50):
        stream = BytesIO()
        small = Image.fromarray(random.integers(0, 256, (PIXELS // 8, PIXELS // 8, 3), dtype=np.uint8))
        small.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(stream, "jpeg", quality=90)
        images.append(stream.getvalue())
    return images


def _check(loader: Any) -> None:
    """Read an epoch. `interleaved` takes a number for a time, so none is returned."""
    assert exhaust(image for batch in loader for image in batch) == SHARDS * IMAGES


def _stack(images: Iterable[torch.Tensor]) -> None:
    torch.set_num_threads(1)
    iterator = iter(images)
    while batch := list(islice(iterator, BATCH)):
        torch.stack(batch)


def _alone(
    samples: list[Sample], transform: Callable[[Sample], torch.Tensor], use: Callable[[Iterable[torch.Tensor]], object]
) -> None:
    """Decode in two threads from memory."""
    threads = [threading.Thread(target=use, args=(map(transform, samples[n::2]),)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
