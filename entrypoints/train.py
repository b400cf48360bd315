"""Trains an image classifier on the channels of a job, whichever way each of them arrives.

    python -m entrypoints.train --epochs 10 --batch-size 64 [--model package.module:factory] [--compare-channel images]

Images come from the channels `train`, `validation` and `test` (the last two if the job has them), each image's class from
the `.lst` files of `train_lst`, `validation_lst` and `test_lst`. Runs as one process, or under torchrun with any number of
ranks. SageMaker hands hyperparameters over as these options; one that is none of them ends the job, since it is
probably misspelt.

Writes `model.pt` (the state_dict) and `model.json` to the model directory, `metrics.json` to output/data, and a checkpoint
after every epoch and on SIGTERM; where one is there at the start it goes on from it, to the same result as without the
interruption. (Only the order in which a Pipe's ShuffleConfig brings the objects begins anew with each start.)
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from entrypoints.environment import ConfigError, load_environment
from entrypoints.errors import ChannelError

STOPPED = 143  # 128 + SIGTERM, as a shell has it
_PACKAGES = ("torch", "numpy", "PIL")  # what the extra `torch` brings


@dataclass(frozen=True)
class Options:
    """What can be said about a training."""

    epochs: int
    batch_size: int  # of each rank
    learning_rate: float
    seed: int
    num_workers: int  # DataLoader workers of each rank
    num_threads: int | None  # of each rank's steps on a CPU; None: torch's choice
    shuffle_buffer: int  # samples
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the script. Exit codes: 0, 1 with one line where it cannot go on, 143 where it was stopped."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    try:
        environment = load_environment()
        from entrypoints.torch_classifier import run  # a wrong option is told without waiting for torch

        stopped = run(options, environment, say=lambda text: print(text, flush=True))
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        sys.exit(f"train: {error.name} is not installed, which training needs: pip install 'sagemaker-launch[torch]'")
    except (ChannelError, ConfigError, ImportError) as error:
        sys.exit(f"train: {error}")
    _leave(STOPPED if stopped else 0)


def _leave(code: int) -> None:
    """Ends the process; one of several ranks at once, with nothing left to tear down.

    All is written by now. torch's gloo threads abort one exit in some ten ("terminate called without an active exception",
    torch 2.13, after destroy_process_group), and torchrun then fails a training that is complete.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if code:
        sys.exit(code)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(f"train: {message}; every option: python -m entrypoints.train --help")


def parse_options(arguments: Sequence[str]) -> Options:
    """Options from a command line; `--batch_size` is `--batch-size`. Ends the process, with one line, for a wrong one."""
    add = (parser := _Parser(prog="train", allow_abbrev=False, description="Trains an image classifier.")).add_argument
    add("--epochs", type=_count, default=10)
    add("--batch-size", type=_count, default=32, help="images of a step on each rank")
    add("--learning-rate", type=float, default=1e-3, help="Adam's")
    add("--seed", type=int, default=1, help="of the first weights, the order of the images and dropout")
    add("--num-workers", type=int, default=0, help="DataLoader workers of each rank; a Pipe takes one at most")
    add("--num-threads", type=_count, help="of a step on a CPU; else torch's choice, too many for a small network")
    add("--shuffle-buffer", type=int, default=1000, help="images that are drawn from by chance; 0: in order of arrival")
    add("--image-mode", choices=["L", "RGB"], default="RGB", help="L: grey")
    add("--image-size", type=_count, help="pixels of width and height; images stay as they are without it")
    add(
        "--model", metavar="MODULE:FACTORY", help="called with num_classes, gives the module to train; else a small CNN"
    )
    add("--train-channel", default="train")
    add("--train-lst", default="train_lst", help="the channel that holds the .lst files")
    add("--validation-channel", help="validation, if the job has it")
    add("--validation-lst", default="validation_lst")
    add("--test-channel", help="test, if the job has it")
    add("--test-lst", default="test_lst")
    add(
        "--lines-without-image",
        choices=["error", "ignore"],
        default="error",
        help="ignore: to try a part of the images",
    )
    add("--compare-channel", help="must hold the same samples as train, by digest; else the job fails")
    add("--checkpoint-dir", help="a folder, or s3://bucket/prefix; SageMaker's checkpoint folder without it")
    words = [re.sub(r"^--[\w-]+", lambda name: name[0].replace("_", "-"), word) for word in arguments]
    known, unknown = parser.parse_known_args(words)
    if unknown:
        near = difflib.get_close_matches(unknown[0], [f"--{name.replace('_', '-')}" for name in vars(known)], 1)
        parser.error(f"{unknown[0]} is no option" + (f"; did you mean {near[0]}?" if near else ""))
    return Options(**vars(known))


def _count(text: str) -> int:
    """A whole number from 1 on."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


if __name__ == "__main__":
    main()
