"""One loader in a process of its own: `python loaders.py KIND FOLDER`; each line on stdin is an epoch, answered by its seconds.

Each is set up as its documentation advises, with two workers that stay over the epochs, and gives batches of 64 samples whose
bytes are as they were written. The first argument `make` writes the files of litdata and mosaicml-streaming instead.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SAMPLES, SHARD_SAMPLES, SIZE, BATCH = 8000, 1000, 100_000, 64


def main() -> None:
    warnings.simplefilter("ignore")
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind == "make":
        make_litdata(folder / "litdata")
        make_mds(folder / "mds")
        return
    epoch = LOADERS[kind](folder)
    for _ in sys.stdin:
        start = time.perf_counter()
        count = epoch()
        seconds = time.perf_counter() - start
        if count != SAMPLES:
            raise SystemExit(f"{kind} gave {count} samples, not {SAMPLES}")
        print("seconds", seconds, flush=True)


def sample_bytes(number: int) -> bytes:
    """Every sample has bytes of its own."""
    return _NOISE[number : number + SIZE]


def _over(loader: Iterable[Any], samples: Callable[[Any], list[bytes]]) -> int:
    count = 0
    for batch in loader:
        found = samples(batch)
        assert type(found[0]) is bytes and len(found[-1]) == SIZE
        count += len(found)
    return count


def _ours(folder: Path) -> Callable[[], int]:
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(_dataset(folder), BATCH, num_workers=2, collate_fn=list, persistent_workers=True)
    return lambda: _over(loader, lambda batch: [sample["bin"] for sample in batch])


def _threads(folder: Path) -> Callable[[], int]:
    from sagemaker_channels.torch_data.loader import ThreadLoader

    loader = ThreadLoader(_dataset(folder), BATCH, num_workers=2, collate_fn=list)
    return lambda: _over(loader, lambda batch: [sample["bin"] for sample in batch])


def _dataset(folder: Path) -> Any:
    from sagemaker_channels import load_environment
    from sagemaker_channels.torch_data.dataset import ChannelDataset

    return ChannelDataset("train", environment=load_environment(folder / "job", {}))


def _queue(folder: Path) -> Callable[[], int]:
    """What a DataLoader's queue allows: two workers that read nothing and hand over such batches."""
    from torch.utils.data import DataLoader

    ready = [{"__key__": f"{number:06d}", "bin": sample_bytes(number)} for number in range(BATCH)]
    dataset: Any = _Ready(ready, SAMPLES // BATCH)
    loader: Any = DataLoader(dataset, None, num_workers=2, persistent_workers=True)
    return lambda: _over(loader, lambda batch: [sample["bin"] for sample in batch])


class _Ready:
    def __init__(self, batch: list[Any], count: int) -> None:
        self.batch, self.count = batch, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> list[Any]:
        return self.batch


def _raw(folder: Path) -> Callable[[], int]:
    """The limit of the disk, or of the memory that keeps its files: one thread reads them into one buffer."""

    def epoch() -> int:
        buffer = memoryview(bytearray(1 << 20))
        for path in sorted((folder / "job/input/data/train").iterdir()):
            with path.open("rb", buffering=0) as stream:
                while stream.readinto(buffer):
                    pass
        return SAMPLES

    return epoch


def _webdataset(folder: Path) -> Callable[[], int]:
    import webdataset

    urls = [str(path) for path in sorted((folder / "job/input/data/train").iterdir())]
    dataset = webdataset.WebDataset(urls, shardshuffle=False).to_tuple("__key__", "bin").batched(BATCH)
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
    return lambda: _over(loader, lambda batch: batch[1])


def _litdata(folder: Path) -> Callable[[], int]:
    import litdata

    dataset = litdata.StreamingDataset(str(folder / "litdata"))
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=2, collate_fn=_bytes_of, persistent_workers=True
    )
    return lambda: _over(loader, lambda batch: batch)


def _bytes_of(samples: list[Any]) -> list[bytes]:
    return [bytes(sample["bin"]) for sample in samples]  # it gives views of its chunks, which do not pickle


def _mds(folder: Path) -> Callable[[], int]:
    streaming = _streaming()
    dataset = streaming.StreamingDataset(local=str(folder / "mds"), batch_size=BATCH, shuffle=False)
    loader = streaming.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=2, collate_fn=list, persistent_workers=True
    )
    return lambda: _over(loader, lambda batch: [sample["bin"] for sample in batch])


LOADERS: dict[str, Callable[[Path], Callable[[], int]]] = {
    "ours": _ours,
    "threads": _threads,
    "queue": _queue,
    "raw": _raw,
    "webdataset": _webdataset,
    "litdata": _litdata,
    "mosaicml-streaming": _mds,
}


def _litdata_sample(numbers: range) -> Any:
    for number in numbers:
        yield {"__key__": f"{number:06d}", "bin": sample_bytes(number)}


def make_litdata(folder: Path) -> None:
    import litdata

    inputs = [range(start, start + SHARD_SAMPLES) for start in range(0, SAMPLES, SHARD_SAMPLES)]
    litdata.optimize(_litdata_sample, inputs, str(folder), chunk_bytes=SHARD_SAMPLES * SIZE, num_workers=1)


def make_mds(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    columns = {"__key__": "str", "bin": "bytes"}
    with _streaming().MDSWriter(out=str(folder), columns=columns, size_limit=SHARD_SAMPLES * SIZE) as writer:
        for number in range(SAMPLES):
            writer.write({"__key__": f"{number:06d}", "bin": sample_bytes(number)})


def _streaming() -> Any:
    """mosaicml-streaming, which imports two names of torchvision that bytes do not need; its builds seldom fit the torch here."""
    import transformers.feature_extraction_utils
    import transformers.tokenization_utils_base  # noqa: F401 - before they look whether torchvision is there

    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.datasets"):
        module: Any = types.ModuleType(name)
        sys.modules[name] = module
        module.VisionDataset = module.to_tensor = object
    import streaming

    return streaming


_NOISE = os.urandom(SIZE + SAMPLES)

if __name__ == "__main__":
    main()
