"""`train.py`'s command line, in which SageMaker puts the hyperparameters."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn


def _number(text: str, least: int = 0) -> int:
    """Return a whole number from 0 on."""
    if (number := int(text)) < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def _count(text: str) -> int:
    """Return a whole number from 1 on."""
    return _number(text, 1)


def _option(default: Any = None, **settings: Any) -> Any:
    """Return a field with what argparse's `add_argument` needs to know of its option."""
    return field(default=default, metadata=settings)


@dataclass(frozen=True)
class Options:
    """A training's options; each is `--<its name>`, with `-` for `_`."""

    epochs: int = _option(10, type=_count)
    batch_size: int = _option(32, type=_count, help="images per step and rank")
    learning_rate: float = _option(1e-3, type=float, help="of Adam")
    seed: int = _option(1, type=int, help="of the initial weights, the order of the images and dropout")
    num_workers: int = _option(1, type=_number, help="threads per rank that read and decode images")
    num_threads: int | None = _option(
        type=_count, help="of a step on a CPU; default: torch's choice, too many for a small network"
    )
    shuffle_block: int = _option(1000, type=_number, help="images that are shuffled together; 0: no shuffle")
    image_mode: str = _option("RGB", choices=["L", "RGB"], help="L: grey")
    image_size: int | None = _option(type=_count, help="pixels of width and height; default: each image keeps its size")
    model: str | None = _option(
        metavar="MODULE:FACTORY",
        help="a function of num_classes that returns the module to train; default: a small CNN",
    )
    train_channel: str = _option("train")
    train_lst: str = _option("train_lst", help="the channel of the .lst files")
    validation_channel: str | None = _option(help="default: validation, if the job has it")
    validation_lst: str = _option("validation_lst")
    test_channel: str | None = _option(help="default: test, if the job has it")
    test_lst: str = _option("test_lst")
    lines_without_image: str = _option(
        "error", choices=["error", "ignore"], help="ignore: for a trial with a part of the images"
    )
    compare_channel: str | None = _option(help="a channel that must hold the same samples as train, by digest")
    checkpoint_dir: str | None = _option(help="a folder or s3://bucket/prefix; default: SageMaker's checkpoint folder")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(f"train: {message}; for all options: python entrypoints/train.py --help")


def parse_options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line, with `_` as `-`. Exits, with one line, if one is wrong."""
    parser = _Parser(prog="train", allow_abbrev=False, description="Train an image classifier.")
    names = [f"--{option.name.replace('_', '-')}" for option in fields(Options)]
    for name, option in zip(names, fields(Options), strict=True):
        parser.add_argument(name, default=option.default, **option.metadata)
    words = [re.sub(r"^--[\w-]+", lambda name: name[0].replace("_", "-"), word) for word in arguments]
    known, unknown = parser.parse_known_args(words)
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, 1)
        parser.error(f"{unknown[0]} is not an option" + (f"; did you mean {near[0]}?" if near else ""))
    return Options(**vars(known))
