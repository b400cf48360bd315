"""run_program does what the first process of a container must: signals, orphans, exit codes, the end of stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE
from sagemaker_channels.start.process import TAIL_BYTES

REPOSITORY = Path(__file__).parents[3]
DRIVER = """
import json, os, sys
from pathlib import Path
from sagemaker_channels.start.process import run_program
result = run_program(json.loads(sys.argv[1]), dict(os.environ), Path(sys.argv[3]), float(sys.argv[2]))
print(json.dumps([result.exit_code, result.stderr, result.stopped_by]))
"""
# Programs of the tests. Each says `ready` when a signal may come.
COUNTS = """
import signal, sys, time
seen = []
signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
print("ready", flush=True)
while not seen:
    time.sleep(0.01)
time.sleep(0.3)  # a second one would arrive by now
open("seen", "w").write(repr([int(number) for number in seen]))
sys.exit(7)
"""
DEAF = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
below = subprocess.Popen(["sleep", "600"], start_new_session=True)
open("pids", "w").write(f"{os.getpid()} {below.pid}")
print("ready", flush=True)
time.sleep(600)
"""


def start(program: list[str], directory: Path, grace: float = 30) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY / "entrypoints")}
    command = [sys.executable, "-c", DRIVER, json.dumps(program), str(grace), str(directory)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def result(process: subprocess.Popen[str]) -> tuple[int, str, int | None]:
    """What run_program returned: exit code, end of stderr, signal; checks that stderr passed through it."""
    output, errors = process.communicate(timeout=PATIENCE)
    exit_code, tail, stopped_by = json.loads(output.splitlines()[-1])
    assert errors.endswith(tail)
    return exit_code, tail, stopped_by


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [
        ("pass", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('why')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + 9),
        ("import os; os.abort()", 128 + 6),
    ],
)
def test_exit_code_of_the_program_is_returned(script: str, exit_code: int, tmp_path: Path) -> None:
    assert result(start(python(script), tmp_path))[::2] == (exit_code, None)


def test_stderr_is_copied_and_its_tail_returned(tmp_path: Path) -> None:
    script = "import sys; sys.stderr.buffer.write(b'a' * 200_000 + 'é the end\\n'.encode())"
    process = start(python(script), tmp_path)
    _, tail, _ = result(process)
    assert tail.endswith("aé the end\n") and len(tail.encode()) == TAIL_BYTES


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_repeated_signal_is_passed_on_once(number: signal.Signals, tmp_path: Path) -> None:
    process = start(python(COUNTS), tmp_path)
    until_ready(process)
    process.send_signal(number)
    process.send_signal(number)
    assert result(process)[::2] == (7, number)
    assert (tmp_path / "seen").read_text() == f"[{int(number)}]"


@pytest.mark.parametrize(("number", "grace"), [(signal.SIGTERM, 0.2), (signal.SIGQUIT, 600)])
def test_program_that_ignores_a_stop_is_killed_with_its_children(
    number: signal.Signals, grace: float, tmp_path: Path
) -> None:
    process = start(python(DEAF), tmp_path, grace)
    until_ready(process)
    process.send_signal(number)
    assert result(process)[::2] == (128 + 9, number)
    assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_program_started_by_a_shell_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    process = start(["bash", "-c", f"'{sys.executable}' counts.py; echo not reached"], tmp_path)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert result(process)[::2] == (128 + 15, signal.SIGTERM)
    assert (tmp_path / "seen").read_text() == "[15]"  # it had the time that it needed


def test_worker_processes_of_the_program_are_not_signalled(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)\n"
        "def stop(number, frame):\n"
        "    worker.communicate()\n"
        "    sys.exit(40 + abs(worker.returncode))\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    process = start(python(script), tmp_path)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert result(process)[0] == 40


def test_process_that_outlives_the_program_is_killed(tmp_path: Path) -> None:
    script = (
        "import subprocess\n"
        "below = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"  # holds stderr open, too
        "open('pid', 'w').write(str(below.pid))\n"
        "below.returncode = 0\n"
    )
    assert result(start(python(script), tmp_path))[::2] == (0, None)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_orphans_are_reaped_while_the_program_runs(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "printed = subprocess.run(['sh', '-c', 'sleep 0.1 & echo $!'], stdout=subprocess.PIPE, check=True).stdout\n"
        "until = time.monotonic() + 240\n"
        "while os.path.exists(f'/proc/{int(printed)}'):\n"  # a zombie still has its folder
        "    assert time.monotonic() < until\n"
        "    time.sleep(0.01)\n"
    )
    assert result(start(python(script), tmp_path))[0] == 0


def test_closed_stderr_does_not_stop_the_program(tmp_path: Path) -> None:
    script = "import sys\nprint('ready', flush=True)\nfor _ in range(100):\n    sys.stderr.write('x' * 1000)\nsys.stderr.flush()"
    process = start(python(script), tmp_path)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    output, _ = process.communicate(timeout=PATIENCE)
    ready, result = output.splitlines()
    assert (ready, json.loads(result)[0]) == ("ready", 0)


def test_missing_program_is_an_error(tmp_path: Path) -> None:
    process = start([str(tmp_path / "missing")], tmp_path)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "FileNotFoundError" in errors
