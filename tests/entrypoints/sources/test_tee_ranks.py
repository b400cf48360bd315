"""The ranks and jobs that share a Pipe: which readers are waited for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from forked import next_line, printed
from patience import PATIENCE, wait_for
from pipe_feeder import Feeder
from sagemaker_channels import contract
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources import pipe_record, ring
from tee_readers import SCRIPT, content, opened, pipe, started, wait_for_requests, whole


@pytest.fixture
def channel(root: Path) -> Channel:
    return pipe(root)


@pytest.fixture(autouse=True)
def feeder(root: Path, channel: Channel) -> Iterator[Feeder]:
    feeder = Feeder(root, "lines", content)
    yield feeder
    feeder.stop()


def test_finished_rank_that_ends_before_another_starts_is_not_waited_for(root: Path) -> None:
    assert printed(started(root, 2, 0, "finished", 3)) == [None]
    assert printed(started(root, 2, 1, "reads", 3)) == [whole(0)]


def test_finished_rank_that_asks_last_is_not_waited_for(root: Path, channel: Channel) -> None:
    other = started(root, 2, 1, "reads", 3)
    wait_for_requests(channel, 1)
    assert printed(started(root, 2, 0, "finished", 3)) == [None]
    assert printed(other) == [whole(0)]


def test_finished_rank_that_reads_on_gets_the_next_epoch(root: Path) -> None:
    first = started(root, 2, 0, "finished", 3, 4)
    assert next_line(first) is None
    ranks = [first, started(root, 2, 1, "reads", 3, 4)]
    assert [*map(printed, ranks)] == [[whole(1)], [whole(0), whole(1)]]


def test_ranks_that_resume_one_epoch_later_are_not_waited_for(root: Path, channel: Channel) -> None:
    ahead = started(root, 3, 0, "finished", 4, 5)
    assert next_line(ahead) is None
    ahead2 = started(root, 3, 1, "reads", 4, 5)
    time.sleep(1)
    assert printed(started(root, 3, 2, "reads", 3, 4, 5)) == [whole(0), whole(1), whole(2)]
    assert printed(ahead) == [whole(2)]
    assert printed(ahead2) == [whole(1), whole(2)]


def test_rank_that_skips_an_epoch_is_not_waited_for(root: Path) -> None:
    ranks = [started(root, 2, 0, "reads", 3, 4, 5), started(root, 2, 1, "reads", 3, 5)]
    assert [*map(printed, ranks)] == [[whole(0), whole(1), whole(2)], [whole(0), whole(2)]]


@pytest.mark.parametrize(
    ("epoch", "restarts", "number"),
    [(5, "0", 1), (3, "1", 1), (3, "0", 0)],
    ids=["another epoch", "started again", "the same rank"],
)
def test_request_of_another_job_does_not_count_the_finished_rank(
    root: Path, channel: Channel, epoch: int, restarts: str, number: int
) -> None:
    assert printed(started(root, 2, 0, "finished", 3, TORCHELASTIC_RESTART_COUNT="0")) == [None]
    [old] = pipe_record.table_of(channel).values()
    first = started(root, 2, number, "reads", epoch, TORCHELASTIC_RESTART_COUNT=restarts)
    wait_for(lambda: [each.process for each in pipe_record.table_of(channel).values()] == [[first.pid, ANY]])
    assert old.process[0] != first.pid
    second = started(root, 2, 1 - number, "reads", epoch, TORCHELASTIC_RESTART_COUNT=restarts)
    assert [printed(first), printed(second)] == [[whole(0)]] * 2


def test_rank_that_has_ended_is_reported_to_waiting_ranks(root: Path) -> None:
    waiting = started(root, 2, 1, "reads", 0, 1, RANK="1")
    assert printed(started(root, 2, 0, "reads", 0, RANK="0")) == [whole(0)]
    with waiting:
        _, errors = waiting.communicate(timeout=PATIENCE)  # and not the ten minutes of a rank that is late
    assert "ChannelError: channel 'lines', epoch 1: rank 0 of this host has ended without reading this epoch" in errors


# Starts ranks as torchrun does: as its own children, with their variables. Rank 1 ends before it asks for an epoch.
LAUNCHER = """
    import os, subprocess, sys
    ranks = []
    for rank in "01":
        environ = {**os.environ, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}
        ranks.append(subprocess.Popen([sys.executable, "-c", sys.argv[1 + int(rank)], *sys.argv[3:]], env=environ))
    sys.exit(max(rank.wait() for rank in ranks))
"""


def test_rank_that_ends_before_its_first_epoch_is_reported_to_waiting_ranks(root: Path) -> None:
    words = [textwrap.dedent(SCRIPT), "pass", json.dumps([str(root), 2, 0, "reads", 0])]
    launcher = [sys.executable, "-c", textwrap.dedent(LAUNCHER), *words]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(launcher, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert "ChannelError: channel 'lines', epoch 0: rank 1 of this host has ended without reading this" in found.stderr
    assert found.returncode == 1


def test_rank_that_is_late_is_waited_for(root: Path) -> None:
    late, waiting = started(root, 2, 0, "pauses", 0, 1), started(root, 2, 1, "reads", 0, 1)
    assert next_line(waiting) == whole(0)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(3)
    assert late.stdin is not None
    late.stdin.write("\n\n")
    late.stdin.flush()
    assert printed(late) == [whole(0), whole(1)]
    assert printed(waiting) == [whole(1)]


RANK = """
    import os, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from tee_readers import bytes_of, digest, pipe

    rank, root = int(os.environ["RANK"]), Path(sys.argv[2])
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    found = digest(bytes_of(pipe(root), 3, 2, rank))
    Path(root, f"found-{attempt}-{rank}").write_text(found)
    while attempt == "0":  # until torchrun ends it
        if rank == 1 and Path(root, "found-0-0").exists():
            sys.exit(1)
        time.sleep(0.05)
"""


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max_restarts=1")


def test_ranks_that_torchrun_restarts_ask_for_their_epoch_again(root: Path) -> None:
    (root / "script.py").write_text(textwrap.dedent(RANK))
    tests = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, *TORCHRUN, "script.py", str(tests), str(root)],
        env={**os.environ, "PYTHONPATH": str(tests.parent), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert [(root / f"found-0-{rank}").read_text() for rank in (0, 1)] == [whole(0)] * 2
    assert [(root / f"found-1-{rank}").read_text() for rank in (0, 1)] == [whole(1)] * 2


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_readers_leave_no_process_and_no_file(
    root: Path, channel: Channel, feeder: Feeder, end: signal.Signals
) -> None:
    before = {*root.rglob("*"), *Path(os.environ["TMPDIR"]).iterdir()}
    readers = [started(root, 2, number, "begins", 0) for number in range(2)]
    for reader in readers:
        assert next_line(reader) == "begun"
    for reader in readers:
        os.killpg(reader.pid, end)
    for reader in readers:
        reader.communicate(timeout=PATIENCE)
    wait_for(lambda: 0 in feeder.ended)  # The FIFO was closed, and the feeder is not left waiting.
    left = {*root.rglob("*"), *Path(os.environ["TMPDIR"]).iterdir()} - before
    assert {re.sub(r"\d+", "N", path.name) for path in left} <= {"lines_N", contract.epochs_name("lines")}


def test_ctrl_c_ends_a_reader_that_waits_for_another(root: Path, channel: Channel) -> None:
    reader = started(root, 2, 0, "reads", 0)
    wait_for_requests(channel, 1)
    time.sleep(0.5)
    os.killpg(reader.pid, signal.SIGINT)
    _, errors = reader.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in errors
    assert pipe_record.table_of(channel) == {}


def test_job_after_a_killed_one_gets_the_next_epoch(root: Path, channel: Channel) -> None:
    first = [started(root, 2, number, "begins", 0) for number in range(2)]
    for reader in first:
        assert next_line(reader) == "begun"
    for reader in first:
        reader.kill()
        reader.communicate()
    second = [started(root, 2, number, "reads", 7) for number in range(2)]
    assert [printed(reader) for reader in second] == [[whole(1)]] * 2


def test_reader_that_reads_nothing_blocks_the_feeder_within_bounded_memory(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ring, "WARN_SECONDS", 0.5)
    slow, fast = opened(channel, 0, 2)
    slow.read(1)
    read = [0]

    def run() -> None:
        while data := fast.read(1 << 20):
            read[0] += len(data)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: "reader 0 of process" in capfd.readouterr().err)
    assert read[0] <= 1 + ring.RING_BYTES
    slow.close()
    thread.join(PATIENCE)
    fast.close()
    assert read[0] == len(content(0))
