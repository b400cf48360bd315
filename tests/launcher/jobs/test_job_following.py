"""Following a job as a person or a script does: what is shown, how it ends, and what Ctrl-C and refusals do."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aws_stand_in import StandIn
from launcher.aws.account import Account
from launcher.console import Console
from launcher.durations import duration
from launcher.errors import RefusedError
from launcher.jobs.follow import View, follow
from launcher.jobs.logs.streams import Selection

METRICS = [{"Name": "loss", "Regex": r"loss=([0-9.]+)"}]
LOGS = [sys.executable, "-c", "import sys; from launcher.cli import main; main(['logs', *sys.argv[1:]])"]


def job(aws: StandIn, hosts: int = 1, **more: Any) -> None:
    request = {
        "TrainingJobName": "cats-1",
        "RoleArn": "arn:aws:iam::123456789012:role/trainer",
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": "image", "MetricDefinitions": METRICS},
        "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": hosts, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
        **more,
    }
    aws.client("sagemaker").create_training_job(**request)


def followed(**view: Any) -> Any:
    return follow(Account(), "cats-1", Console(), View(settling=0.2, **view))


def test_lengths_of_time() -> None:
    seconds = {
        0: "0 s",
        45.4: "45 s",
        200: "3 min 20 s",
        3600: "1 h",
        3905: "1 h 5 min",
        3605: "1 h",
        183_600: "2 d 3 h",
    }
    assert {length: duration(length) for length in seconds} == seconds


def test_a_job_that_completed(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws, hosts=2, EnableManagedSpotTraining=True, CheckpointConfig={"S3Uri": "s3://data/checkpoints"})
    for seconds, status in ((0, "Downloading"), (95, "Training"), (3600, "Uploading")):
        aws.advance(seconds)
        aws.job("cats-1", status)
    aws.log("cats-1", ["hello", "loss=0.5", "loss=0.25"], timestamps=[1000, 2000, 3000])
    aws.log("cats-1", ["world"], host="algo-2", timestamps=[1500])
    aws.job("cats-1", "Completed", billable=1000)
    outcome = followed()
    out, err = capsys.readouterr()
    assert out.splitlines() == ["algo-1 | hello", "algo-2 | world", "algo-1 | loss=0.5", "algo-1 | loss=0.25"]
    assert (outcome.exit_code, outcome.status, outcome.metrics) == (0, "Completed", {"loss": 0.25})
    assert re.search(
        r"\d\d:\d\d:\d\d Training +Training image download completed.*\(Downloading took 1 min 35 s\)", err
    )
    for expected in (
        "cats-1: Completed",
        "billed     16 min 40 s (1000 s) on each of 2 hosts; spot saved 73%",
        "model      s3://data/out/cats-1/output/model.tar.gz",
        "output     s3://data/out/cats-1/output/",
        "saved      checkpoints in s3://data/checkpoints",
        "metric     loss = 0.25",
    ):
        assert expected in err
    assert "cost" in err
    assert json.dumps(outcome.as_data())
    assert outcome.as_data()["ExitCode"] == 0


def test_a_job_that_failed(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws)
    aws.job("cats-1", "Training")
    aws.log("cats-1", ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'timm'"])
    aws.job("cats-1", "Failed", reason="AlgorithmError: , exit code: 1")
    for logs in (True, False):  # without the log, too, its last lines tell why
        assert followed(logs=logs).exit_code == 4
        out, err = capsys.readouterr()
        assert bool(out) is logs
        assert "reason     AlgorithmError: , exit code: 1" in err
        assert "likely     the image has no module timm, and neither has the code [missing-module]" in err
        assert "remedy     name its package in code.requirements" in err


def test_a_job_that_was_stopped_by_its_limit(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws)
    aws.job("cats-1", "MaxRuntimeExceeded")
    assert followed().exit_code == 5
    assert "max_runtime_in_seconds is 3600 [max-runtime]" in capsys.readouterr().err


def test_statuses_are_told_as_they_happen(
    aws: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.jobs.follow._DESCRIBE_SECONDS", 0.1)
    monkeypatch.setattr("launcher.jobs.follow._ROUND_SECONDS", 0.1)
    job(aws)
    changes = [
        {"message": "Launching requested ML instances"},
        {"status": "Training"},
        {"status": "Interrupted"},
        {"status": "Starting", "message": "Waiting for spot capacity"},
        {"status": "Training"},
        {"status": "Completed"},
    ]

    def change() -> None:
        for one in changes:
            seen = len(aws.calls("DescribeTrainingJob"))
            while len(aws.calls("DescribeTrainingJob")) < seen + 2:
                time.sleep(0.02)
            aws.job("cats-1", **one)

    thread = threading.Thread(target=change)
    thread.start()
    assert followed().exit_code == 0
    thread.join()
    told = re.findall(r"^\d\d:\d\d:\d\d (\w+) +(.*)$", capsys.readouterr().err, re.MULTILINE)
    assert [status for status, _ in told] == [
        "Starting", "Starting", "Training", "Interrupted", "Starting", "Training", "Completed",
    ]  # fmt: skip
    assert told[1][1] == "Launching requested ML instances"
    assert told[4][1].startswith("Waiting for spot capacity (Interrupted took")


def test_lines_that_may_not_be_read(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws)
    aws.log("cats-1", ["hello"])
    aws.job("cats-1", "Completed")
    aws.deny("logs:*")
    assert followed().exit_code == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "logs:DescribeLogStreams" in err
    assert err.count("warning:") == 1


def test_credentials_that_stay_expired_end_following_and_say_how_to_come_back(aws: StandIn) -> None:
    job(aws)
    aws.fault("expired", "logs:*", count=-1)
    with pytest.raises(RefusedError, match="`launch logs cats-1 --follow` comes back"):
        followed()


def test_a_job_that_has_ended_is_told_even_if_its_lines_can_no_longer_be_read(
    aws: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    job(aws)
    aws.log("cats-1", ["hello"])
    aws.job("cats-1", "Failed", reason="CapacityError: Unable to provision requested ML compute capacity.")
    aws.fault("expired", "logs:GetLogEvents", nth=2, count=-1)
    assert followed().exit_code == 4
    out, err = capsys.readouterr()
    assert out == "algo-1 | hello\n"
    assert "the job's last lines may be missing" in err
    assert "[capacity]" in err


def test_a_lost_connection_is_waited_out(
    aws: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    job(aws)
    aws.log("cats-1", ["before", "after"])
    aws.job("cats-1", "Completed")
    aws.fault("reset", "logs:GetLogEvents", nth=2, count=15)
    assert followed().exit_code == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["algo-1 | before", "algo-1 | after"]
    assert err.count("trying again until it works") == 1
    assert err.count("AWS answers again") == 1


@pytest.mark.parametrize("kind", ["truncated", "html"])
def test_follow_survives_answers_that_are_not_the_services(
    aws: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    job(aws)
    lines = [f"line {number}" for number in range(3000)]
    aws.log("cats-1", lines)
    aws.job("cats-1", "Completed")
    for operation in ("GetLogEvents", "DescribeLogStreams"):
        aws.fault(kind, f"logs:{operation}", nth=2, count=10)
    aws.fault(kind, "sagemaker:DescribeTrainingJob", count=6)
    assert followed().exit_code == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"algo-1 | {line}" for line in lines]
    assert "The job does not depend on this; after Ctrl-C, `launch logs cats-1 --follow` resumes" in err


def test_lines_that_are_throttled_for_long_are_reported_beside_statuses_that_are_not(
    aws: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds + 0.1))
    job(aws)
    aws.log("cats-1", ["a line"])
    aws.fault("throttle", "logs:*", count=200)
    aws.script({"status": "Training", "after": 0}, {"status": "Completed", "after": 10})
    aws.job("cats-1", "Completed")
    assert followed().exit_code == 0
    err = capsys.readouterr().err
    assert err.count("Rate exceeded [ThrottlingException]; trying again until it works") == 1
    assert err.count("AWS answers again") == 1


def test_there_is_no_such_job_or_host(aws: StandIn) -> None:
    job(aws, hosts=2)
    with pytest.raises(RefusedError, match=r"no training job 'cats-2'.*did you mean"):
        follow(Account(), "cats-2", Console())
    with pytest.raises(RefusedError, match="--host algo-3: cats-1 has algo-1 to algo-2"):
        followed(selection=Selection(host="algo-3"))


def launch_logs(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LOGS, *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_without_following(aws: StandIn, tmp_path: Path) -> None:
    job(aws, hosts=2)
    aws.job("cats-1", "Training")
    now = int(time.time() * 1000)
    aws.log("cats-1", ["old"], timestamps=[now - 7200_000])
    aws.log("cats-1", ["loss=0.5", "loss=0.25", "Straße"], timestamps=[now - 3000, now - 2000, now - 1000])
    aws.log("cats-1", ["other"], host="algo-2", timestamps=[now - 500])
    shown = launch_logs("cats-1", "--since", "10m", "--host", "algo-1", "--plot", str(tmp_path / "loss.svg"))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == ["algo-1 | loss=0.5", "algo-1 | loss=0.25", "algo-1 | Straße"]
    assert "cats-1 continues (Training); --follow shows the rest" in shown.stderr
    assert (tmp_path / "loss.svg").is_file()

    shown = launch_logs("cats-1", "--json")
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["message"] for line in lines] == ["old", "loss=0.5", "loss=0.25", "Straße", "other"]
    assert lines[-1]["host"] == "algo-2"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", lines[0]["timestamp"])


def test_the_command_following_for_machines(aws: StandIn) -> None:
    job(aws)
    aws.log("cats-1", ["loss=0.5"])
    aws.job("cats-1", "Failed", reason="CapacityError: Unable to provision requested ML compute capacity.")
    shown = launch_logs("cats-1", "--follow", "--json")
    assert shown.returncode == 4, shown.stderr
    line, result = (json.loads(line) for line in shown.stdout.splitlines())
    assert line["message"] == "loss=0.5"
    assert (result["TrainingJobStatus"], result["Metrics"], result["ExitCode"]) == ("Failed", {"loss": 0.5}, 4)


def test_a_reader_that_has_had_enough(aws: StandIn) -> None:
    job(aws)
    aws.log("cats-1", ["x" * 200] * 5000)
    aws.job("cats-1", "Completed")
    piped = subprocess.Popen([*LOGS, "cats-1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert piped.stdout is not None and piped.stderr is not None
    assert piped.stdout.readline().startswith("algo-1 | x")
    piped.stdout.close()
    assert piped.wait(30) == 141
    assert "Traceback" not in piped.stderr.read()
    piped.stderr.close()


def test_a_selection_that_holds_nothing_is_told_as_such(aws: StandIn) -> None:
    job(aws)
    aws.log("cats-1", ["old"], timestamps=[1000])
    assert "cats-1: no lines in this time;" in launch_logs("cats-1", "--since", "5s").stderr


def on_a_terminal(arguments: list[str], until: Callable[[str], bool], then: Callable[[int], None]) -> tuple[int, str]:
    """Run `launch logs` on a terminal; `then` gets its process id when `until` is true of what it has shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", COLUMNS="100", LINES="30")
        os.execv(LOGS[0], [*LOGS, *arguments])
    shown, done, end = "", False, time.monotonic() + 40
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                read = os.read(terminal, 65536)
            except OSError:  # Linux's way to say that nobody writes any more
                break
            shown += read.decode("utf-8", "replace")
        if not done and until(shown):
            done = True
            then(pid)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown


def test_ctrl_c_leaves_the_job_running(aws: StandIn) -> None:
    job(aws)
    aws.job("cats-1", "Training")
    aws.log("cats-1", ["loss=0.5", "loss=0.125"], timestamps=[1000, 2000])
    code, shown = on_a_terminal(
        ["cats-1", "--follow"],
        lambda text: "0.125" in text and "least" in text,
        lambda pid: os.kill(pid, signal.SIGINT),
    )
    assert code == 130
    assert "cats-1 continues; `launch logs cats-1 --follow` comes back to it" in shown
    assert "\x1b[36malgo-1 |\x1b[0m loss=0.5" in shown  # each host in its colour
    assert re.search(r"loss +0\.125 +0\.125 +0\.5 +2", shown)  # the table of metrics
    assert "StopTrainingJob" not in {call["operation"] for call in aws.calls()}
    assert aws.job("cats-1")["TrainingJobStatus"] == "InProgress"
