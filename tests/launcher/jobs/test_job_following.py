"""Following a job: what is shown, how it ends, and what faults and refusals do."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

import pytest

from aws_stand_in import StandIn
from followed_job import job
from launcher.aws.session import Account
from launcher.console import Console, duration
from launcher.errors import RefusedError
from launcher.jobs.follow import View, follow
from launcher.jobs.lines import Selection
from launching import launch
from rank_failures import host_logs


def followed(**view: Any) -> Any:
    return follow(Account(), "cats-1", Console(), View(settling=0.2, **view))


def test_duration_shows_two_largest_units() -> None:
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


def test_completed_job_shows_lines_metrics_and_outputs(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
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
        r"T\d\d:\d\d:\d\d[+-]\d\d:\d\d Training +Training image download completed.*\(Downloading took 1 min [345]\d s\)",
        err,
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


@pytest.mark.usefixtures("quick_sleep")
@pytest.mark.parametrize(("hosts", "failing", "place"), [(1, 5, "rank 5"), (4, 21, "rank 21 on algo-3")])
def test_every_command_finds_the_same_cause(
    aws: StandIn, capsys: pytest.CaptureFixture[str], hosts: int, failing: int, place: str
) -> None:
    job(aws, hosts=hosts)
    aws.job("cats-1", "Training")
    for host, lines in host_logs(hosts, failing).items():
        shown, times = [line.message for line in lines], [line.timestamp for line in lines]
        aws.log("cats-1", shown, host=host, timestamps=times)
    aws.job("cats-1", "Failed", reason="AlgorithmError: , exit code: 1")
    causes = [followed(logs=logs).as_data()["LikelyCause"] for logs in (True, False)]
    followed_shown = capsys.readouterr().err.split("likely     ")[1:]
    status = json.loads(launch("status", "cats-1", "--json").stdout)
    assert causes == [status["LikelyCause"]] * 2
    for text in (*followed_shown, launch("status", "cats-1").stdout.partition("likely     ")[2]):
        assert text.startswith(f"{place}: the GPU's memory was full [out-of-memory-gpu]\n")


def test_failed_job_shows_reason_and_likely_cause(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws)
    aws.job("cats-1", "Training")
    aws.log("cats-1", ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'timm'"])
    aws.job("cats-1", "Failed", reason="AlgorithmError: , exit code: 1")
    for logs in (True, False):  # without the log as well, its last lines explain the failure
        assert followed(logs=logs).exit_code == 4
        out, err = capsys.readouterr()
        assert bool(out) is logs
        assert "reason     AlgorithmError: , exit code: 1" in err
        assert "likely     neither the image nor the code has a module timm [missing-module]" in err
        assert "remedy     add its package to code.requirements" in err


def test_job_stopped_by_its_limit_shows_reason(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws)
    aws.job("cats-1", "MaxRuntimeExceeded")
    assert followed().exit_code == 5
    assert "max_runtime_in_seconds is 3600 [max-runtime]" in capsys.readouterr().err


def test_statuses_are_printed_as_they_change(
    aws: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.jobs.follow.DESCRIBE_SECONDS", 0.1)
    monkeypatch.setattr("launcher.jobs.follow.ROUND_SECONDS", 0.1)
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
    shown = re.findall(r"^\S+T\d\d:\d\d:\d\d[+-]\d\d:\d\d (\w+) +(.*)$", capsys.readouterr().err, re.MULTILINE)
    assert [status for status, _ in shown] == [
        "Starting", "Starting", "Training", "Interrupted", "Starting", "Training", "Completed",
    ]  # fmt: skip
    assert shown[1][1] == "Launching requested ML instances"
    assert shown[4][1].startswith("Waiting for spot capacity (Interrupted took")


def test_denied_lines_are_replaced_by_statuses(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws)
    aws.log("cats-1", ["hello"])
    aws.job("cats-1", "Completed")
    aws.deny("logs:*")
    assert followed().exit_code == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "logs:DescribeLogStreams" in err
    assert err.count("warning:") == 1


def test_expired_credentials_end_following_and_name_the_command_to_resume(aws: StandIn) -> None:
    job(aws)
    aws.fault("expired", "logs:*", count=-1)
    with pytest.raises(RefusedError, match="resume with `launch logs cats-1 --follow`"):
        followed()


def test_ended_job_is_reported_even_if_its_lines_cannot_be_read(
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


@pytest.mark.usefixtures("quick_sleep")
def test_lost_connection_is_retried_until_it_works(
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


@pytest.mark.usefixtures("quick_sleep")
def test_throttling_is_reported_once_and_does_not_end_following(
    aws: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    job(aws)
    aws.log("cats-1", ["a line"])
    aws.fault("throttle", "logs:*", count=200)
    aws.job("cats-1", "Completed")
    assert followed().exit_code == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["algo-1 | a line"]
    assert err.count("Rate exceeded [ThrottlingException]; trying again until it works") == err.count("warning:") > 0


def test_unknown_job_or_host_is_refused_with_nearest_name(aws: StandIn) -> None:
    job(aws, hosts=2)
    with pytest.raises(RefusedError, match=r"no training job 'cats-2'.*did you mean.* jobs of other kinds"):
        follow(Account(), "cats-2", Console())
    with pytest.raises(RefusedError, match="--host algo-3: cats-1 has algo-1 to algo-2"):
        followed(selection=Selection(host="algo-3"))
