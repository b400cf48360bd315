"""`train.py`'s work: labelled channels in; a trained classifier, its metrics and checkpoints out.

An epoch: train; check that list and images agree; in the first epoch, compare `train` with the channel that must hold the same
samples; validate; print the metrics; write the checkpoint. Ranks agree after each step whether to stop.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - its name says that this file imports torch

from sagemaker_channels.checkpoint import save_checkpoint
from sagemaker_channels.checkpointing.checkpoints import Checkpoints
from sagemaker_channels.contract import SHARDED
from sagemaker_channels.epoch.channel import find_channel, open_channel
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.image_training import training as loop
from sagemaker_channels.image_training.image_channel import ImageChannel, ImageForm, Loading, PassStatistics
from sagemaker_channels.image_training.model import build_model
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.samples.labels import Labels, check_seen, read_labels

if TYPE_CHECKING:
    from sagemaker_channels.image_training.options import Options

REPORT_SECONDS = 10.0  # between the lines of a long epoch


@dataclass
class _Job:
    options: Options
    environment: Environment
    channels: Mapping[str, ImageChannel]  # by role: train, validation, test
    training: loop.Training
    say: Callable[[str], None]  # prints on rank 0 only
    compared: PassStatistics | None = None  # of compare_channel


def run(options: Options, environment: Environment, say: Callable[[str], None]) -> bool:
    """Train, test and write the model, printing lines by `say`; return whether the training was stopped before its end.

    Raises:
        ChannelError: A channel or list cannot be read, they differ, or compare_channel holds other samples than train.
        ImportError: The model cannot be made.
    """
    if len(environment.hosts) > 1 and "WORLD_SIZE" not in os.environ:
        raise ChannelError(
            f"this job has {len(environment.hosts)} hosts, and each would train its own model; write launcher: torchrun"
        )
    place = options.checkpoint_dir or environment.checkpoint_dir
    with loop.StopRequest() as stop, loop.ranks() as device, Checkpoints(place) as checkpoints:
        job = _prepare(options, environment, stop, device, say if loop.rank() == 0 else lambda text: None)
        training = job.training
        source = job.channels["train"]
        training.setting = {"seed": options.seed, "shuffle_block": options.shuffle_block}
        if source.channel.distribution == SHARDED:  # Each host has images of its own.
            training.setting["hosts"] = len(environment.hosts)
        if loop.restore(training, source, checkpoints):
            job.say(f"resuming from {place}: {training.epoch} epoch(s) and {training.score.samples} image(s) are done")
        while training.epoch < options.epochs and _epoch(job):
            loop.save(training, source, checkpoints)
        tested = _evaluate(job, "test")
        if stopped := tested is None:
            loop.save(training, source, checkpoints)
        checkpoints.wait()
        if stopped:
            images = sum(loop.gather(training.score.samples))
            inside = f"in epoch {training.epoch + 1}, after {images} image(s) of it"
            when = inside if training.epoch < options.epochs else "after the last epoch"
            job.say(f"stopped {when}; a checkpoint in {place} is written")
        elif tested:
            job.say(_line(tested))
        _write(job, tested or {})
        return stopped


def _prepare(
    options: Options, environment: Environment, stop: loop.StopRequest, device: torch.device, say: Callable[[str], None]
) -> _Job:
    if options.num_threads is not None:
        torch.set_num_threads(options.num_threads)
    torch.manual_seed(options.seed)
    form = ImageForm(options.image_mode, options.image_size)
    in_order = Loading(options.batch_size, max(1, options.num_workers))  # In a DataLoader, 0 means no further workers.
    block = options.shuffle_block
    shuffled = replace(in_order, seed=options.seed, block=block) if block else in_order
    channels = {}
    for role in ("train", "validation", "test"):
        name = getattr(options, f"{role}_channel") or (role if role in environment.channels else None)
        if name is not None:
            labels = read_labels(environment, getattr(options, f"{role}_lst"))
            channels[role] = ImageChannel(environment, name, labels, form, shuffled if role == "train" else in_order)
    if options.compare_channel is not None:
        find_channel(environment, options.compare_channel)
    known = channels["train"].labels
    for channel in channels.values():
        if channel.labels.classes > known.classes:
            raise ChannelError(
                f"the list {channel.labels.channel!r} has class {channel.labels.classes - 1}, but {known.channel!r} "
                f"has none above {known.classes - 1}; correct the lists"
            )
    model = build_model(options.model, form.channels, known.classes)
    say(
        f"{known.classes} classes, {sum(map(torch.numel, model.parameters())):,} parameters, {len(loop.gather(None))} rank(s)"
    )
    training = loop.make_training(model, options.learning_rate, device, stop)
    torch.manual_seed(options.seed + 1 + loop.rank())  # Each rank needs other dropouts.
    return _Job(options, environment, channels, training, say)


def _epoch(job: _Job) -> bool:
    """Train the rest of an epoch; False if it was stopped."""
    training, channel, begin = job.training, job.channels["train"], time.monotonic()
    loop.train_epoch(training, channel.batches(training.epoch), _reporter(job))
    if training.stop.by_any_rank():
        return False
    _check(job, channel)
    trained = sum(loop.gather(training.score), loop.Score()).means("train")
    metrics = {"epoch": training.epoch + 1, "train_loss": trained["train_loss"]}
    if job.compared is None and job.options.compare_channel is not None:
        job.compared = _read(job, job.options.compare_channel)
        if training.stop.by_any_rank():
            return False
        _compare(job, job.options.compare_channel, job.compared.last)
    validated = _evaluate(job, "validation")
    if validated is None:
        return False
    metrics |= validated
    loop.finish_epoch(training, metrics)
    job.say(f"{_line(metrics)} seconds={time.monotonic() - begin:.1f}")
    return True


def _evaluate(job: _Job, role: str) -> dict[str, float] | None:
    """Return the metrics of a channel, empty if the job has no such channel; None if the training was stopped."""
    if job.training.stop.by_any_rank():
        return None
    if role not in job.channels:
        return {}
    channel = job.channels[role]
    score = loop.evaluate(job.training, channel.batches(job.training.epoch))
    if job.training.stop.by_any_rank():
        return None
    _check(job, channel)
    return sum(loop.gather(score), loop.Score()).means(role)


def _check(job: _Job, channel: ImageChannel) -> None:
    """Check that all ranks together saw each image of the list once."""
    seen = chain.from_iterable(loop.gather(channel.statistics.seen))
    check_seen(channel.channel.name, channel.labels, seen, whole=job.options.lines_without_image == "error")


def _read(job: _Job, name: str) -> PassStatistics:
    """Count this rank's shard of a channel, until its end or a stop request."""
    statistics, begin = PassStatistics(passes=1), time.perf_counter()
    for sample in open_channel(name, environment=job.environment):
        statistics.last.add(sample)
        if job.training.stop.made:
            break
    statistics.samples, statistics.seconds = statistics.last.count, time.perf_counter() - begin
    return statistics


def _compare(job: _Job, name: str, read: Tally) -> None:
    train = job.channels["train"]
    one, other = (sum(loop.gather(tally), Tally()) for tally in (train.statistics.last, read))
    if (one.count, one.digest) != (other.count, other.digest):
        raise ChannelError(
            f"channel {name!r} ({other.count:,} samples, digest {other.hex[:16]}) does not hold the same samples as "
            f"{train.channel.name!r} ({one.count:,}, {one.hex[:16]}); correct one of their s3_uri, or remove compare-channel"
        )
    job.say(f"{name} holds the same {other.count:,} samples as {train.channel.name}: digest {other.hex[:16]}")


def _reporter(job: _Job) -> Callable[[], None]:
    """Return a function that prints the progress of a long epoch."""
    begin = reported = time.monotonic()
    before = job.training.score.samples

    def report() -> None:
        nonlocal reported
        now, score = time.monotonic(), job.training.score
        if now - reported > REPORT_SECONDS:
            reported = now
            rate, loss = (score.samples - before) / (now - begin), score.loss / score.samples
            job.say(f"epoch {job.training.epoch + 1}: {score.samples:,} images so far, {rate:,.0f}/s, loss {loss:.4f}")

    return report


def _write(job: _Job, tested: Mapping[str, float]) -> None:
    """Write the model and the metrics, and print what was read of each channel. A collective call."""
    table = _table(job)
    if loop.rank() != 0:
        return
    options, training, environment = job.options, job.training, job.environment
    save_checkpoint(training.network.state_dict(), environment.model_dir / "model.pt")
    description = {
        "model": options.model or "sagemaker_channels.image_training.model:small_cnn",
        "num_classes": job.channels["train"].labels.classes,
        "image_mode": options.image_mode,
        "image_size": options.image_size,
        "epochs": training.epoch,
    }
    environment.output_data_dir.mkdir(parents=True, exist_ok=True)
    metrics = {"epochs": training.history, "test": tested, "channels": table}
    for file, content in (
        (environment.model_dir / "model.json", description),
        (environment.output_data_dir / "metrics.json", metrics),
    ):
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    job.say("samples of each channel (images per second include training and testing)")
    job.say(f"  {'channel':20} {'mode':12} {'samples':>9} {'bytes':>13} {'passes':>6} {'images/s':>9}")
    for row in table:
        rate = f"{row['rate']:,.0f}" if row["rate"] else ""
        job.say(
            f"  {row['channel']:20} {row['mode']:12} {row['samples']:9,} {row['bytes']:13,} {row['passes']:6} {rate:>9}"
        )


def _table(job: _Job) -> list[dict[str, Any]]:
    """Return a row per channel, over all ranks: samples and bytes of its last pass, number of passes, samples per second."""
    passes = {each.channel.name: each.statistics for each in job.channels.values()}
    if job.compared is not None and job.options.compare_channel is not None:
        passes[job.options.compare_channel] = job.compared
    rows = []
    for name, statistics in passes.items():
        every = loop.gather(statistics)
        last = sum((each.last for each in every), Tally())
        seconds = max(each.seconds for each in every)
        rate = sum(each.samples for each in every) / seconds if seconds else 0
        rows.append(_row(job, name, last.count, last.bytes, statistics.passes) | {"rate": round(rate, 1)})
    lists: dict[str, Labels] = {each.labels.channel: each.labels for each in job.channels.values()}
    return rows + [_row(job, name, len(labels.lines), labels.size, 1) for name, labels in lists.items()]


def _row(job: _Job, name: str, samples: int, size: int, passes: int) -> dict[str, Any]:
    mode = job.environment.channels[name].mode
    return {"channel": name, "mode": mode, "samples": samples, "bytes": size, "passes": passes, "rate": None}


def _line(metrics: Mapping[str, float]) -> str:
    """Return the metrics in the form that the specs' metric_definitions match."""
    return " ".join(f"{name}={value}" if name == "epoch" else f"{name}={value:.4f}" for name, value in metrics.items())
