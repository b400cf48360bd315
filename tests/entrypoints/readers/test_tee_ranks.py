"""A tee's process, and the ranks and jobs that it reads for: when it ends, and whom it waits for."""

from __future__ import annotations

import fcntl
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
from typing import Any

import pytest

from patience import PATIENCE, wait_for
from pipe_feeder import Feeder, make_root
from sagemaker_channels import contract
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.readers import tee
from tee_readers import content, in_threads, kill_tees, next_line, pipe, printed, side_by_side, started, tees, whole

pytestmark = [pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    make_root(tmp_path)
    yield tmp_path
    kill_tees(pipe(tmp_path))


@pytest.fixture
def channel(root: Path) -> Channel:
    return pipe(root)


@pytest.fixture(autouse=True)
def feeder(root: Path, channel: Channel) -> Iterator[Feeder]:
    feeder = Feeder(root, "lines", content)
    yield feeder
    kill_tees(channel)
    feeder.stop()


def test_finished_rank_that_ends_before_another_starts_is_not_waited_for(root: Path) -> None:
    assert printed(started(root, 2, 0, "finished", 3)) == [None]
    assert printed(started(root, 2, 1, "reads", 3)) == [whole(0)]


def test_finished_rank_that_asks_last_is_not_waited_for(root: Path, channel: Channel) -> None:
    other = started(root, 2, 1, "reads", 3)
    wait_for(lambda: tees(channel))
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


def test_tee_of_a_finished_rank_ends_if_no_other_rank_asks(root: Path, channel: Channel) -> None:
    assert printed(started(root, 2, 0, "finished", 3, **{contract.FIFO_WAIT_VARIABLE: "1"})) == [None]
    wait_for(lambda: not tees(channel))


@pytest.mark.parametrize(
    ("epoch", "restarts", "number"),
    [(5, "0", 1), (3, "1", 1), (3, "0", 0)],
    ids=["another epoch", "started again", "the same rank"],
)
def test_request_of_another_job_gets_another_tee_than_the_finished_rank(
    root: Path, channel: Channel, epoch: int, restarts: str, number: int
) -> None:
    assert printed(started(root, 2, 0, "finished", 3, TORCHELASTIC_RESTART_COUNT="0")) == [None]
    [old] = tees(channel)
    first = started(root, 2, number, "reads", epoch, TORCHELASTIC_RESTART_COUNT=restarts)
    wait_for(lambda: tees(channel) and old not in tees(channel))
    second = started(root, 2, 1 - number, "reads", epoch, TORCHELASTIC_RESTART_COUNT=restarts)
    assert [printed(first), printed(second)] == [[whole(0)]] * 2


def test_rank_that_has_ended_is_reported_to_waiting_ranks(root: Path) -> None:
    waiting = started(root, 2, 1, "reads", 0, 1, RANK="1")
    assert printed(started(root, 2, 0, "reads", 0, RANK="0")) == [whole(0)]
    with waiting:
        _, errors = waiting.communicate(timeout=PATIENCE)  # and not the ten minutes of a rank that is late
    assert "ChannelError: channel 'lines', epoch 1: rank 0 of this host has ended without reading this epoch" in errors


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


TORCHRUN = """
    import os, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from tee_readers import bytes_of, digest, pipe

    rank, root, how = int(os.environ["RANK"]), Path(sys.argv[2]), sys.argv[3]
    if rank == 0 and how == "ends":
        sys.exit()
    if rank == 0 and how == "pauses":
        time.sleep(6)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    found = digest(bytes_of(pipe(root), 3, 2, rank))
    Path(root, f"found-{attempt}-{rank}").write_text(found)
    while how == "restarts" and attempt == "0":  # until torchrun ends it
        if rank == 1 and Path(root, "found-0-0").exists():
            sys.exit(1)
        time.sleep(0.05)
"""


def of_torchrun(root: Path, how: str) -> subprocess.Popen[str]:
    (root / "script.py").write_text(textwrap.dedent(TORCHRUN))
    options = ["--standalone", "--nproc_per_node=2", f"--max_restarts={how == 'restarts':d}"]
    tests = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, "script.py", str(tests), str(root), how],
        env={**os.environ, "PYTHONPATH": str(tests.parent), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )


def test_rank_of_torchrun_that_ends_before_it_asks_is_reported(root: Path) -> None:
    with of_torchrun(root, "ends") as process:
        _, errors = process.communicate(timeout=PATIENCE)  # and not the ten minutes of a rank that is late
    assert process.returncode == 1
    assert "ChannelError: channel 'lines', epoch 3: of this host's 2 ranks only rank 1 still runs; the others" in errors


def test_rank_of_torchrun_that_asks_late_is_waited_for(root: Path, channel: Channel) -> None:
    with of_torchrun(root, "pauses") as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert [(root / f"found-0-{rank}").read_text() for rank in (0, 1)] == [whole(0)] * 2
    wait_for(lambda: not tees(channel))


def test_ranks_that_torchrun_restarts_ask_for_their_epoch_again(root: Path) -> None:
    with of_torchrun(root, "restarts") as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert [(root / f"found-0-{rank}").read_text() for rank in (0, 1)] == [whole(0)] * 2
    again = {(root / f"found-1-{rank}").read_text() for rank in (0, 1)}
    assert again in ({whole(1)}, {whole(2)})  # One was read ahead.


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
    wait_for(lambda: not tees(channel))
    wait_for(lambda: 0 in feeder.ended)  # The FIFO was closed, and the feeder is not left waiting.
    left = {*root.rglob("*"), *Path(os.environ["TMPDIR"]).iterdir()} - before
    assert {re.sub(r"\d+", "N", path.name) for path in left} <= {"lines_N", contract.epochs_name("lines")}


def test_ctrl_c_ends_a_reader_that_waits_for_another(root: Path, channel: Channel) -> None:
    reader = started(root, 2, 0, "reads", 0)
    wait_for(lambda: tees(channel))
    time.sleep(0.5)
    os.killpg(reader.pid, signal.SIGINT)
    _, errors = reader.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in errors
    wait_for(lambda: not tees(channel))


WORKERS = """
    import multiprocessing, os, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from sagemaker_channels.readers.tee import open_stream
    from tee_readers import pipe

    def read(number):
        stream = open_stream(pipe(Path(sys.argv[2])), 0, 2, reader=number)
        stream.read(1)
        os.write(1, b"%d\\n" % os.getpid())
        multiprocessing.Event().wait()

    for number in range(2):
        multiprocessing.get_context("fork").Process(target=read, args=(number,)).start()
    multiprocessing.Event().wait()
"""


def test_workers_that_outlive_their_process_do_not_keep_the_tee(root: Path, channel: Channel) -> None:
    """torch's workers notice it seconds later. A job that follows must not find the old tee."""
    tests = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(WORKERS), str(tests), str(root)]
    environ = {**os.environ, "PYTHONPATH": str(tests.parent)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        workers = [int(job.stdout.readline()) for _ in range(2)]
        job.kill()
        job.wait()
        wait_for(lambda: not tees(channel))
        for worker in workers:
            os.kill(worker, signal.SIGKILL)  # ProcessLookupError if it was not there


def test_signals_do_not_end_the_tee_before_its_readers(root: Path, channel: Channel) -> None:
    streams: list[Any] = [tee.open_stream(channel, 0, 2, reader=number) for number in range(2)]
    [pid] = tees(channel)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(pid, number)
    assert in_threads(lambda number: streams[number].read(), 2) == [content(0)] * 2
    for stream in streams:
        stream.close()


def test_tee_of_a_killed_job_gives_way_to_the_next_job(root: Path, channel: Channel) -> None:
    first = [started(root, 2, number, "begins", 0) for number in range(2)]
    for reader in first:
        assert next_line(reader) == "begun"
    [old] = tees(channel)
    os.kill(old, signal.SIGSTOP)
    for reader in first:
        reader.kill()
        reader.wait()
    second = [started(root, 2, number, "reads", 7) for number in range(2)]
    time.sleep(1)  # They find the old one.
    os.kill(old, signal.SIGCONT)
    found = [printed(reader) for reader in [*second]]
    assert found in ([[whole(1)]] * 2, [[whole(2)]] * 2)
    for reader in first:
        reader.communicate()


def test_second_tee_for_an_address_and_fork_during_start_are_harmless(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
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
    assert side_by_side(channel, 0, 2) == [whole(0)] * 2
    folder = os.open(channel.path.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError if it is still held
    os.close(folder)
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_tee_that_cannot_be_started_is_an_error(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tee, "_PROGRAM", "import sys; sys.exit(3)")
    for error in side_by_side(channel, 0, 2):
        assert "the process that reads the Pipe for this host could not be started (exit code 3); see the log" in error


def test_reader_that_reads_nothing_blocks_the_feeder_within_bounded_memory(
    root: Path, channel: Channel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    impatient = "from sagemaker_channels.readers import tee_server; tee_server.WARN_SECONDS = 0.5\nmain("
    monkeypatch.setattr(tee, "_PROGRAM", tee._PROGRAM.replace("main(", impatient))
    slow: Any = tee.open_stream(channel, 0, 2, reader=0)
    fast: Any = tee.open_stream(channel, 0, 2, reader=1)
    slow.read(1)
    [pid] = tees(channel)
    read = [0]

    def run() -> None:
        while data := fast.read(1 << 20):
            read[0] += len(data)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: "reader 0 of process" in capfd.readouterr().err)
    assert read[0] <= 8 << 20
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak < 48_000  # KB, with the ring
    slow.close()
    thread.join(PATIENCE)
    fast.close()
    assert read[0] == len(content(0))


def test_tee_imports_the_standard_library_only() -> None:
    script = "import sys; before = {*sys.modules}; import sagemaker_channels.readers.tee_server; print(*{*sys.modules} - before)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=Path(__file__).parents[3] / "entrypoints",
        capture_output=True,
        text=True,
        check=True,
    )
    others = {name.partition(".")[0] for name in found.stdout.split()} - {*sys.stdlib_module_names}
    assert others == {"sagemaker_channels"}
