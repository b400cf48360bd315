"""A channel of images and a list of their classes in, batches of tensors out, whichever way the channel arrives.

    images = ImageChannel(environment, "train", labels, ImageForm("RGB", 224), Loading(batch_size=32, workers=4))
    for batch in images.batches(shuffle="seed 1, epoch 0"):
        model(batch.images)

Joining the labels, decoding and counting happen where a batch is put together, in the DataLoader's workers. An epoch is
shuffled by a buffer of undecoded samples, since a stream cannot be shuffled otherwise; the order follows from the words
given as `shuffle`, so that a training that starts again meets the same batches.
"""

# ruff: noqa: TID253 - batches are tensors; its name says that this file imports torch

from __future__ import annotations

import random
import re
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from traceback import clear_frames

import numpy as np
import torch
from PIL import Image, ImageMode
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from entrypoints.channel import find_channel
from entrypoints.digest import Tally
from entrypoints.environment import Environment
from entrypoints.errors import ChannelError
from entrypoints.labels import Labels, class_of
from entrypoints.lst import line_of, sample_paths
from entrypoints.sample import KEY, Sample
from entrypoints.torch_dataset import ChannelDataset


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
    workers: int = 0  # DataLoader workers of each rank
    buffer: int = 1000  # samples that wait to be drawn from by chance; 0 leaves the order of arrival


@dataclass(frozen=True)
class Batch:
    """Some images with their classes."""

    images: torch.Tensor  # float32, (n, channels, height, width), 0 to 1
    classes: torch.Tensor  # int64, (n,)
    lines: tuple[int, ...]  # the numbers of their lines in the list
    tally: Tally  # of their samples as they came


@dataclass
class Delivery:
    """What a channel has brought to this rank."""

    last: Tally = field(default_factory=Tally)  # in the last pass
    met: list[int] = field(default_factory=list)  # likewise: the numbers of the lines whose images came
    passes: int = 0  # begun; under Pipe each has its own FIFO
    samples: int = 0  # in all passes
    seconds: float = 0.0  # of all passes, with what was done with the batches meanwhile


class ImageChannel:
    """The labelled images of a channel that belong to this rank, batch by batch, as often as asked for."""

    def __init__(self, environment: Environment, name: str, labels: Labels, form: ImageForm, loading: Loading) -> None:
        self.channel = find_channel(environment, name)
        self.labels = labels
        self.delivery = Delivery()
        self._dataset = ChannelDataset(name, environment=environment)
        self._collate = _Collate(name, labels, form)
        self._loading = loading

    def batches(self, shuffle: str | None = None) -> Generator[Batch, None, None]:
        """One pass over the channel; `shuffle` names its random order, None leaves the order of arrival.

        Raises ChannelError for an image without a line, one that cannot be decoded, and one unlike the rest of its batch.
        """
        delivery = self.delivery
        # Counted here and not by the training's epochs: of a training that starts again, the first FIFO is number 0.
        self._dataset.set_epoch(delivery.passes)
        delivery.passes += 1
        delivery.last, delivery.met = Tally(), []
        dataset = self._dataset if shuffle is None else _Shuffled(self._dataset, self._loading.buffer, shuffle)
        loader = DataLoader(
            dataset,
            self._loading.batch_size,
            num_workers=self._loading.workers,
            collate_fn=self._collate,
            generator=torch.Generator(),  # of its own: a DataLoader draws from the generator that dropout draws from
        )
        begin = time.perf_counter()
        try:
            for batch in loader:
                delivery.last += batch.tally
                delivery.samples += batch.tally.count
                delivery.met += batch.lines
                yield batch
        except ChannelError as error:
            # Of a worker's error torch makes a traceback, in the message, and a cycle, in which the workers' own end waits
            # for the garbage collector and then for a timeout of 5 s each.
            clear_frames(error.__traceback__)
            raise ChannelError(re.sub(r"^[\w.]+Error: ", "", str(error).strip().splitlines()[-1])) from None
        finally:
            delivery.seconds += time.perf_counter() - begin


class _Shuffled(IterableDataset[Sample]):
    """Samples in random order, by a buffer from which each place is refilled when it has been drawn."""

    def __init__(self, samples: ChannelDataset, size: int, order: str) -> None:
        self._samples, self._size, self._order = samples, size, order

    def __iter__(self) -> Iterator[Sample]:
        info = get_worker_info()
        chance = random.Random(f"{self._order}, worker {info.id if info else 0}")
        waiting: list[Sample] = []
        for sample in self._samples:
            if len(waiting) < self._size:
                waiting.append(sample)
                continue
            place = chance.randrange(self._size + 1)
            if place < self._size:
                sample, waiting[place] = waiting[place], sample
            yield sample
        chance.shuffle(waiting)
        yield from waiting


class _Collate:
    """Samples -> a batch. A class, because workers started by spawn get it pickled."""

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
