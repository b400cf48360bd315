"""A channel of images and a list of their classes in, batches of tensors out, whichever way the channel arrives.

    images = ImageChannel(environment, "train", labels, ImageForm("RGB", 224), Loading(batch_size=32, threads=4, seed=1))
    for batch in images.batches(epoch=0):
        model(batch.images)

Joining the labels, decoding and counting happen where a batch is put together, in the loader's threads: decoders release the
GIL. `state_dict` says where a pass stands, with what it has seen so far, so that a training that starts again goes on at the
next image and can still tell whether each came once.
"""

# ruff: noqa: TID253 - batches are tensors; its name says that this file imports torch

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np
import torch
from PIL import Image, ImageMode

from entrypoints.errors import ChannelError
from entrypoints.job.environment import Environment
from entrypoints.order.sampling import Reading, State
from entrypoints.sample import KEY, Sample
from entrypoints.samples.channel import find_channel
from entrypoints.samples.digest import Tally
from entrypoints.samples.labels import Labels, class_of
from entrypoints.samples.lst import line_of, sample_paths
from entrypoints.torch_data.dataset import ChannelDataset
from entrypoints.torch_data.loader import ThreadLoader


@dataclass(frozen=True)
class ImageForm:
    """What an image is made to be before it becomes a tensor."""

    mode: str = "RGB"  # Pillow's: L grey, RGB colour
    size: int | None = None  # pixels of width and of height; None leaves images as they are

    @property
    def channels(self) -> int:
        """How many numbers a pixel has."""
        return len(ImageMode.getmode(self.mode).bands)


@dataclass(frozen=True)
class Loading:
    """How batches are put together."""

    batch_size: int = 32
    threads: int = 1  # of each rank
    seed: int | None = None  # of each epoch's order; None leaves the order of arrival
    block: int = 1000  # samples that are shuffled together, as Reading says


@dataclass(frozen=True)
class Batch:
    """Some images with their classes."""

    images: torch.Tensor  # float32, (n, channels, height, width), 0 to 1
    classes: torch.Tensor  # int64, (n,)
    lines: tuple[int, ...]  # the numbers of their lines in the list
    tally: Tally  # of their samples as they came


@dataclass
class PassStatistics:
    """What a channel has brought to this rank."""

    last: Tally = field(default_factory=Tally)  # in the last pass
    seen: list[int] = field(default_factory=list)  # likewise: the numbers of the lines whose images came
    passes: int = 0  # begun
    samples: int = 0  # in all passes
    seconds: float = 0.0  # of all passes, with what was done with the batches meanwhile


class ImageChannel:
    """The labelled images of a channel that belong to this rank, batch by batch, as often as asked for."""

    def __init__(self, environment: Environment, name: str, labels: Labels, form: ImageForm, loading: Loading) -> None:
        self.channel = find_channel(environment, name)
        self.labels = labels
        self.statistics = PassStatistics()
        reading = Reading(seed=loading.seed, block=loading.block)
        self._dataset = ChannelDataset(name, environment=environment, reading=reading)
        collate = _Collate(name, labels, form)
        self._loader = ThreadLoader(self._dataset, loading.batch_size, threads=loading.threads, collate=collate)
        self._resumed: int | None = None  # the epoch that the next pass goes on with

    @property
    def restarts_epoch(self) -> bool:
        """Whether a start from the present state begins the pass anew: in the middle of a Pipe that SageMaker shuffles."""
        return "threads" not in self._loader.state_dict()

    def batches(self, epoch: int) -> Generator[Batch, None, None]:
        """One pass over the channel, or what is left of the pass whose state was loaded.

        Raises ChannelError for an image without a line, one that cannot be decoded, and one unlike the rest of its batch.
        """
        statistics = self.statistics
        self._dataset.set_epoch(epoch)
        statistics.passes += 1
        if self._resumed != epoch:
            statistics.last, statistics.seen = Tally(), []
        self._resumed = None
        begin = time.perf_counter()
        try:
            with closing(iter(self._loader)) as batches:
                for batch in batches:
                    statistics.last += batch.tally
                    statistics.samples += batch.tally.count
                    statistics.seen += batch.lines
                    yield batch
        finally:
            statistics.seconds += time.perf_counter() - begin

    def state_dict(self) -> State:
        """Where the last pass stands on this rank, and what it has seen: tensors, numbers and texts only."""
        tally, seen = (Tally(), []) if self.restarts_epoch else (self.statistics.last, self.statistics.seen)
        lines = torch.tensor(seen, dtype=torch.int64)  # of a million lines, a list would take long to write
        return {"loader": self._loader.state_dict(), "tally": vars(tally), "met": lines}

    def load_state_dict(self, state: State) -> None:
        """Lets the pass of the state's epoch go on where `state_dict` said; a pass of another epoch begins at its beginning."""
        self._loader.load_state_dict(state["loader"])
        self._resumed = state["loader"]["epoch"]
        self.statistics.last, self.statistics.seen = Tally(**state["tally"]), state["met"].tolist()


class _Collate:
    """Samples -> a batch."""

    def __init__(self, name: str, labels: Labels, form: ImageForm) -> None:
        self._name, self._labels, self._form = name, labels, form

    def __call__(self, samples: Sequence[Sample]) -> Batch:
        tally = Tally()
        images, classes, lines = [], [], []
        for sample in samples:
            try:
                line = line_of(sample, self._labels.lines)
            except ChannelError as error:
                raise ChannelError(f"channel {self._name!r} and its list {self._labels.channel!r}: {error}") from None
            tally.add(sample)
            images.append(self._decode(_image_of(sample, line.path), line.path))
            classes.append(class_of(line))
            lines.append(self._labels.numbers[line.path])
            if images[-1].shape != images[0].shape:
                height, width = images[-1].shape[1:]
                raise ChannelError(
                    f"channel {self._name!r}: image {line.path!r} has {width} x {height} pixels, unlike others; set image-size"
                )
        return Batch(torch.stack(images), torch.tensor(classes), tuple(lines), tally)

    def _decode(self, data: bytes, path: str) -> torch.Tensor:
        try:
            with Image.open(BytesIO(data)) as file:
                image = file.convert(self._form.mode)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ChannelError(
                f"channel {self._name!r}: image {path!r} of {len(data)} bytes cannot be decoded: {error}"
            ) from None
        if self._form.size is not None:
            image = image.resize((self._form.size, self._form.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)


def _image_of(sample: Sample, path: str) -> bytes:
    """The bytes of the field that the list's path names: of a tar's group, one member of several."""
    fields = [field for field in sample if field != KEY]
    data: bytes = sample[fields[sample_paths(sample).index(path)]]
    return data
