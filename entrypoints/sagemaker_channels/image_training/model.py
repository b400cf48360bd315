"""The networks of the bundled training script: a small CNN, or one from the user's code."""

# ruff: noqa: TID253 - a network is made of torch's classes; its name says that this file imports torch

from __future__ import annotations

import importlib

from torch import nn


def small_cnn(channels: int, classes: int) -> nn.Module:
    """Return three convolutions and a linear layer, some 66,000 parameters for 10 classes, for images of 4 x 4 pixels or more."""
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
    """Return the network of a factory, `package.module:function` such as torchvision.models:resnet18, or of `small_cnn`.

    The factory is called with `num_classes`; `channels` are the numbers of a pixel, for `small_cnn`. Raises ImportError if there
    is no such factory, or it does not return a module.
    """
    if factory is None:
        return small_cnn(channels, classes)
    module, _, name = factory.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(
            f"model {factory!r}: {error}; write package.module:function, from your code or an installed package"
        ) from error
    model = make(num_classes=classes)
    if not isinstance(model, nn.Module):
        raise ImportError(f"model {factory!r}: expected a torch.nn.Module, got {type(model).__name__}")
    return model
