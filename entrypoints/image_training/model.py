"""The networks that the bundled training script trains: a small CNN of ours, or one that the user's code makes."""

# ruff: noqa: TID253 - a network is made of torch's classes; its name says that this file imports torch

from __future__ import annotations

import importlib

from torch import nn


def small_cnn(channels: int, classes: int) -> nn.Module:
    """Three convolutions and a linear layer: some 66,000 parameters for 10 classes.

    Takes images of (n, `channels`, height, width), of 4 x 4 pixels or more.

    Groups rather than batches are normalised, so that a batch of one image, or a rank's uneven last one, is no special case.
    """
    return nn.Sequential(
        *_stage(channels, 32),
        *_stage(32, 64),
        nn.MaxPool2d(2),
        *_stage(64, 64),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64 * 4 * 4, classes),
    )


def _stage(before: int, after: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU()


def build_model(factory: str | None, channels: int, classes: int) -> nn.Module:
    """The network that `package.module:factory` makes when called with `num_classes`; `small_cnn` where it is None.

    `torchvision.models:resnet18` is such a factory. Raises ImportError, in one line, where there is none of this name or
    it does not make a module.
    """
    if factory is None:
        return small_cnn(channels, classes)
    module, _, name = factory.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(
            f"model {factory!r}: {error}; write package.module:factory, of your code or an installed package"
        ) from error
    model = make(num_classes=classes)
    if not isinstance(model, nn.Module):
        raise ImportError(f"model {factory!r} made {type(model).__name__}, not a torch.nn.Module")
    return model
