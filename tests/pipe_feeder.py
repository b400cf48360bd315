"""Helpers of the Pipe tests: an /opt/ml with Pipe channels, and feeders of its FIFOs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from format_channels import configured
from patience import PATIENCE, in_threads
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.torch_data.dataset import ChannelDataset

_writing: set[int] = set()  # descriptors of feeders


def _close_inherited() -> None:
    """A forked DataLoader worker must not keep a FIFO open: its readers would not see the end."""
    for descriptor in _writing:
        os.close(descriptor)
    _writing.clear()


os.register_at_fork(after_in_child=_close_inherited)


def make_root(root: Path) -> None:
    """An /opt/ml with Pipes `lines`, `tar`, `images` (image RecordIO) and `wrapped`."""
    types = {"lines": "text/plain", "tar": "application/x-tar", "images": "application/x-recordio", "wrapped": "x/y"}
    config = {name: {"TrainingInputMode": "Pipe", "ContentType": kind} for name, kind in types.items()}
    config["wrapped"]["RecordWrapperType"] = "RecordIO"
    configured(root, **config)


class Feeder:
    """Makes a FIFO per epoch, the next one when the last one has been closed, as SageMaker does."""

    def __init__(
        self, root: Path, name: str, content: Callable[[int], bytes], epochs: int = 1000, piece: int = 1 << 30
    ) -> None:
        self.started: list[int] = []  # epochs of which the first byte has been written
        self.ended: list[int] = []
        self._path, self._content, self._epochs = root / contract.DATA_DIR, content, epochs
        self._piece = piece  # bytes written at once, at most
        self._name, self._stop = name, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for epoch in range(self._epochs):
            path = self._path / f"{self._name}_{epoch}"
            os.mkfifo(path)
            try:
                with path.open("wb", buffering=0) as stream:
                    if self._stop.is_set():
                        return
                    _writing.add(stream.fileno())
                    try:
                        content = memoryview(self._content(epoch))
                        self.started.append(epoch)
                        while content:
                            content = content[stream.write(content[: self._piece]) :]
                    finally:
                        _writing.discard(stream.fileno())
            except BrokenPipeError:
                pass
            finally:
                path.unlink()
            self.ended.append(epoch)

    def stop(self) -> None:
        self._stop.set()
        deadline = time.monotonic() + PATIENCE
        while self._thread.is_alive():
            assert time.monotonic() < deadline
            for path in self._path.glob(f"{self._name}_*"):
                try:
                    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                except FileNotFoundError:
                    continue
            self._thread.join(0.01)


LINES = [b"%06d" % number for number in range(5000)]
Feed = Callable[..., Feeder]


@contextmanager
def feeding(root: Path) -> Iterator[Feed]:
    """A function that starts a Feeder of a channel; at the end feeders are stopped."""
    feeders: list[Feeder] = []

    def start(name: str, content: Callable[[int], bytes], epochs: int = 1000) -> Feeder:
        feeders.append(Feeder(root, name, content, epochs))
        return feeders[-1]

    yield start
    for feeder in feeders:
        feeder.stop()


@contextmanager
def pipe(root: Path, count: int) -> Iterator[Environment]:
    """A Pipe of so many lines in a new container; a line has the number of the FIFO and its own."""
    root.mkdir()
    make_root(root)
    with feeding(root) as feed:
        feed("lines", lambda fifo: b"".join(b"%d-%d\n" % (fifo, number) for number in range(count)))
        yield load_environment(root, {})


def lines_of(epoch: int) -> bytes:
    """A stream of LINES, each after its epoch."""
    return b"".join(b"%d %b\n" % (epoch, line) for line in LINES)


def numbers(samples: Any, epoch: int = 0) -> list[int]:
    """The numbers of lines, all of which must be of the epoch."""
    words = [sample["data"].split() for sample in samples]
    assert {int(found) for found, _ in words} <= {epoch}
    return [int(number) for _, number in words]


def loaded(environment: Environment, workers: int, **options: Any) -> DataLoader[Any]:
    """The channel `lines` in batches of 50, read by workers."""
    dataset = ChannelDataset("lines", environment=environment)
    return DataLoader(dataset, batch_size=50, num_workers=workers, collate_fn=list, **options)


def side_by_side(environment: Environment, name: str, readers: int, **options: Any) -> list[Any]:
    """The samples of each of several readers, or its error, each read in a thread."""
    found: list[Any] = [None] * readers

    def read(index: int) -> None:
        shard = Shard(index, readers, readers)
        try:
            with closing(open_channel(name, environment=environment, shard=shard, **options)) as samples:
                found[index] = list(samples)
        except ChannelError as error:
            found[index] = error

    in_threads(read, readers)
    return found
