"""Pipes with few samples or none, and trainings that are interrupted or killed, leave no process behind."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from patience import PATIENCE, wait_for
from pipe_feeder import Feed, brokers, in_threads
from sagemaker_channels import contract
from sagemaker_channels.broker import protocol
from sagemaker_channels.broker.coordinator import Coordinator
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.order.sampling import Reading
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.samples.channel import open_channel
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]


@pytest.mark.parametrize("reading", [None, Reading(seed=1, block=3)], ids=["in order", "shuffled"])
@pytest.mark.parametrize("lines", [0, 1, 2])
def test_fewer_samples_than_workers_are_read_once(root: Path, feed: Feed, lines: int, reading: Reading | None) -> None:
    feed("lines", lambda epoch: b"".join(b"%d\n" % number for number in range(lines)))
    dataset = ChannelDataset("lines", environment=load_environment(root, {}), reading=reading)
    loaders: list[Any] = [
        DataLoader(dataset, batch_size=2, num_workers=4, collate_fn=list),
        DataLoader(dataset, batch_size=2, collate_fn=list),
        ThreadLoader(dataset, 2, threads=4, collate=list),
    ]
    for epoch, loader in enumerate(loaders):
        dataset.set_epoch(epoch)
        found = sorted(bytes(sample["data"]) for batch in loader for sample in batch)
        assert found == [b"%d" % number for number in range(lines)]


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
    from sagemaker_channels.order.sampling import Reading
    from sagemaker_channels.torch_data.dataset import ChannelDataset
    from sagemaker_channels.torch_data.loader import ThreadLoader

    dataset = ChannelDataset("lines")
    if sys.argv[1] == "shuffled":
        dataset = ChannelDataset("lines", reading=Reading(seed=1, block=50))
    if sys.argv[1] in ("threads", "shuffled"):
        loader = ThreadLoader(dataset, 20, threads=2, collate=list)
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


def begun(root: Path, loader: str) -> subprocess.Popen[str]:
    """A training of its own, with a terminal's group of processes."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3] / "entrypoints"),
        "SAGEMAKER_BASE_DIR": str(root),
    }
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(TRAINING), loader],
        env={**environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def request(root: Path, epoch: int, readers: int = 2, form: str = "lines") -> bytes:
    """What the first of some readers asks for."""
    path = str(root / contract.DATA_DIR / "lines")
    shard = Shard(0, readers, readers)
    return protocol.Request("lines", path, "None", form, epoch, shard, 20.0, 0, 0, os.getpid(), "", False).encode()


@pytest.fixture
def coordinator(root: Path) -> Iterator[tuple[Coordinator, list[socket.socket]]]:
    """A coordinator and two readers that are connected to it."""
    with ExitStack() as stack:
        listener, *readers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        listener.bind(f"\0test-{root}")
        listener.listen()
        folder = os.open(root / contract.DATA_DIR, os.O_RDONLY)
        stack.callback(os.close, folder)
        coordinator = Coordinator(listener, folder)
        for reader in readers:
            reader.connect(listener.getsockname())
            coordinator.poll(1)
        yield coordinator, readers
        for reader in readers:
            reader.close()
        coordinator.poll(0)  # closes its ends


def test_reader_that_leaves_while_its_next_epoch_is_requested_is_closed_once(
    root: Path, coordinator: tuple[Coordinator, list[socket.socket]]
) -> None:
    broker, readers = coordinator
    readers[1].sendall(request(root, 0))
    broker.first_request()
    readers[0].sendall(request(root, 1))
    readers[1].close()
    broker.poll(1)  # one look sees both, and the first closes the other
    readers[0].close()
    broker.poll(1)
    assert not broker.epoch.is_awaited


def test_refused_request_for_a_later_epoch_skips_no_epoch(
    root: Path, coordinator: tuple[Coordinator, list[socket.socket]]
) -> None:
    broker, readers = coordinator
    readers[0].sendall(request(root, 0, readers=1))
    broker.first_request()
    readers[1].sendall(request(root, 5, readers=1, form="tar"))
    broker.poll(1)  # reads the request
    broker.poll(1)  # sends the refusal; the reader keeps its connection open
    assert b"is being read as 'lines', not as 'tar'" in readers[1].recv(1 << 16)
    broker.next_epoch(protocol.frame(protocol.END))
    assert broker.epoch.number == 1


def test_second_broker_for_an_address_and_fork_during_start_are_harmless(
    root: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that starts one can be killed before it listens; a process forked meanwhile has the lock's descriptor."""
    run: Any = subprocess.run
    forked = []

    def run_twice(*arguments: Any, **how: Any) -> Any:
        if (pid := os.fork()) == 0:
            signal.alarm(30)
            signal.pause()
        forked.append(pid)
        run(*arguments, **how)
        return run(*arguments, **how, stderr=subprocess.DEVNULL)

    monkeypatch.setattr(subprocess, "run", run_twice)
    feed("lines", lambda epoch: b"0\n1\n")
    shards = [open_channel("lines", environment=load_environment(root, {}), shard=Shard(i, 2, 2)) for i in (0, 1)]
    found: dict[int, list[Any]] = {}
    in_threads(lambda number: found.update({number: [bytes(sample["data"]) for sample in shards[number]]}), 2)
    assert found == {0: [b"0"], 1: [b"1"]}
    folder = os.open(root / contract.DATA_DIR, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError if it is still held
    os.close(folder)
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


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
    wait_for(lambda: not brokers(root))
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
    wait_for(lambda: not brokers(root))
