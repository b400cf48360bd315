"""Ranks of one Pipe that finish, end or connect at different times."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE, wait_for
from pipe_feeder import Feed, Feeder, brokers, in_threads, make_root
from sagemaker_channels import contract
from sagemaker_channels.broker import protocol
from sagemaker_channels.broker.coordinator import Coordinator
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.samples.channel import open_channel

COUNT = 500  # lines of an epoch: the number of its FIFO, and the line's
RANK = """
    import json, sys
    from sagemaker_channels.samples.channel import open_channel
    from sagemaker_channels.job.environment import load_environment
    from sagemaker_channels.errors import ChannelError
    from sagemaker_channels.order.sharding import Shard

    index, how, epochs = json.loads(sys.argv[1])
    for epoch in epochs:
        with open_channel("lines", epoch, environment=load_environment(), shard=Shard(index, 2, 2)) as samples:
            if how == "finished" and epoch == epochs[0]:
                samples.load_state_dict({**samples.state_dict(), "ended": [index]})
            print(json.dumps([sample["data"].decode() for sample in samples]), flush=True)
            if how == "pauses":
                sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def feeder(feed: Feed) -> Feeder:
    return feed("lines", lambda fifo: b"".join(b"%d-%d\n" % (fifo, number) for number in range(COUNT)))


def started(root: Path, *command: str, **environ: str) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": str(Path(__file__).parents[3] / "entrypoints"), "SAGEMAKER_BASE_DIR": str(root)}
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **paths, "OMP_NUM_THREADS": "1", **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )


def rank(root: Path, index: int, how: str, *epochs: int, **environ: str) -> subprocess.Popen[str]:
    """A process that reads shard `index` of two in these epochs and prints a JSON list for each."""
    return started(root, "-c", textwrap.dedent(RANK), json.dumps([index, how, epochs]), **environ)


def printed(process: subprocess.Popen[str]) -> list[Any]:
    with process:
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in out.splitlines()]


def share_of(fifo: int, index: int) -> list[str]:
    return [f"{fifo}-{number}" for number in range(index, COUNT, 2)]


def test_finished_rank_that_ends_before_another_starts_is_not_waited_for(root: Path) -> None:
    assert printed(rank(root, 0, "finished", 3)) == [[]]
    assert printed(rank(root, 1, "reads", 3)) == [share_of(0, 1)]


def test_finished_rank_that_connects_last_is_not_waited_for(root: Path) -> None:
    other = rank(root, 1, "reads", 3)
    wait_for(lambda: brokers(root))
    assert printed(rank(root, 0, "finished", 3)) == [[]]
    assert printed(other) == [share_of(0, 1)]


def test_finished_rank_that_reads_on_gets_the_next_epoch(root: Path) -> None:
    ranks = [rank(root, 0, "finished", 3, 4), rank(root, 1, "reads", 3, 4)]
    assert [*map(printed, ranks)] == [[[], share_of(1, 0)], [share_of(0, 1), share_of(1, 1)]]


def test_broker_of_a_finished_rank_ends_if_no_other_rank_connects(root: Path) -> None:
    wait = {contract.FIFO_WAIT_VARIABLE: "1"}
    assert printed(rank(root, 0, "finished", 3, **wait)) == [[]]
    wait_for(lambda: not brokers(root))


@pytest.mark.parametrize(("epoch", "restarts"), [(5, "0"), (3, "1")], ids=["another epoch", "started again"])
def test_request_of_another_job_gets_another_broker_than_the_finished_rank(
    root: Path, epoch: int, restarts: str
) -> None:
    assert printed(rank(root, 0, "finished", 3, TORCHELASTIC_RESTART_COUNT="0")) == [[]]
    [old] = brokers(root)
    ranks = [rank(root, index, "reads", epoch, TORCHELASTIC_RESTART_COUNT=restarts) for index in (1, 0)]
    assert [len(part) for [part] in map(printed, ranks)] == [COUNT // 2, COUNT // 2]
    wait_for(lambda: old not in brokers(root))


TRAINING = """
    import json, os, sys, time, warnings
    warnings.simplefilter("ignore")
    from pathlib import Path
    from torchdata.stateful_dataloader import StatefulDataLoader
    from sagemaker_channels.job.process_identity import start_time
    from sagemaker_channels.torch_data.dataset import ChannelDataset

    def wait_for(condition):
        while not condition():
            time.sleep(0.05)

    rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dataset = ChannelDataset("lines", transform=lambda sample: sample["data"].decode())
    loader = StatefulDataLoader(dataset, 10, num_workers=int(sys.argv[1]), collate_fn=list)
    state, other = Path(f"state-{rank}"), Path(f"state-{1 - rank}")
    if not restarts:
        dataset.set_epoch(3)
        batches = iter(loader)
        taken = [text for batch in batches for text in batch] if rank == 0 else next(batches)
        Path(f"0-{rank}").write_text(json.dumps(taken))
        state.write_text(json.dumps(loader.state_dict()))
        wait_for(lambda: other.exists() and other.read_text())  # torchrun ends this process when the other exits
        sys.exit(1)
    loader.load_state_dict(json.loads(state.read_text()))
    begun = Path(f"begun-{restarts}")
    if rank == 0:
        begun.write_text(str(os.getpid()))
    else:  # until the finished rank's process has ended
        wait_for(lambda: begun.exists() and begun.read_text() and not start_time(int(begun.read_text())))
    Path(f"{restarts}-{rank}").write_text(json.dumps([text for batch in loader for text in batch]))
    sys.exit(rank == 1 and restarts < int(sys.argv[2]))
"""


@pytest.mark.parametrize(("workers", "count"), [("0", 1), ("2", 2)])
def test_finished_rank_of_torchrun_is_not_waited_for_after_each_restart(root: Path, workers: str, count: int) -> None:
    """Rank 0 has read its shard to its end and rank 1 one batch; after each restart rank 0 comes first."""
    (root / "script.py").write_text(textwrap.dedent(TRAINING))
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        f"--max_restarts={count}",
        "script.py",
    ]
    with started(root, *torchrun, workers, str(count)) as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    for restarts in range(1, count + 1):
        parts = [json.loads((root / name).read_text()) for name in ("0-0", "0-1", f"{restarts}-0", f"{restarts}-1")]
        assert [len(part) for part in parts] == [COUNT // 2, 10, 0, COUNT // 2 - 10]
        assert sorted(int(text.partition("-")[2]) for part in parts for text in part) == list(range(COUNT))


def test_rank_that_has_exited_is_reported_to_waiting_ranks(root: Path) -> None:
    waiting = rank(root, 1, "reads", 0, 1)
    assert printed(rank(root, 0, "reads", 0)) == [share_of(0, 0)]
    with waiting:
        _, errors = waiting.communicate(timeout=PATIENCE)  # and not the ten minutes of a rank that is late
    assert "ChannelError: channel 'lines', epoch 1: rank 0 of this host has ended without reading its shard" in errors


WITHOUT_RANK_0 = """
    import os, sys, time
    from sagemaker_channels.samples.channel import open_channel

    if os.environ["RANK"] == "0":
        if sys.argv[1] == "ends":
            sys.exit()
        time.sleep(6)
    with open_channel("lines") as samples:
        os.write(1, b"%d\\n" % sum(1 for _ in samples))  # one write, or the ranks' lines might mix
"""


def of_torchrun(root: Path, how: str, *options: str) -> subprocess.Popen[str]:
    (root / "script.py").write_text(textwrap.dedent(WITHOUT_RANK_0))
    return started(
        root, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", *options, "script.py", how
    )


def test_rank_of_torchrun_that_ends_before_it_connects_is_reported(root: Path) -> None:
    with of_torchrun(root, "ends") as process:
        _, errors = process.communicate(timeout=PATIENCE)  # and not the ten minutes of a rank that is late
    assert process.returncode == 1
    assert "ChannelError: channel 'lines', epoch 0: of this host's 2 ranks only rank 1 still runs; the others" in errors


def test_rank_of_torchrun_that_connects_late_is_waited_for(root: Path) -> None:
    with of_torchrun(root, "pauses") as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output.split()) == (0, [str(COUNT // 2)] * 2), errors


def test_rank_that_is_late_is_waited_for(root: Path) -> None:
    late, waiting = rank(root, 0, "pauses", 0, 1), rank(root, 1, "reads", 0, 1)
    assert waiting.stdout is not None and late.stdin is not None
    assert json.loads(waiting.stdout.readline()) == share_of(0, 1)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(3)
    late.stdin.write("\n\n")
    late.stdin.flush()
    assert printed(late) == [share_of(0, 0), share_of(1, 0)]
    assert printed(waiting) == [share_of(1, 1)]


def test_rank_with_a_missing_worker_is_given_up_once_its_process_has_ended(tmp_path: Path) -> None:
    def ask(index: int, owner: int) -> socket.socket:
        path, shard = str(tmp_path / "lines"), Shard(index, 4, 4, 2)
        reader = sockets.enter_context(socket.socket(socket.AF_UNIX))
        reader.connect(f"\0test-{tmp_path}")
        request = protocol.Request("lines", path, "None", "lines", 0, shard, 600.0, 0, 0, owner, "", False)
        reader.sendall(request.encode())
        return reader

    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket(socket.AF_UNIX))
        other = sockets.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        listener.bind(f"\0test-{tmp_path}")
        listener.listen()
        folder = os.open(tmp_path, os.O_RDONLY)
        sockets.callback(os.close, folder)
        coordinator = Coordinator(listener, folder)
        readers = [ask(0, other.pid)]
        coordinator.first_request()
        readers += [ask(index, os.getpid()) for index in (1, 3)]
        while len(coordinator.epoch.shards) < 3:
            coordinator.poll(1)
        readers[0].close()  # a worker that ends is no end of its rank
        for _ in range(5):
            coordinator.poll(0.2)
        assert not coordinator.epoch.is_settled
        other.communicate(b"\n")
        wait_for(lambda: coordinator.poll(0.2) or coordinator.epoch.is_settled)
        assert coordinator.epoch.given_up.startswith("rank 0 of this host has ended")
        while not all(shard.outbox.size == 0 for shard in coordinator.epoch.shards.values()):
            coordinator.poll(0.2)
        for reader in readers[1:]:
            assert protocol.receive_frame(reader)[0] == protocol.WELCOME
            assert protocol.receive_frame(reader)[0] == protocol.ERROR
        for reader in readers[1:]:
            reader.close()
        coordinator.poll(1)


def test_folder_made_again_at_the_same_path_gets_its_own_broker(root: Path) -> None:
    """A file system gives a deleted folder's inode to the next one, and a broker lives as long as the process it reads for."""
    job, old = root / "job", []
    for _ in range(3):
        job.mkdir()
        make_root(job)
        feeder = Feeder(job, "lines", lambda fifo: b"0\n1\n")
        found: dict[int, list[str]] = {}

        def read(index: int, found: dict[int, list[str]] = found) -> None:
            with open_channel("lines", environment=load_environment(job, {}), shard=Shard(index, 2, 2)) as samples:
                found[index] = [bytes(sample["data"]).decode() for sample in samples]

        in_threads(read, 2)
        assert found == {0: ["0"], 1: ["1"]}
        old += brokers(job)
        feeder.stop()
        shutil.rmtree(job)
    assert len(old) == 3
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in old))
