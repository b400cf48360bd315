"""`train.py`'s command line, in which SageMaker puts the hyperparameters."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class Options:
    """A training's options."""

    epochs: int
    batch_size: int  # per rank
    learning_rate: float
    seed: int
    num_workers: int  # per rank
    num_threads: int | None  # of a rank's steps on a CPU; None: torch's choice
    shuffle_block: int  # samples
    image_mode: str
    image_size: int | None  # pixels
    model: str | None
    train_channel: str
    train_lst: str
    validation_channel: str | None  # None: `validation` if the job has it
    validation_lst: str
    test_channel: str | None  # None: `test` if the job has it
    test_lst: str
    lines_without_image: str
    compare_channel: str | None
    checkpoint_dir: str | None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(f"train: {message}; for all options: python -m entrypoints.train --help")


def parse_options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line, with `_` as `-`. Exits, with one line, if one is wrong."""
    add = (parser := _Parser(prog="train", allow_abbrev=False, description="Train an image classifier.")).add_argument
    add("--epochs", type=_count, default=10)
    add("--batch-size", type=_count, default=32, help="images per step and rank")
    add("--learning-rate", type=float, default=1e-3, help="of Adam")
    add("--seed", type=int, default=1, help="of the initial weights, the order of the images and dropout")
    add("--num-workers", type=_number, default=1, help="threads per rank that read and decode images")
    add("--num-threads", type=_count, help="of a step on a CPU; default: torch's choice, too many for a small network")
    add("--shuffle-block", type=_number, default=1000, help="images that are shuffled together; 0: no shuffle")
    add("--image-mode", choices=["L", "RGB"], default="RGB", help="L: grey")
    add("--image-size", type=_count, help="pixels of width and height; default: each image keeps its size")
    add(
        "--model",
        metavar="MODULE:FACTORY",
        help="a function of num_classes that returns the module to train; default: a small CNN",
    )
    add("--train-channel", default="train")
    add("--train-lst", default="train_lst", help="the channel of the .lst files")
    add("--validation-channel", help="default: validation, if the job has it")
    add("--validation-lst", default="validation_lst")
    add("--test-channel", help="default: test, if the job has it")
    add("--test-lst", default="test_lst")
    add(
        "--lines-without-image",
        choices=["error", "ignore"],
        default="error",
        help="ignore: for a trial with a part of the images",
    )
    add("--compare-channel", help="a channel that must hold the same samples as train, by digest")
    add("--checkpoint-dir", help="a folder or s3://bucket/prefix; default: SageMaker's checkpoint folder")
    words = [re.sub(r"^--[\w-]+", lambda name: name[0].replace("_", "-"), word) for word in arguments]
    known, unknown = parser.parse_known_args(words)
    if unknown:
        near = difflib.get_close_matches(unknown[0], [f"--{name.replace('_', '-')}" for name in vars(known)], 1)
        parser.error(f"{unknown[0]} is not an option" + (f"; did you mean {near[0]}?" if near else ""))
    return Options(**vars(known))


def _number(text: str, least: int = 0) -> int:
    """A whole number from 0 on."""
    if (number := int(text)) < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def _count(text: str) -> int:
    """A whole number from 1 on."""
    return _number(text, 1)
