"""JPEG images in mounted tar shards to batches of uint8 tensors, with two threads or workers, against decoding alone.

The limit is two threads that decode the same images from memory and make no batches.
"""

from __future__ import annotations

import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from local_job import mounted_job, train_folder
from PIL import Image
from rounds import Row, exhaust, interleaved, row
from torch.utils.data import DataLoader

from entrypoints.records.archives import tar_write
from entrypoints.sample import Sample
from entrypoints.samples.channel import open_channel
from entrypoints.torch_data.dataset import ChannelDataset
from entrypoints.torch_data.loader import ThreadLoader

SHARDS, IMAGES, PIXELS, BATCH = 4, 500, 256, 64


def measure(folder: Path) -> list[Row]:
    """Rows for a ThreadLoader with two threads and a DataLoader with two workers, which stay over the epochs."""
    environment = mounted_job(folder / "job", "application/x-tar")
    images = _images()
    for shard in range(SHARDS):
        with (train_folder(folder / "job") / f"{shard}.tar").open("wb") as stream:
            keys = (f"{shard}-{number:06d}" for number in range(IMAGES))
            tar_write.write(stream, ({"__key__": key, "jpg": images[n % len(images)]} for n, key in enumerate(keys)))
    samples = list(open_channel("train", environment=environment))
    dataset = ChannelDataset("train", transform=decode, environment=environment)
    threads = ThreadLoader(dataset, BATCH, threads=2)
    workers: DataLoader[Any] = DataLoader(dataset, BATCH, num_workers=2, persistent_workers=True)
    found = interleaved(
        {
            "threads": lambda: _check(threads),
            "workers": lambda: _check(workers),
            "limit": lambda: _alone(samples),
        }
    )
    kinds = {"ThreadLoader, 2 threads": "threads", "DataLoader, 2 workers": "workers"}
    return [
        row(f"tar of JPEG to uint8 batches, {name}", {**found, "ours": found[kind]}, "limit", 0, per=len(samples))
        for name, kind in kinds.items()
    ]


def decode(sample: Sample) -> torch.Tensor:
    with Image.open(BytesIO(sample["jpg"])) as image:
        return torch.from_numpy(np.array(image.convert("RGB")))


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


def _alone(samples: list[Sample]) -> None:
    threads = [
        threading.Thread(target=lambda part: [exhaust(map(decode, part))], args=(samples[n::2],)) for n in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        for found_row in measure(Path(place)):
            print(found_row)
