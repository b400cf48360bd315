"""Labelled images of a channel as batches of tensors, in any input mode.

    images = ImageChannel(environment, "train", labels, ImageForm("RGB", 224), Loading(batch_size=32, threads=4, seed=1))
    for batch in images.batches(epoch=0):
        model(batch.images)

Labels are joined, and images decoded and counted, in the loader's threads, since decoders release the GIL. `loader` has the
position of a pass; `resume` continues its statistics, so that a resumed training can still check that each image was read once.
"""

# ruff: noqa: TID253 - batches are tensors; its name says that this file imports torch

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageMode

from sagemaker_channels.epoch.channel import find_channel
from sagemaker_channels.epoch.states import is_finished
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import KEY, Sample
from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.samples.labels import Labels, class_of
from sagemaker_channels.samples.lst import line_of, sample_paths
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader


@dataclass(frozen=True)
class ImageForm:
    """The form of an image in a tensor."""

    mode: str = "RGB"  # Pillow's mode: L grey, RGB colour
    size: int | None = None  # pixels of width and of height; None keeps each image's size

    @property
    def channels(self) -> int:
        """The numbers of a pixel."""
        return len(ImageMode.getmode(self.mode).bands)


@dataclass(frozen=True)
class Loading:
    """How batches are made."""

    batch_size: int = 32
    threads: int = 1  # per rank
    seed: int | None = None  # like Reading's
    block: int = 1000  # like Reading's


@dataclass(frozen=True)
class Batch:
    """Some images with their classes."""

    images: torch.Tensor  # float32, (n, channels, height, width), 0 to 1
    classes: torch.Tensor  # int64, (n,)
    lines: tuple[int, ...]  # the numbers of their lines in the list
    tally: Tally  # of their samples


@dataclass
class PassStatistics:
    """What this rank has read of a channel."""

    last: Tally = field(default_factory=Tally)  # of the last pass
    seen: list[int] = field(default_factory=list)  # the numbers of the lines whose images the last pass read
    passes: int = 0  # begun
    samples: int = 0  # in all passes
    seconds: float = 0.0  # of all passes, including the work on the batches


class ImageChannel:
    """A rank's labelled images of a channel, in batches, for any number of passes."""

    def __init__(self, environment: Environment, name: str, labels: Labels, form: ImageForm, loading: Loading) -> None:
        self.channel = find_channel(environment, name)
        self.labels = labels
        self.statistics = PassStatistics()
        self._dataset = ChannelDataset(name, environment=environment, seed=loading.seed, block=loading.block)
        collate = _Collate(name, labels, form)
        self.loader = ThreadLoader(self._dataset, loading.batch_size, num_workers=loading.threads, collate_fn=collate)
        self.epoch = 0  # of the last pass
        self._resumed: int | None = None  # the epoch in which the next pass resumes

    @property
    def restarts_epoch(self) -> bool:
        """Whether the present state restarts the pass: in the middle of a Pipe that SageMaker shuffles."""
        state = self.loader.state_dict()
        return bool(state["of"].get("restart")) and not is_finished(state)

    def batches(self, epoch: int) -> Generator[Batch, None, None]:
        """Return the batches of one pass over the channel, or of the rest of the pass whose state the loader has loaded.

        Raises:
            ChannelError: An image has no line, cannot be decoded, or has another size than the rest of its batch.
        """
        statistics = self.statistics
        self._dataset.set_epoch(epoch)
        self.epoch = epoch
        statistics.passes += 1
        if self._resumed != epoch:
            statistics.last, statistics.seen = Tally(), []
        self._resumed = None
        # Now, not with the first batch: if another rank takes one and this one does not, their states must match.
        return self._counted(self.loader.__iter__())

    def _counted(self, loop: Any) -> Generator[Batch, None, None]:
        statistics, begin = self.statistics, time.perf_counter()
        try:
            with closing(loop) as batches:
                for batch in batches:
                    statistics.last += batch.tally
                    statistics.samples += batch.tally.count
                    statistics.seen += batch.lines
                    yield batch
        finally:
            statistics.seconds += time.perf_counter() - begin

    def resume(self, epoch: int, last: Tally, seen: list[int]) -> None:
        """Add the pass of this epoch to what was read of it before; passes of other epochs are counted from their beginning."""
        self.epoch = self._resumed = epoch
        self.statistics.last, self.statistics.seen = last, seen


@dataclass(frozen=True)
class _Collate:
    """A function that makes a batch from samples."""

    name: str
    labels: Labels
    form: ImageForm

    def __call__(self, samples: Sequence[Sample]) -> Batch:
        tally = Tally()
        images, classes, lines = [], [], []
        for sample in samples:
            try:
                line = line_of(sample, self.labels.lines)
            except ChannelError as error:
                raise ChannelError(f"channel {self.name!r} and its list {self.labels.channel!r}: {error}") from None
            tally.add(sample)
            fields = [field for field in sample if field != KEY]  # a tar's group has several; the list names one
            images.append(self._decode(sample[fields[sample_paths(sample).index(line.path)]], line.path))
            classes.append(class_of(line))
            lines.append(self.labels.numbers[line.path])
            if images[-1].shape != images[0].shape:
                height, width = images[-1].shape[1:]
                raise ChannelError(
                    f"channel {self.name!r}: image {line.path!r} has {width} x {height} pixels, unlike others of its batch; set"
                    " image-size"
                )
        return Batch(torch.stack(images), torch.tensor(classes), tuple(lines), tally)

    def _decode(self, data: bytes, path: str) -> torch.Tensor:
        try:
            with Image.open(BytesIO(data)) as file:
                image = file.convert(self.form.mode)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ChannelError(
                f"channel {self.name!r}: image {path!r} of {len(data)} bytes cannot be decoded: {error}"
            ) from None
        if self.form.size is not None:
            image = image.resize((self.form.size, self.form.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)
