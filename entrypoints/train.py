"""Train an image classifier on the channels of a job, in any input mode: an example to copy.

    python entrypoints/train.py --epochs 10 --batch-size 64 [--model package.module:factory] [--compare-channel images]

The images are in the channels `train`, `validation` and `test` (the last two are optional), their classes in the `.lst` files of
`train_lst`, `validation_lst` and `test_lst` (train_parts.py). It runs as one process, or by torchrun with any number of ranks.
Hyperparameters are these options; an unknown one ends the job, since it is probably misspelt.

It writes `model.pt` (the state_dict) and `model.json` to the model directory, `metrics.json` to output/data, and a checkpoint
after each epoch and on SIGTERM. From the newest checkpoint it resumes at the very next image, on any number of ranks. It restarts
the epoch of a Pipe with a ShuffleConfig, which gets another order after each start, and one with another seed or block.
"""

# ruff: noqa: TID253 - it is a training script

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import train_parts as parts
from sagemaker_channels import ChannelError, Checkpoints, Environment, even_batches, load_environment, open_channel
from sagemaker_channels.contract import SAMPLE_VARIABLE, SHARDED
from sagemaker_channels.epoch.channel import find_channel
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.samples.digest import Tally
from train_parts import Score, StopError, check_stop, gather, line, rank, say, stop, total

STOPPED = 143  # 128 + SIGTERM, as in a shell
REPORT_SECONDS = 10.0  # between the lines of a long epoch


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which becomes the job's FailureReason."""

    def error(self, message: str) -> NoReturn:
        sys.exit(f"train: {message}; for all options: python entrypoints/train.py --help")


def positive(text: str) -> int:
    """Return an integer >= 1."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line, in which SageMaker puts the hyperparameters; `_` is the same as `-`."""
    parser = Parser(prog="train", allow_abbrev=False, description="Train an image classifier.")
    add = parser.add_argument
    add("--epochs", type=positive, default=10)
    add("--batch-size", type=positive, default=32, help="images per step and rank")
    add("--learning-rate", type=float, default=1e-3, help="of Adam")
    add("--seed", type=int, default=1, help="of the initial weights, the order of the images and dropout")
    add("--num-workers", type=positive, default=1, help="threads per rank that decode images")
    add("--num-threads", type=positive, help="of a step on a CPU; default: torch's choice")
    add("--shuffle-block", type=int, default=1000, help="images that are shuffled together; 0: no shuffle")
    add("--image-mode", default="RGB", choices=["L", "RGB"], help="L: grey")
    add("--image-size", type=positive, help="pixels of width and height; default: each image keeps its size")
    add("--model", metavar="MODULE:FACTORY", help="returns the module to train for num_classes; default: a small CNN")
    add("--compare-channel", help="a channel that must hold the same samples as train, by digest")
    return parser.parse_args([re.sub(r"^--[\w-]+", lambda name: name[0].replace("_", "-"), x) for x in arguments])


class Training:
    """A training on this rank: its channels, model, optimizer and progress. Its methods are collective calls."""

    def __init__(self, options: argparse.Namespace, environment: Environment, device: torch.device) -> None:
        self.options, self.environment, self.device = options, environment, device
        order = {"seed": options.seed, "block": options.shuffle_block} if options.shuffle_block else {}
        self.source = parts.ImageChannel(environment, "train", options, **order)
        self.channels = {"train": self.source}
        for name in sorted({"validation", "test"} & environment.channels.keys()):
            self.channels[name] = parts.ImageChannel(environment, name, options)
        for name, channel in self.channels.items():
            if channel.classes > self.source.classes:
                what = f"the list '{name}_lst' has class {channel.classes - 1}, but 'train_lst' has none above"
                raise ChannelError(f"{what} {self.source.classes - 1}", remedy="correct the lists")
        if options.compare_channel is not None:
            find_channel(environment, options.compare_channel)
        torch.manual_seed(options.seed)
        bands = len(options.image_mode)  # a letter for each
        self.network = parts.build_model(options.model, bands, self.source.classes).to(device)
        count = sum(map(torch.numel, self.network.parameters()))
        say(f"{self.source.classes} classes, {count:,} parameters, {len(gather(None))} rank(s)")
        self.model = self.network
        if dist.is_initialized():
            self.model = DistributedDataParallel(self.network, [device] if device.type == "cuda" else None)
        torch.manual_seed(options.seed + 1 + rank())  # each rank needs other dropouts
        self.optimizer = torch.optim.Adam(self.network.parameters(), options.learning_rate)
        self.saved = {"model": self.model, "optimizer": self.optimizer, "training": self, "loader": self.source.loader}
        is_sharded = self.source.channel.distribution == SHARDED  # then each host has images of its own
        hosts = len(environment.hosts) if is_sharded else 1
        self.order = {**order, "hosts": hosts}  # what determines that of the images
        self.epoch = self.steps = 0
        self.history: list[dict[str, float]] = []  # the metrics of each finished epoch
        self.score = Score()  # of this rank in this epoch; after a resume, rank 0 has that of all ranks
        self.read: dict[str, Tally] = {}  # by channel, what all ranks have read in its last whole pass

    def state_dict(self) -> dict[str, Any]:
        """Return what all ranks have done, beside model, optimizer and data position."""
        own = {name: vars(self)[name] for name in ("epoch", "steps", "history", "order")}
        return {**own, "score": asdict(total(self.score))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume; the ranks' scores add up to the one that was saved."""
        score = state["score"]
        score = Score(**{**score, "read": Tally(**score["read"])}) if rank() == 0 else Score()
        vars(self).update(state, score=score)

    def run(self) -> bool:
        """Train, test and write the model; return whether the training was stopped before its end."""
        with Checkpoints(self.environment.checkpoint_dir) as self.checkpoints:
            self.resume()
            try:
                while self.epoch < self.options.epochs:
                    self.run_epoch()
                    self.checkpoints.save(self.steps, **self.saved)
                if tested := self.evaluate("test"):
                    say(line(tested))
                is_stopped = False
            except StopError:
                self.checkpoints.save(self.steps, **self.saved)
                self.checkpoints.wait()
                tested, is_stopped = {}, True
                say(f"stopped; a checkpoint is written: {self.progress()}")
        self.write(tested)
        return is_stopped

    def progress(self) -> str:
        """Return what is done, in words."""
        return f"{self.epoch} epoch(s) and {total(self.score.read.count)} image(s) are done"

    def resume(self) -> None:
        """Load the newest checkpoint, if there is one; if the images are in another order now, its epoch begins again."""
        order = self.order
        if self.checkpoints.load(model=self.model, optimizer=self.optimizer, training=self) is None:
            return
        if self.order == order:
            self.checkpoints.load(loader=self.source.loader)
        is_shuffled = self.source.channel.shuffled and total(self.score.read.count) < len(self.source.lines)
        if self.order != order or is_shuffled:
            self.score, self.order = Score(), order
        say(f"resuming from {self.environment.checkpoint_dir}: {self.progress()}")

    def batches(self, name: str) -> Iterator[tuple[parts.Batch, bool]]:
        """Yield the batches that a channel's epoch has left, equally many on each rank, and whether they count here.

        Raises StopError if a rank is stopped.
        """
        loader = self.channels[name].loader
        loader.set_epoch(self.epoch)
        with closing(even_batches(loader)) as batches:
            for each in batches:
                yield each
                check_stop(self.device)
        check_stop(self.device)

    def run_epoch(self) -> None:
        """Train and validate an epoch, or what is left of it."""
        began = time.monotonic()
        trained = self.train()
        if (name := self.options.compare_channel) is not None and name not in self.read:
            self.compare(name)
        metrics = {"epoch": self.epoch + 1, **trained, **self.evaluate("validation")}
        self.history.append(metrics)
        self.epoch, self.score = self.epoch + 1, Score()
        say(f"{line(metrics)} seconds={time.monotonic() - began:.1f}")

    def train(self) -> dict[str, float]:
        """Train on the batches that the epoch has left, and return its metrics."""
        reported = time.monotonic()
        self.model.train()
        for batch, counts in self.batches("train"):
            self.optimizer.zero_grad()
            loss, score = self.scored(self.model, batch)
            (loss if counts else 0 * loss).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.steps += 1
            self.score += score if counts else Score()
            if time.monotonic() > reported + REPORT_SECONDS:
                reported, means = time.monotonic(), self.score.means("train")
                say(f"epoch {self.epoch + 1}: {self.score.read.count:,} images so far, {line(means)}")
        return self.checked("train", self.score)

    @torch.no_grad()
    def evaluate(self, name: str) -> dict[str, float]:
        """Return the metrics of a channel, empty if the job has no such channel."""
        if name not in self.channels:
            return {}
        score = Score()
        self.network.eval()
        for batch, counts in self.batches(name):
            score += self.scored(self.network, batch)[1] if counts else Score()
        return self.checked(name, score)

    def scored(self, model: nn.Module, batch: parts.Batch) -> tuple[torch.Tensor, Score]:
        """Return the loss of a batch, and its score."""
        images, classes, read = batch
        answers, classes = model(images.to(self.device)), classes.to(self.device)
        loss = cross_entropy(answers, classes)
        return loss, Score(loss.item() * len(classes), int((answers.argmax(1) == classes).sum()), read)

    def checked(self, name: str, score: Score) -> dict[str, float]:
        """Return the ranks' metrics of a whole epoch. Raises ChannelError unless each line of the list had its image."""
        every: Score = total(score)
        self.read[name] = every.read
        lines, images = len(self.channels[name].lines), every.read.count
        # A local run on some of each channel's objects has lists with more lines.
        if images > lines or (images < lines and SAMPLE_VARIABLE not in os.environ):
            what = f"channel {name!r} has {images:,} images, and its list '{name}_lst' {lines:,} lines"
            raise ChannelError(what, remedy="correct the list or the images: `launch lst check` names them")
        return every.means(name)

    def compare(self, name: str) -> None:
        """Read a channel. Raises ChannelError if it has other samples than `train`."""
        own = Tally()
        for sample in open_channel(name, environment=self.environment):
            own.add(sample)
            if stop.is_set():
                break
        check_stop(self.device)
        other, trained = total(own), self.read["train"]
        if trained != other:
            what = f"channel {name!r} ({other}) does not hold the same samples as 'train' ({trained})"
            raise ChannelError(what, remedy="correct one of their s3_uri, or remove compare-channel")
        self.read[name] = other
        say(f"{name} holds the same samples as train: {other}")

    def write(self, tested: Mapping[str, float]) -> None:
        """Write the model and the metrics, and print what was read of each channel; rank 0 does it."""
        if rank() != 0:
            return
        options, model_dir, data_dir = self.options, self.environment.model_dir, self.environment.output_data_dir
        rows = [
            {"channel": name, "mode": self.environment.channels[name].mode, "samples": read.count, "bytes": read.bytes}
            for name, read in self.read.items()
        ]
        for row in rows:
            say("  {channel:20} {mode:12} {samples:9,} samples {bytes:13,} bytes".format_map(row))
        about: dict[str, Any] = {"model": options.model or "train_parts:small_cnn", "num_classes": self.source.classes}
        about |= {"image_mode": options.image_mode, "image_size": options.image_size, "epochs": self.epoch}
        metrics = {"epochs": self.history, "test": tested, "channels": rows}
        for folder, name, content in ((model_dir, "model.json", about), (data_dir, "metrics.json", metrics)):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        torch.save(self.network.state_dict(), model_dir / "model.pt")


def start(options: argparse.Namespace, environment: Environment) -> bool:
    """Join the ranks and train; return whether the training was stopped before its end."""
    if len(environment.hosts) > 1 and "WORLD_SIZE" not in os.environ:
        what = f"this job has {len(environment.hosts)} hosts, and each would train its own model"
        raise ChannelError(what, remedy="write command: torchrun entrypoints/train.py")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if options.num_threads is not None:
        torch.set_num_threads(options.num_threads)
    return Training(options, environment, device).run()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script. Exit codes: 0; 1 with one line if it cannot continue; 143 if it was stopped."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    stop.clear()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        code = STOPPED if start(options, load_environment()) else 0
    except (ChannelError, ConfigError, ImportError) as error:
        sys.exit(f"train: {error}")
    if dist.is_initialized():
        dist.barrier()  # a rank that leaves early would break the others' collective calls
        sys.stdout.flush()
        os._exit(code)  # gloo's threads abort one of ten ordinary exits, and torchrun would fail a complete training
    if code:
        sys.exit(code)


if __name__ == "__main__":
    sys.path.insert(0, "")  # the user's modules come before those beside this script, as with `python -m`
    main()
