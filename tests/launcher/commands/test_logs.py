"""`launch logs` in a pipe and on a terminal: lines so far, following, JSON, closed pipes and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from followed_job import job
from launching import launch
from patience import PATIENCE

LOGS = [sys.executable, "-c", "import sys; from launcher.cli import main; main(['logs', *sys.argv[1:]])"]


def test_logs_prints_lines_so_far_and_ends(aws: StandIn, tmp_path: Path) -> None:
    job(aws, hosts=2)
    aws.job("cats-1", "Training")
    now = int(time.time() * 1000)
    aws.log("cats-1", ["old"], timestamps=[now - 7200_000])
    aws.log("cats-1", ["loss=0.5", "loss=0.25", "Straße"], timestamps=[now - 3000, now - 2000, now - 1000])
    aws.log("cats-1", ["other"], host="algo-2", timestamps=[now - 500])
    shown = launch("logs", "cats-1", "--since", "10m", "--host", "algo-1", "--plot", str(tmp_path / "loss.svg"))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == ["algo-1 | loss=0.5", "algo-1 | loss=0.25", "algo-1 | Straße"]
    assert "cats-1 continues (Training); --follow shows the rest" in shown.stderr
    assert (tmp_path / "loss.svg").is_file()

    shown = launch("logs", "cats-1", "--json")
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["message"] for line in lines] == ["old", "loss=0.5", "loss=0.25", "Straße", "other"]
    assert lines[-1]["host"] == "algo-2"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", lines[0]["timestamp"])


@pytest.mark.usefixtures("quick_sleep")
def test_logs_with_follow_and_json_prints_objects(aws: StandIn) -> None:
    job(aws)
    aws.log("cats-1", ["loss=0.5"])
    aws.job("cats-1", "Failed", reason="CapacityError: Unable to provision requested ML compute capacity.")
    shown = launch("logs", "cats-1", "--follow", "--json")
    assert shown.returncode == 4, shown.stderr
    line, result = (json.loads(line) for line in shown.stdout.splitlines())
    assert line["message"] == "loss=0.5"
    assert (result["TrainingJobStatus"], result["Metrics"], result["ExitCode"]) == ("Failed", {"loss": 0.5}, 4)


def test_closed_pipe_ends_logs_quietly(aws: StandIn) -> None:
    job(aws)
    aws.log("cats-1", ["x" * 200] * 5000)
    aws.job("cats-1", "Completed")
    piped = subprocess.Popen([*LOGS, "cats-1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert piped.stdout is not None and piped.stderr is not None
    assert piped.stdout.readline().startswith("algo-1 | x")
    piped.stdout.close()
    assert piped.wait(PATIENCE) == 141
    assert "Traceback" not in piped.stderr.read()
    piped.stderr.close()


def test_empty_selection_is_reported(aws: StandIn) -> None:
    job(aws)
    aws.log("cats-1", ["old"], timestamps=[1000])
    shown = launch("logs", "cats-1", "--since", "5s").stderr
    assert "cats-1: Starting; no lines yet; leave out --since or --host for more" in shown


@pytest.mark.usefixtures("quick_sleep")
def test_controls_of_a_job_do_not_reach_the_terminal(aws: StandIn) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\x9b2J\x9d0;title\x9c"
    metric = {"Name": f"{evil}[/red]", "Regex": "loss=(.+)"}
    job(aws, AlgorithmSpecification={"TrainingInputMode": "File", "TrainingImage": "i", "MetricDefinitions": [metric]})
    waits = (
        f"waits channel={evil} mode=File rank=0 workers=0 threads=0 cores=2 steps=9 step_s=1 wait_share=1 own_share=0"
    )
    aws.log("cats-1", ["loss=0.5", waits, f"ValueError: bad {evil}label", "\x1b[31mred"])
    aws.job("cats-1", "Failed", reason=f"AlgorithmError: {evil}, exit code: 1")
    for arguments in (["status", "cats-1"], ["logs", "cats-1", "--follow"], ["logs", "cats-1", "--json"]):
        shown = launch(*arguments)
        ours = shown.stderr + shown.stdout * (arguments[0] == "status")
        assert not re.search(r"[^\n -~]|title", ours)
        assert not re.search(r"[^\n -~]", shown.stdout)
        assert "red" in shown.stdout or arguments[0] == "status"
    code, text = on_a_terminal(["cats-1", "--follow"], lambda _: False, lambda _: None)
    assert code == 4
    assert "ValueError: bad label [script-failed]" in text
    assert "\x1b[31mred\x1b[0m" in text
    assert not re.search(r"[\x80-\x9f]|\x1b\]|\x1b\[2J|title", text)


def on_a_terminal(arguments: list[str], until: Callable[[str], bool], then: Callable[[int], None]) -> tuple[int, str]:
    """Run `launch logs` on a terminal, and call `then` with its process id once `until` accepts its output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", COLUMNS="100", LINES="30")
        os.execv(LOGS[0], [*LOGS, *arguments])
    shown, done, end = "", False, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                read = os.read(terminal, 65536)
            except OSError:  # on Linux, the end of what the other side wrote
                break
            shown += read.decode("utf-8", "replace")
        if not done and until(shown):
            done = True
            then(pid)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown


def test_ctrl_c_leaves_job_running(aws: StandIn) -> None:
    job(aws)
    aws.job("cats-1", "Training")
    aws.log("cats-1", ["loss=0.5", "loss=0.125"], timestamps=[1000, 2000])
    code, shown = on_a_terminal(
        ["cats-1", "--follow"],
        lambda text: "0.125" in text,
        lambda pid: os.kill(pid, signal.SIGINT),
    )
    assert code == 130
    assert "cats-1 continues; `launch logs cats-1 --follow` resumes following it" in shown
    assert "\x1b[36malgo-1 |\x1b[0m loss=0.5" in shown  # each host in its colour
    assert "StopTrainingJob" not in {call["operation"] for call in aws.calls()}
    assert aws.job("cats-1")["TrainingJobStatus"] == "InProgress"


@pytest.mark.usefixtures("quick_sleep")
def test_lines_of_a_deleted_job_of_the_same_name_are_not_shown(aws: StandIn) -> None:
    job(aws)
    aws.log("cats-1", ["loss=9", "RuntimeError: of the older job"], host="algo-1", started=1700000000)
    aws.log("cats-1", ["older"], host="algo-2", started=1700000000)
    aws.log("cats-1", ["loss=0.5", "ValueError: of this one"])
    aws.job("cats-1", "Failed", reason="AlgorithmError: ExitCode 1")
    mine = ["algo-1 | loss=0.5", "algo-1 | ValueError: of this one"]
    assert launch("logs", "cats-1").stdout.splitlines() == mine
    followed = launch("logs", "cats-1", "--follow")
    assert followed.stdout.splitlines() == mine
    for shown in (followed, launch("status", "cats-1")):
        assert "of this one" in shown.stderr + shown.stdout
        assert "older" not in shown.stdout + shown.stderr
