"""Training that can be stopped, resumed and distributed: the parts of the loop, without options or printing.

Under torchrun the ranks train one model (DistributedDataParallel), and each reads its shard. If shards are unequal, `uneven_ranks`
lets a rank that has run out answer the others. After a stop request a rank ends its loop in the same way, so none waits.
Other collective calls (`gather`) are between the loops.

A checkpoint has epoch, model and optimizer, what all ranks have read and scored of the epoch, and each rank's position and random
states. As many ranks and threads as before resume with the same result; any other number divides what is left of the epoch.
"""

# ruff: noqa: TID253 - a training loop is made of torch; its name says that this file imports it

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from sagemaker_channels.checkpointing.checkpoints import Checkpoints
from sagemaker_channels.image_training.image_channel import Batch, ImageChannel
from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.torch_data.ranks import uneven_ranks

T = TypeVar("T")


class StopRequest:
    """A context that notes SIGTERM, by which SageMaker stops a job or takes back a spot instance with 120 s notice."""

    def __init__(self) -> None:
        self.made = False

    def __enter__(self) -> StopRequest:
        self._before = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # An exception in the middle of optimizer.step() would leave half a step in the checkpoint.
        self.made = True

    def by_any_rank(self) -> bool:
        """Return whether any rank has received SIGTERM. A collective call."""
        return any(gather(self.made))


@dataclass
class Score:
    """The quality of the predictions of some samples; scores add up."""

    loss: float = 0.0  # summed over the samples
    correct: int = 0
    samples: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(self.loss + other.loss, self.correct + other.correct, self.samples + other.samples)

    def means(self, name: str) -> dict[str, float]:
        """Return `<name>_loss` and `<name>_accuracy` per sample; NaN without samples."""
        count = self.samples or float("nan")
        return {f"{name}_loss": self.loss / count, f"{name}_accuracy": self.correct / count}


@dataclass
class Training:
    """The state of a training on this rank."""

    model: nn.Module  # a DistributedDataParallel if there are several ranks
    optimizer: torch.optim.Optimizer
    device: torch.device
    stop: StopRequest
    epoch: int = 0  # the current or next epoch, from 0
    score: Score = field(default_factory=Score)  # this rank's in the epoch so far; all ranks' on rank 0 when it resumes
    history: list[dict[str, float]] = field(default_factory=list)  # the metrics of each finished epoch
    steps: int = 0  # in all epochs, of the rank that made the most
    setting: dict[str, Any] = field(default_factory=dict)  # what determines the order of the images

    def state_dict(self) -> dict[str, Any]:
        """Return what all ranks have in common, without model and optimizer."""
        return {name: getattr(self, name) for name in ("epoch", "history", "steps", "setting")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at a state, at the beginning of its epoch."""
        vars(self).update(state)

    @property
    def network(self) -> nn.Module:
        """The model without DistributedDataParallel."""
        model = self.model
        return model.module if isinstance(model, DistributedDataParallel) else model


@contextmanager
def ranks() -> Iterator[torch.device]:
    """Join torchrun's process group, if there are several ranks, and yield this rank's device."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(local_rank)  # Collective calls on objects use the current device.
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield device
        torch.distributed.barrier()  # A rank that leaves early would break the others' collective calls.
    finally:
        torch.distributed.destroy_process_group()


def rank() -> int:
    """Return this rank's number; rank 0 prints and writes for all."""
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def gather(value: T) -> list[T]:
    """Return every rank's value, by rank. A collective call."""
    if not torch.distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def make_training(model: nn.Module, learning_rate: float, device: torch.device, stop: StopRequest) -> Training:
    """Return a new training with Adam."""
    model = model.to(device)
    if torch.distributed.is_initialized():
        model = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    return Training(model, torch.optim.Adam(model.parameters(), learning_rate), device, stop)


def train_epoch(training: Training, batches: Iterator[Batch], report: Callable[[], None]) -> None:
    """Train on the remaining batches of an epoch, until their end or a stop request; call `report` after each."""
    model, optimizer = training.model, training.optimizer
    model.train()
    with uneven_ranks(model):
        while not training.stop.made and (batch := next(batches, None)) is not None:
            optimizer.zero_grad()
            classes = batch.classes.to(training.device)
            answers = model(batch.images.to(training.device))
            loss = cross_entropy(answers, classes)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            training.steps += 1
            training.score += _score(answers.detach(), classes)
            report()
    _share_optimizer(training)


@torch.no_grad()
def evaluate(training: Training, batches: Iterator[Batch]) -> Score:
    """Return the score of this rank's batches, until their end or a stop request."""
    network = training.network
    network.eval()
    score = Score()
    while not training.stop.made and (batch := next(batches, None)) is not None:
        score += _score(network(batch.images.to(training.device)), batch.classes.to(training.device))
    return score


def finish_epoch(training: Training, metrics: dict[str, float]) -> None:
    """Record the metrics and begin the next epoch."""
    training.history.append(metrics)
    training.epoch += 1
    training.score = Score()


@dataclass
class Done:
    """What all ranks together have read and scored of the epoch, which any number of ranks can continue."""

    training: Training
    source: ImageChannel

    def state_dict(self) -> dict[str, Any]:
        """Return the sums over all ranks; nothing if one of them cannot resume inside its epoch. A collective call."""
        read = self.source.statistics
        mine = (self.source.restarts_epoch, self.training.score, read.last, torch.tensor(read.seen, dtype=torch.int64))
        everyone = gather(mine)
        if any(restarts for restarts, *_ in everyone):
            everyone = [(True, Score(), Tally(), torch.empty(0, dtype=torch.int64))]
        _, scores, tallies, seen = zip(*everyone, strict=True)
        return {
            "epoch": self.source.epoch,
            "score": vars(sum(scores, Score())),
            "tally": vars(sum(tallies, Tally())),
            "met": torch.cat(seen),  # A list of a million numbers would take long to write.
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue on rank 0 what all ranks had done; the others add to it."""
        if rank() == 0:
            self.training.score = Score(**state["score"])
            self.source.resume(state["epoch"], Tally(**state["tally"]), state["met"].tolist())


def save(training: Training, source: ImageChannel, checkpoints: Checkpoints) -> None:
    """Save a checkpoint. A collective call."""
    parts = {"model": training.model, "optimizer": training.optimizer, "training": training}
    checkpoints.save(training.steps, **parts, done=Done(training, source), loader=source.loader)


def restore(training: Training, source: ImageChannel, checkpoints: Checkpoints) -> bool:
    """Load the last checkpoint, if there is one, and return whether there was. With another setting, its epoch begins again.

    A collective call. Raises ChannelError if it is of another model.
    """
    setting = training.setting
    parts = {"model": training.model, "optimizer": training.optimizer, "training": training}
    if checkpoints.load(**parts) is None:
        return False
    if training.setting == setting:
        checkpoints.load(done=Done(training, source), loader=source.loader)
    training.setting = setting
    return True


def _score(answers: torch.Tensor, classes: torch.Tensor) -> Score:
    loss = cross_entropy(answers, classes, reduction="sum")
    return Score(loss.item(), int((answers.argmax(1) == classes).sum().item()), len(classes))


def _share_optimizer(training: Training) -> None:
    """Copy the optimizer of the rank with the most steps to every rank.

    `uneven_ranks` does so for the model, but a rank that has run out makes no steps, so its optimizer's averages are older, and
    from the next epoch on the ranks' models would differ.
    """
    steps = gather(training.steps)
    if len(set(steps)) > 1:
        source = max(range(len(steps)), key=steps.__getitem__)
        training.steps = steps[source]
        mine = BytesIO()
        if rank() == source:
            torch.save(training.optimizer.state_dict(), mine)
        state = torch.load(BytesIO(_broadcast(mine.getvalue(), source)), map_location="cpu", weights_only=True)
        training.optimizer.load_state_dict(state)


def _broadcast(data: bytes, source: int) -> bytes:
    if not torch.distributed.is_initialized():
        return data
    values = [data]
    torch.distributed.broadcast_object_list(values, source)
    return values[0]
