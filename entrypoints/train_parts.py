"""What `train.py` needs beside its loop: labelled images of a channel as batches of tensors, networks, and figures of all ranks."""

# ruff: noqa: TID253 - batches and networks are made of torch

from __future__ import annotations

import argparse
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn

from sagemaker_channels import ChannelDataset, ChannelError, Environment, ThreadLoader
from sagemaker_channels.epoch.channel import find_channel
from sagemaker_channels.sample import KEY, Sample
from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.samples.lst import Line, line_of, read_lists, sample_paths

stop = threading.Event()  # set by SIGTERM, with which SageMaker stops a job or takes a spot instance back in 120 s
# Images (n, bands, height, width) from 0 to 1, their classes (n,), and what was read for them.
Batch = tuple[torch.Tensor, torch.Tensor, Tally]


class StopError(Exception):
    """A rank has received SIGTERM."""


def rank() -> int:
    """Return this process's rank; rank 0 prints and writes for all."""
    return dist.get_rank() if dist.is_initialized() else 0


def say(text: str) -> None:
    """Print a line of the log, on rank 0."""
    if rank() == 0:
        print(text, flush=True)


def line(metrics: Mapping[str, float]) -> str:
    """Return metrics in the form that the spec's metric_definitions match."""
    return " ".join(f"{name}={value}" if name == "epoch" else f"{name}={value:.4f}" for name, value in metrics.items())


def gather(value: Any) -> list[Any]:
    """Return every rank's value. A collective call."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def total(value: Any) -> Any:
    """Return the sum of all ranks' values. A collective call."""
    first, *others = gather(value)
    return sum(others, first)


def check_stop(device: torch.device) -> None:
    """Raise StopError on all ranks if any of them has received SIGTERM, so that they leave a loop together. A collective call."""
    votes = torch.tensor(int(stop.is_set()), device=device)
    if dist.is_initialized():
        dist.all_reduce(votes)
    if votes:
        raise StopError


@dataclass
class Score:
    """The quality of predictions, and what was read for them; scores of batches and ranks add up."""

    loss: float = 0.0  # summed over the samples
    correct: int = 0
    read: Tally = field(default_factory=Tally)

    def __add__(self, other: Score) -> Score:
        return Score(self.loss + other.loss, self.correct + other.correct, self.read + other.read)

    def means(self, name: str) -> dict[str, float]:
        """Return loss and accuracy per sample; NaN without samples."""
        count = self.read.count or float("nan")
        return {f"{name}_loss": self.loss / count, f"{name}_accuracy": self.correct / count}


def read_lines(environment: Environment, name: str) -> dict[str, Line]:
    """Return the lines of all `.lst` files of a channel by the path of the image; each line has one class.

    Raises:
        ChannelError: The channel does not arrive as files or has no lines, a label is not a class, or a path is listed twice.
    """
    channel = find_channel(environment, name)
    if not (lines := read_lists(channel.path)):
        what = f"no .lst file in {channel.path} has lines, and the channel's input_mode is {channel.mode}"
        raise ChannelError(what, channel=name, remedy="name the folder of the list, by input_mode: File, EFS or FSx")
    for line in lines.values():
        if len(line.labels) != 1 or line.labels[0] < 0 or line.labels[0] % 1:
            what = f"the label of {line.path!r} is {', '.join(f'{label:g}' for label in line.labels)}"
            raise ChannelError(what, channel=name, remedy="expected one class, an integer >= 0")
    return lines


class ImageChannel:
    """A rank's images of a channel, labelled by the lists of the channel `<name>_lst`; `loader` makes the batches of an epoch.

    Args:
        environment: The job.
        name: The channel.
        options: Those of train.py.
        order: `seed` and `block` of a ChannelDataset for a random order.
    """

    def __init__(self, environment: Environment, name: str, options: argparse.Namespace, **order: int) -> None:
        self.channel, self.options = find_channel(environment, name), options
        self.lines = read_lines(environment, f"{name}_lst")
        self.classes = 1 + max(int(line.labels[0]) for line in self.lines.values())
        dataset = ChannelDataset(name, environment=environment, **order)  # type: ignore[arg-type]
        # Decoders release the GIL, so threads are faster than worker processes.
        workers = options.num_workers
        self.loader = ThreadLoader(dataset, options.batch_size, num_workers=workers, collate_fn=self.batch_of)

    def batch_of(self, samples: Sequence[Sample]) -> Batch:
        """Return samples as a batch: join the labels, decode the images, count what was read."""
        name, tally, images, classes = self.channel.name, Tally(), [], []
        for sample in samples:
            try:
                line = line_of(sample, self.lines)
            except ChannelError as error:
                raise ChannelError(f"channel {name!r} and its list '{name}_lst': {error}") from None
            fields = [field for field in sample if field != KEY]  # of a tar's group, the list names one
            images.append(self._decoded(sample[fields[sample_paths(sample).index(line.path)]], line.path))
            classes.append(int(line.labels[0]))
            tally.add(sample)
            if images[-1].shape != images[0].shape:
                height, width = images[-1].shape[1:]
                what = f"image {line.path!r} has {width} x {height} pixels, unlike others of its batch; set image-size"
                raise ChannelError(what, channel=name)
        return torch.stack(images), torch.tensor(classes), tally

    def _decoded(self, data: bytes, path: str) -> torch.Tensor:
        try:
            with Image.open(BytesIO(data)) as file:
                image = file.convert(self.options.image_mode)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            what = f"image {path!r} of {len(data)} bytes cannot be decoded: {error}"
            raise ChannelError(what, channel=self.channel.name) from None
        if (size := self.options.image_size) is not None:
            image = image.resize((size, size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)


def small_cnn(bands: int, num_classes: int) -> nn.Module:
    """Return three convolutions and a linear layer, some 66,000 parameters for 10 classes, for images of 4 x 4 pixels or more."""

    def stage(before: int, after: int) -> tuple[nn.Module, ...]:
        return nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU()

    return nn.Sequential(
        *(*stage(bands, 32), *stage(32, 64), nn.MaxPool2d(2), *stage(64, 64)),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 4 * 4, num_classes)),
    )


def build_model(factory: str | None, bands: int, classes: int) -> nn.Module:
    """Return the network of `package.module:function`, called with `num_classes`, such as torchvision.models:resnet18.

    Raises:
        ImportError: There is no such function.
    """
    try:
        make: Any = partial(small_cnn, bands) if factory is None else resolve_name(factory)
        if not callable(make):
            raise ValueError("is not a function")
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "write package.module:function, from your code or an installed package"
        raise ImportError(f"model {factory!r}: {error}; {remedy}") from error
    model: nn.Module = make(num_classes=classes)
    return model
