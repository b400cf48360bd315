"""A job that goes on finds its Pipes' FIFOs counted from 0 again, in a new container or in this one: it gets what it asks for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from entrypoints import contract
from entrypoints.errors import ChannelError
from entrypoints.job.environment import load_environment
from entrypoints.job.process_identity import Processes
from entrypoints.readers import fifo
from entrypoints.samples.channel import open_channel
from entrypoints.torch_data.dataset import ChannelDataset
from entrypoints.torch_data.loader import ThreadLoader
from pipe_feeder import Feeder, brokers, make_root, wait_for

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.timeout(180),
]

COUNT = 600  # lines of an epoch: the number of its FIFO, and the line's


def lines_of(fifo: int) -> bytes:
    return b"".join(b"%d %d\n" % (fifo, number) for number in range(COUNT))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    make_root(tmp_path)
    feeder = Feeder(tmp_path, "lines", lines_of)
    yield tmp_path
    for pid in brokers(tmp_path):
        os.kill(pid, signal.SIGKILL)
    feeder.stop()


def words(samples: Any) -> list[list[int]]:
    return [list(map(int, sample["data"].split())) for sample in samples]


def epoch_of(fifo: int) -> list[list[int]]:
    return [[fifo, number] for number in range(COUNT)]


def job(root: Path, script: str, *arguments: str, ranks: int = 0) -> subprocess.Popen[str]:
    """A training of its own; its `told` prints a line of JSON."""
    begin = """
        import json, os, pickle, signal, sys, warnings
        warnings.simplefilter("ignore")
        from pathlib import Path
        from torch.utils.data import DataLoader
        from torchdata.stateful_dataloader import StatefulDataLoader
        from entrypoints.order.sampling import Reading
        from entrypoints.torch_data.dataset import ChannelDataset

        def told(what):
            sys.stdout.write(json.dumps(what) + "\\n")
            sys.stdout.flush()

        def words(sample):
            return list(map(int, sample["data"].split()))
    """
    file = root / f"script{len(list(root.glob('script*')))}.py"
    file.write_text(textwrap.dedent(begin) + textwrap.dedent(script))
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "SAGEMAKER_BASE_DIR": str(root)}
    environ |= {"OMP_NUM_THREADS": "1", contract.FIFO_WAIT_VARIABLE: "20"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks else []
    return subprocess.Popen(
        [sys.executable, *torchrun, str(file), *arguments], env=environ, stdout=subprocess.PIPE, text=True
    )


def end_of(process: subprocess.Popen[str]) -> list[Any]:
    """What it has told, in the order of its lines."""
    with process:
        out, _ = process.communicate(timeout=90)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


def test_the_first_epoch_asked_for_is_fifo_0(root: Path) -> None:
    environment = load_environment(root, {})
    for epoch in (3, 4, 5):
        assert words(open_channel("lines", epoch, environment=environment)) == epoch_of(epoch - 3)
    with pytest.raises(ChannelError, match=r"epoch 2 was read already \(this job began with epoch 3\)"):
        next(open_channel("lines", 2, environment=environment))
    wait_for((root / contract.DATA_DIR / "lines_3").exists)
    with pytest.raises(ChannelError, match=r"epoch 5 was read already \(the FIFO of epoch 6 exists\)"):
        next(open_channel("lines", 5, environment=environment))
    assert words(open_channel("lines", 6, environment=environment)) == epoch_of(3)


def test_fifos_that_were_all_made_beforehand_are_those_of_their_numbers(tmp_path: Path) -> None:
    """Not SageMaker's way, but that of whoever tries a script by hand."""
    make_root(tmp_path)
    environment = load_environment(tmp_path, {})
    for number in range(3):
        path = tmp_path / contract.DATA_DIR / contract.fifo_name("lines", number)
        os.mkfifo(path)
        threading.Thread(target=path.write_bytes, args=(lines_of(number),), daemon=True).start()
    for epoch in range(3):
        assert words(open_channel("lines", epoch, environment=environment)) == epoch_of(epoch)


def test_a_fifo_that_stays_is_not_waited_for_long_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo, "REREAD_SECONDS", 1.0)
    make_root(tmp_path)
    environment = load_environment(tmp_path, {})
    path = tmp_path / contract.DATA_DIR / contract.fifo_name("lines", 0)
    os.mkfifo(path)
    for _ in range(2):  # the second by somebody who feeds it by hand
        threading.Thread(target=path.write_bytes, args=(lines_of(0),), daemon=True).start()
        assert words(open_channel("lines", 0, environment=environment)) == epoch_of(0)
    with pytest.raises(
        ChannelError, match=r"epoch 0 was read already \(no feeder has written to .* again within 1 s\)"
    ):
        next(open_channel("lines", 0, environment=environment))


def test_where_nobody_may_write_beside_the_fifos(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / contract.DATA_DIR / contract.epochs_name("lines")).mkdir()  # stops root, too
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    environment = load_environment(root, {})
    for epoch in (3, 4):
        assert words(open_channel("lines", epoch, environment=environment)) == epoch_of(epoch - 3)
    with pytest.raises(ChannelError, match=r"epoch 2 was read already \(this job began with epoch 3\)"):
        next(open_channel("lines", 2, environment=environment))
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    assert not [path for path in (root / contract.DATA_DIR).iterdir() if path.is_file()]


@pytest.mark.parametrize(("workers", "start"), [(1, "fork"), (2, "fork"), (2, "spawn")])
def test_workers_of_every_epoch_know_where_the_job_began(root: Path, workers: int, start: str) -> None:
    dataset = ChannelDataset("lines", environment=load_environment(root, {}))
    loader = DataLoader(dataset, 50, num_workers=workers, collate_fn=list, multiprocessing_context=start)
    for epoch in (3, 4):
        dataset.set_epoch(epoch)
        assert sorted(words(sample for batch in loader for sample in batch)) == epoch_of(epoch - 3)
    loader = DataLoader(dataset, 50, collate_fn=list)  # in this process, after that
    dataset.set_epoch(5)
    assert sorted(words(sample for batch in loader for sample in batch)) == epoch_of(2)


def test_fifo_that_is_written_and_removed_between_two_looks_is_not_passed_over(tmp_path: Path) -> None:
    make_root(tmp_path)
    first, second = (tmp_path / contract.DATA_DIR / contract.fifo_name("lines", number) for number in (0, 1))
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

    pending = Interrupted(load_environment(tmp_path, {}).channels["lines"], 5, Processes([os.getpid()]))
    descriptors = (pending.try_open() for _ in range(3))
    with open(next(found for found in descriptors if found is not None), "rb") as stream:  # noqa: PTH123 - a descriptor
        assert stream.read() == lines_of(0)
    pending.close()


READ = """
dataset = ChannelDataset("lines", transform=words)
for epoch in json.loads(sys.argv[1]):
    dataset.set_epoch(epoch)
    loader = DataLoader(dataset, 10, num_workers=int(sys.argv[2]), collate_fn=list)
    told(sorted(sample for batch in loader for sample in batch))
"""
STOPPED = """
dataset = ChannelDataset("lines", transform=words)
batches = iter(DataLoader(dataset, 10, num_workers=int(sys.argv[1]), collate_fn=list))
next(batches)
told([os.getpid(), *(worker.pid for worker in getattr(batches, "_workers", ()))])
signal.pause()
"""


def told_by(process: subprocess.Popen[str]) -> Any:
    """Its next line."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("workers", [0, 3])
def test_a_job_that_was_killed_goes_on_with_the_next_fifo(root: Path, workers: int) -> None:
    with job(root, STOPPED, str(workers)) as first:
        told_by(first)
        first.kill()
    again = end_of(job(root, READ, "[2, 3]", str(workers)))
    assert [sorted({fifo for fifo, _ in epoch}) for epoch in again] in ([[1], [2]], [[2], [3]])  # one was read ahead
    assert all(len(epoch) == COUNT for epoch in again)


def test_workers_that_outlive_their_process_do_not_hold_the_next_jobs_pipe(root: Path) -> None:
    """They notice 5 s later; the broker ended only then, and told the next job that its epoch was read already."""
    with job(root, STOPPED, "3") as first:
        _, *workers = told_by(first)
        first.kill()
        first.wait()
        wait_for(lambda: not brokers(root))
        for worker in workers:
            os.kill(worker, 0)  # still there
            os.kill(worker, signal.SIGKILL)


def test_a_broker_that_has_not_noticed_gives_way(root: Path) -> None:
    with job(root, STOPPED, "3") as first:
        told_by(first)
        [old] = brokers(root)
        os.kill(old, signal.SIGSTOP)
        first.kill()
    second = job(root, READ, "[7]", "3")
    children = Path(f"/proc/{second.pid}/task/{second.pid}/children")
    wait_for(lambda: len(children.read_text().split()) >= 3)  # its workers, which find the old one
    os.kill(old, signal.SIGCONT)
    [epoch] = end_of(second)
    assert len(epoch) == COUNT


GO_ON = """
dataset = ChannelDataset("lines", transform=words, reading=Reading(seed=1, block=50) if sys.argv[1] == "shuffled" else None)
loader = StatefulDataLoader(dataset, 10, num_workers=int(sys.argv[2]), collate_fn=list)
file = Path(sys.argv[3] + os.environ.get("RANK", "0"))
if file.exists():
    loader.load_state_dict(pickle.loads(file.read_bytes()))
else:
    dataset.set_epoch(int(sys.argv[4]))
given = []
for number, batch in enumerate(loader):
    given += batch
    if not file.exists() and number + 1 == int(sys.argv[5]):
        break
told(given)
if not file.exists():
    file.write_bytes(pickle.dumps(loader.state_dict()))
else:
    dataset.set_epoch(int(sys.argv[4]) + 1)
    told([sample for batch in loader for sample in batch])
"""


def in_two_containers(root: Path, tmp_path: Path, *arguments: str, ranks: int = 0) -> tuple[list[Any], list[Any]]:
    """What GO_ON tells at `root`, and then in a container whose FIFOs are counted anew."""
    first = end_of(job(root, GO_ON, *arguments, ranks=ranks))
    other = tmp_path / "again"
    other.mkdir()
    make_root(other)
    feeder = Feeder(other, "lines", lines_of)
    second = end_of(job(other, GO_ON, *arguments, ranks=ranks))
    wait_for(lambda: not brokers(other))
    feeder.stop()
    return first, second


@pytest.mark.parametrize(("workers", "how"), [(0, "plain"), (3, "plain"), (3, "shuffled")])
def test_a_state_in_the_middle_of_a_later_epoch_goes_on_in_a_new_container(
    tmp_path: Path, root: Path, workers: int, how: str
) -> None:
    [first], [rest, following] = in_two_containers(root, tmp_path, how, str(workers), str(tmp_path / "state"), "3", "7")
    assert len(first) == 70
    assert sorted(first + rest) == epoch_of(0)
    assert sorted(following) == epoch_of(1)


@pytest.mark.parametrize("workers", [0, 3])
def test_the_middle_of_a_pipe_that_sagemaker_shuffles_is_no_place_to_go_on(
    tmp_path: Path, root: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{contract.SHUFFLED_CHANNELS_VARIABLE}0", '["lines"]')
    [first], [again, following] = in_two_containers(
        root, tmp_path, "plain", str(workers), str(tmp_path / "state"), "3", "7"
    )
    assert len(first) == 70
    assert sorted(again) == epoch_of(0)
    assert sorted(following) == epoch_of(1)


def test_threads_do_not_go_on_there_either(root: Path) -> None:
    environment = load_environment(root, {f"{contract.SHUFFLED_CHANNELS_VARIABLE}0": '["lines"]'})

    def loader(epoch: int | None) -> ThreadLoader:
        dataset = ChannelDataset("lines", environment=environment)
        if epoch is not None:
            dataset.set_epoch(epoch)
        return ThreadLoader(dataset, 50, threads=2, collate=words)

    middle, whole = loader(3), loader(4)
    given = [batch for batch, _ in zip(middle, range(7), strict=False)]
    assert len(given) == 7
    assert middle.state_dict() == {"epoch": 3}
    assert sorted(line for batch in whole for line in batch) == epoch_of(
        1
    )  # in this container it is the next FIFO that comes
    state = json.loads(json.dumps(whole.state_dict()))
    after = loader(None)
    after.load_state_dict(state)
    assert after.dataset.epoch == 5  # a finished epoch is finished here, too
    after.load_state_dict(middle.state_dict())
    assert after.dataset.epoch == 3


def test_ranks_with_workers_go_on_in_a_later_epoch(tmp_path: Path, root: Path) -> None:
    first, parts = in_two_containers(root, tmp_path, "plain", "2", str(tmp_path / "state"), "3", "5", ranks=2)
    assert [len(part) for part in first] == [50, 50]
    rest = [sample for part in parts for sample in part if sample[0] == 0]
    assert sorted([*first[0], *first[1], *rest]) == epoch_of(0)
    assert sorted(sample for part in parts for sample in part if sample[0] == 1) == epoch_of(1)
