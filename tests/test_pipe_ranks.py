"""Ranks that share a Pipe and end one before the other: a finished one is no loss, one that is missing is reported by its name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoints import contract
from pipe_feeder import PATIENCE, Feeder, brokers, make_root, wait_for

pytestmark = pytest.mark.timeout(300)

COUNT = 500  # lines of an epoch: the number of its FIFO, and the line's
RANK = """
    import json, sys
    from entrypoints.channel import open_channel
    from entrypoints.environment import load_environment
    from entrypoints.errors import ChannelError
    from entrypoints.sharding import Share

    index, how, epochs = json.loads(sys.argv[1])
    for epoch in epochs:
        with open_channel("lines", epoch, environment=load_environment(), share=Share(index, 2, 2)) as samples:
            if how == "finished" and epoch == epochs[0]:
                samples.load_state_dict({**samples.state_dict(), "finished": True})
            print(json.dumps([sample["data"].decode() for sample in samples]), flush=True)
            if how == "pauses":
                sys.stdin.readline()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    make_root(tmp_path)
    feeder = Feeder(tmp_path, "lines", lambda fifo: b"".join(b"%d-%d\n" % (fifo, n) for n in range(COUNT)))
    yield tmp_path
    for pid in brokers(tmp_path):
        os.kill(pid, signal.SIGKILL)
    feeder.stop()


def started(root: Path, *command: str, **environ: str) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": str(Path(__file__).parent.parent), "SAGEMAKER_BASE_DIR": str(root)}
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
    """A process that reads share `index` of two in these epochs and prints a JSON list for each."""
    return started(root, "-c", textwrap.dedent(RANK), json.dumps([index, how, epochs]), **environ)


def printed(process: subprocess.Popen[str]) -> list[Any]:
    with process:
        out, errors = process.communicate(timeout=PATIENCE * 4)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in out.splitlines()]


def share_of(fifo: int, index: int) -> list[str]:
    return [f"{fifo}-{number}" for number in range(index, COUNT, 2)]


def test_finished_rank_that_ends_before_another_starts_is_not_waited_for(root: Path) -> None:
    assert printed(rank(root, 0, "finished", 3)) == [[]]
    assert printed(rank(root, 1, "reads", 3)) == [share_of(0, 1)]


def test_finished_rank_that_comes_last_is_not_waited_for(root: Path) -> None:
    other = rank(root, 1, "reads", 3)
    wait_for(lambda: brokers(root))
    assert printed(rank(root, 0, "finished", 3)) == [[]]
    assert printed(other) == [share_of(0, 1)]


def test_finished_rank_that_reads_on_is_in_the_next_epoch(root: Path) -> None:
    ranks = [rank(root, 0, "finished", 3, 4), rank(root, 1, "reads", 3, 4)]
    assert [*map(printed, ranks)] == [[[], share_of(1, 0)], [share_of(0, 1), share_of(1, 1)]]


def test_broker_of_a_finished_rank_ends_when_nobody_else_comes(root: Path) -> None:
    wait = {contract.FIFO_WAIT_VARIABLE: "1"}
    assert printed(rank(root, 0, "finished", 3, **wait)) == [[]]
    wait_for(lambda: not brokers(root))


@pytest.mark.parametrize(("epoch", "restarts"), [(5, "0"), (3, "1")], ids=["another epoch", "started again"])
def test_request_of_another_job_gets_another_broker_than_the_finished_rank_left(
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
    from entrypoints.owners import start_time
    from entrypoints.torch_dataset import ChannelDataset

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
        wait_for(other.exists)
        sys.exit(1)
    loader.load_state_dict(json.loads(state.read_text()))
    begun = Path(f"begun-{restarts}")
    if rank == 0:
        begun.write_text(str(os.getpid()))
    else:  # until the finished rank's process has ended
        wait_for(lambda: begun.exists() and begun.read_text() and not start_time(int(begun.read_text())))
    Path(f"{restarts}-{rank}").write_text(json.dumps([text for batch in loader for text in batch]))
    sys.exit(rank == 1 and restarts == 1)
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_finished_rank_of_torchrun_is_not_waited_for_after_each_restart(root: Path, workers: str) -> None:
    """Rank 0 has read its share to its end and rank 1 one batch; both are started again, and twice rank 0 comes first."""
    (root / "script.py").write_text(textwrap.dedent(TRAINING))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max_restarts=2", "script.py"]
    with started(root, *torchrun, workers) as process:
        _, errors = process.communicate(timeout=PATIENCE * 8)
    assert process.returncode == 0, errors
    for restarts in (1, 2):
        parts = [json.loads((root / name).read_text()) for name in ("0-0", "0-1", f"{restarts}-0", f"{restarts}-1")]
        assert [len(part) for part in parts] == [COUNT // 2, 10, 0, COUNT // 2 - 10]
        assert sorted(int(text.partition("-")[2]) for part in parts for text in part) == list(range(COUNT))
