"""Pipes with few samples or none, and trainings that are interrupted or killed, leave no process behind."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from forked import TORCH, Forked
from patience import PATIENCE, in_threads, wait_for
from pipe_feeder import Feed
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Placement
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import recordio
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.sources import ring
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader


@pytest.mark.parametrize("reading", [{}, {"seed": 1, "block": 3}], ids=["in order", "shuffled"])
@pytest.mark.parametrize("lines", [0, 1, 2])
def test_fewer_samples_than_workers_are_read_once(root: Path, feed: Feed, lines: int, reading: dict[str, Any]) -> None:
    feed("lines", lambda epoch: b"".join(b"%d\n" % number for number in range(lines)))
    dataset = ChannelDataset("lines", environment=load_environment(root, {}), **reading)
    loaders: list[Any] = [
        DataLoader(dataset, batch_size=2, num_workers=4, collate_fn=list),
        DataLoader(dataset, batch_size=2, collate_fn=list),
        ThreadLoader(dataset, 2, num_workers=4, collate_fn=list),
    ]
    for epoch, loader in enumerate(loaders):
        dataset.set_epoch(epoch)
        found = sorted(bytes(sample["data"]) for batch in loader for sample in batch)
        assert found == [b"%d" % number for number in range(lines)]


def several_of(sample: dict[str, Any]) -> Iterator[Any]:
    yield from [sample] * (int(sample["data"]) % 2)


@pytest.mark.parametrize(
    ("how", "what"),
    [({"transform": several_of}, "a transform that makes several"), ({}, "a filter")],
    ids=["transform", "filter"],
)
def test_steps_that_change_the_number_of_samples_need_one_reader(
    root: Path, feed: Feed, how: dict[str, Any], what: str
) -> None:
    """With two readers, one whose every sample is dropped would wait for bytes until the other one has read its own."""
    feed("lines", lambda epoch: b"".join(b"%d\n" % number for number in range(10)))
    dataset = ChannelDataset("lines", environment=load_environment(root, {}), **how)
    dataset = dataset if how else dataset.filter(lambda sample: int(sample["data"]) % 2)
    with pytest.raises(ChannelError, match=f"{what}.* could let one wait for another forever; use one rank"):
        list(DataLoader(dataset, 2, num_workers=2, collate_fn=list))
    found = [int(sample["data"]) for batch in ThreadLoader(dataset, 2, collate_fn=list) for sample in batch]
    assert found == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("name", ["tar", "images", "wrapped"])
def test_empty_stream_yields_nothing_and_warns(
    root: Path, feed: Feed, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    feed(name, lambda epoch: b"")
    environment = load_environment(root, {})
    assert list(open_channel(name, environment=environment)) == []
    dataset = ChannelDataset(name, environment=environment)
    dataset.set_epoch(1)
    assert list(DataLoader(dataset, num_workers=2)) == []
    warnings = [
        line for line in capfd.readouterr().err.splitlines() if "ended without a byte: this host has no samples" in line
    ]
    assert [f"{name}_{epoch} ended" in line for epoch, line in enumerate(warnings[:2])] == [True, True]


TRAINING = """
    import sys, time, warnings
    warnings.simplefilter("ignore")
    from torch.utils.data import DataLoader
    from sagemaker_channels.torch_data.dataset import ChannelDataset
    from sagemaker_channels.torch_data.loader import ThreadLoader

    dataset = ChannelDataset("lines")
    if sys.argv[1] == "shuffled":
        dataset = ChannelDataset("lines", seed=1, block=50)
    if sys.argv[1] in ("threads", "shuffled"):
        loader = ThreadLoader(dataset, 20, num_workers=2, collate_fn=list)
    else:
        loader = DataLoader(dataset, batch_size=20, num_workers=2, collate_fn=list)
    for number, batch in enumerate(loader):
        if number == 5:
            sys.stdout.write("begun\\n")
            sys.stdout.flush()
            if sys.argv[1] == "workers":
                # A step, for the interrupt to come in: in DataLoader's own code it can come just after the entry of
                # a `with` has acquired a queue's lock (python/cpython#74174), for which Python's exit then waits.
                time.sleep(600)
        if number > 5:
            time.sleep(0.02)
"""


def begun(root: Path, loader: str) -> Forked:
    """A training of its own, with a terminal's group of processes."""
    library = str(Path(__file__).parents[3] / "entrypoints")
    environ = {**os.environ, "PYTHONPATH": library, "SAGEMAKER_BASE_DIR": str(root)}
    return Forked(TORCH, ["-c", textwrap.dedent(TRAINING), loader], environ=environ)


@pytest.mark.parametrize("loader", ["workers", "threads"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_training_leaves_no_process(
    root: Path, feed: Feed, loader: str, end: signal.Signals
) -> None:
    feeder = feed("lines", lambda epoch: b"".join(b"%d\n" % number for number in range(300_000)))
    with begun(root, loader) as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "begun\n"
        # Ctrl-C goes to all of a terminal's processes; who kills, kills one.
        (os.killpg if end is signal.SIGINT else os.kill)(training.pid, end)
        _, said = training.communicate(timeout=PATIENCE)  # which is the end of the workers, too
    assert training.returncode == -end
    assert said.count("Traceback") == (1 if end is signal.SIGINT else 0), said
    wait_for(lambda: 1 in feeder.started or 0 in feeder.ended)  # the FIFO was closed, the feeder not left waiting


@pytest.mark.parametrize("loader", ["threads", "shuffled"])
def test_silent_feeder_does_not_delay_ctrl_c(root: Path, loader: str) -> None:
    """Threads may wait ten minutes for its next bytes; Ctrl-C does not wait for them."""
    fifo = root / contract.DATA_DIR / contract.fifo_name("lines", 0)
    os.mkfifo(fifo)
    with begun(root, loader) as training, fifo.open("wb", buffering=0) as feeder:
        feeder.write(b"".join(b"%d\n" % number for number in range(330)))
        assert training.stdout is not None
        assert training.stdout.readline() == "begun\n"
        os.killpg(training.pid, signal.SIGINT)
        training.communicate(timeout=PATIENCE)
    assert training.returncode == -signal.SIGINT


@pytest.mark.parametrize("by", [DataLoader, ThreadLoader])
def test_rank_that_skips_more_bytes_than_the_ring_has_does_not_wait_for_the_other_forever(
    root: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch, by: Any
) -> None:
    """Ranks in lockstep: while one reads on in place of what it has skipped, the other one waits for it in a collective."""
    count, damaged = 240, 80
    records = BytesIO()
    recordio.write(records, [b"%d " % number + bytes(100_000) for number in range(count)])
    feed("images", lambda epoch: records.getvalue())
    monkeypatch.setattr(ring, "GROW_SECONDS", 0.1)
    step = threading.Barrier(2)
    found: list[list[int]] = [[], []]

    def decoded(sample: dict[str, Any]) -> int:
        number = int(sample["data"].split()[0])
        if number % 2 == 0 and number < 2 * damaged:
            raise ValueError("cannot be decoded")
        return number

    def train(rank: int) -> None:
        dataset = ChannelDataset(
            "images", format="recordio", transform=decoded, skip_damaged=damaged, environment=load_environment(root, {})
        )
        monkeypatch.setattr(dataset, "_known_placement", Placement(rank, 2, rank, 2))
        for batch in by(dataset, batch_size=4, collate_fn=list):
            found[rank] += batch  # before the wait, in which the other rank's end may break the step
            step.wait(PATIENCE)  # as an all-reduce does
        step.abort()

    def run(rank: int) -> None:
        with suppress(threading.BrokenBarrierError):
            train(rank)

    in_threads(run, 2)
    assert len(found[0]) == count // 2 - damaged
    assert len(found[1]) in (len(found[0]), len(found[0]) + 4)
