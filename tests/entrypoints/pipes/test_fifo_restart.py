"""Which FIFO an epoch is read from: in a new container, after a restart, and after a job that was killed."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from forked import next_line, printed
from pipe_feeder import Feed
from pipe_jobs import COUNT, epoch_of, job, lines_of, words
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.sources import fifo, pipe_record
from sagemaker_channels.torch_data.dataset import ChannelDataset


@pytest.fixture
def fed_root(root: Path, feed: Feed) -> Path:
    """The root, with a feeder of its channel `lines`."""
    feed("lines", lines_of)
    return root


def test_first_requested_epoch_is_read_from_fifo_0(fed_root: Path) -> None:
    environment = load_environment(fed_root, {})
    for epoch in (3, 4, 5):
        assert words(open_channel("lines", epoch, environment=environment)) == epoch_of(epoch - 3)
    for epoch in (2, 5):
        with pytest.raises(ChannelError, match=rf"epoch {epoch} was read already \(this host's reader 0 has asked for"):
            next(open_channel("lines", epoch, environment=environment))
    assert words(open_channel("lines", 6, environment=environment)) == epoch_of(3)


def test_record_of_another_release_is_replaced(fed_root: Path) -> None:
    environment = load_environment(fed_root, {})
    pipe_record.store(environment.channels["lines"], readers=[{"name": "0", "epoch": 7, "ranks": 2}])
    assert words(open_channel("lines", 3, environment=environment)) == epoch_of(0)


def test_fifos_made_beforehand_are_read_by_their_numbers(root: Path) -> None:
    """SageMaker does not do this, but a user who tries a script by hand may."""
    environment = load_environment(root, {})
    for number in range(3):
        path = root / contract.DATA_DIR / contract.fifo_name("lines", number)
        os.mkfifo(path)
        threading.Thread(target=path.write_bytes, args=(lines_of(number),), daemon=True).start()
    for epoch in range(3):
        assert words(open_channel("lines", epoch, environment=environment)) == epoch_of(epoch)


def test_read_only_folder_keeps_the_record_in_the_temporary_folder(
    fed_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fed_root / contract.DATA_DIR / contract.epochs_name("lines")).mkdir()  # stops root, too
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    environment = load_environment(fed_root, {})
    for epoch in (3, 4):
        assert words(open_channel("lines", epoch, environment=environment)) == epoch_of(epoch - 3)
    with pytest.raises(ChannelError, match=r"epoch 2 was read already \(this host's reader 0 has asked for epoch 4\)"):
        next(open_channel("lines", 2, environment=environment))
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    assert not [path for path in (fed_root / contract.DATA_DIR).iterdir() if path.is_file()]


def test_disk_that_fills_moves_the_record_or_is_named(
    fed_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the epoch before stayed, so that a reader waited ten minutes for itself."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    environment = load_environment(fed_root, {})
    record = fed_root / contract.DATA_DIR / contract.epochs_name("lines")
    for epoch in (0, 1):
        assert words(open_channel("lines", epoch, environment=environment)) == epoch_of(epoch)
        record.with_name(f"{record.name}.{os.getpid()}").mkdir(exist_ok=True)  # No other one can be written.
    [moved] = (tmp_path / "temporary").iterdir()
    moved.with_name(f"{moved.name}.{os.getpid()}").mkdir()
    with pytest.raises(
        ChannelError, match=f"no room for the record of channel 'lines' in {record.parent} and .*/temporary"
    ):
        next(open_channel("lines", 2, environment=environment))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_of_later_epochs_read_the_next_fifos(fed_root: Path, workers: int) -> None:
    dataset = ChannelDataset("lines", environment=load_environment(fed_root, {}))
    loader = DataLoader(dataset, 50, num_workers=workers, collate_fn=list)
    for epoch in (3, 4):
        dataset.set_epoch(epoch)
        assert sorted(words(sample for batch in loader for sample in batch)) == epoch_of(epoch - 3)
    loader = DataLoader(dataset, 50, collate_fn=list)  # in this process, after that
    dataset.set_epoch(5)
    assert sorted(words(sample for batch in loader for sample in batch)) == epoch_of(2)


def test_fifo_written_and_removed_between_two_checks_is_read(root: Path) -> None:
    first, second = (root / contract.DATA_DIR / contract.fifo_name("lines", number) for number in (0, 1))
    os.mkfifo(first)

    class Interrupted(fifo.PendingFifo):
        """Between its first look for bytes and its look for FIFOs, a feeder writes all and makes the next one."""

        waits = 0

        def wait(self, seconds: float) -> bool:
            seen = super().wait(seconds)
            self.waits += self.descriptor >= 0
            if self.waits == 2 and first.exists():
                with first.open("wb") as stream:
                    stream.write(lines_of(0))
                first.unlink()
                os.mkfifo(second)
            return seen

    pending = Interrupted(load_environment(root, {}).channels["lines"], 5)
    descriptors = (pending.try_open() for _ in range(3))
    with open(next(found for found in descriptors if found is not None), "rb") as stream:  # noqa: PTH123 - a descriptor
        assert stream.read() == lines_of(0)
    pending.close()


@pytest.mark.parametrize("moment", ["after the listing", "before the open"])
def test_feeder_that_moves_on_while_a_restarted_job_looks_is_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """SageMaker's feeder notices at any moment that the readers of the last attempt have ended."""
    channel = load_environment(root, {}).channels["lines"]
    pipe_record.store(channel, ahead=0, last=1, owners={str(os.getpid()): "a process that has ended"})
    old, new = (channel.path.with_name(contract.fifo_name("lines", number)) for number in (2, 3))
    os.mkfifo(old)

    def move_on() -> None:
        if old.exists():
            old.unlink()
            os.mkfifo(new)
            threading.Thread(target=new.write_bytes, args=(lines_of(3),), daemon=True).start()

    list_folder, open_file = Path.iterdir, os.open

    def listed(folder: Path) -> list[Path]:
        found = list(list_folder(folder))
        move_on()
        return found

    def opened(path: Any, *options: Any, **more: Any) -> int:
        if path == old:
            move_on()
        return open_file(path, *options, **more)

    if moment == "after the listing":
        monkeypatch.setattr(Path, "iterdir", listed)
    else:
        monkeypatch.setattr(os, "open", opened)
    assert words(open_channel("lines", 2, environment=load_environment(root, {}))) == epoch_of(3)
    assert not old.exists()


READ = """
dataset = ChannelDataset("lines", transform=words)
for epoch in json.loads(sys.argv[1]):
    dataset.set_epoch(epoch)
    loader = DataLoader(dataset, 10, num_workers=int(sys.argv[2]), collate_fn=list)
    report(sorted(sample for batch in loader for sample in batch))
"""
STOPPED = """
dataset = ChannelDataset("lines", transform=words)
batches = iter(DataLoader(dataset, 10, num_workers=int(sys.argv[1]), collate_fn=list))
next(batches)
report([os.getpid(), *(worker.pid for worker in getattr(batches, "_workers", ()))])
signal.pause()
"""


@pytest.mark.parametrize("workers", [0, 3])
def test_job_after_a_killed_one_reads_the_next_fifo(fed_root: Path, workers: int) -> None:
    with job(fed_root, STOPPED, str(workers)) as first:
        next_line(first)
        first.kill()
    again = printed(job(fed_root, READ, "[2, 3]", str(workers)))
    assert [sorted({fifo for fifo, _ in epoch}) for epoch in again] in ([[1], [2]], [[2], [3]])  # one was read ahead
    assert all(len(epoch) == COUNT for epoch in again)


def test_job_after_a_killed_one_whose_workers_still_run_reads_the_next_fifo(fed_root: Path) -> None:
    """They notice 5 s later, and until then keep the FIFO open."""
    with job(fed_root, STOPPED, "3") as first:
        next_line(first)
        first.kill()
    [epoch] = printed(job(fed_root, READ, "[7]", "3"))
    assert len(epoch) == COUNT
