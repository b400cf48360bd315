"""`launch top`: what hosts use, as lines, as JSON and in place, until the job ends; with faults and Ctrl-C."""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from aws_stand_in.running import FOREVER
from followed_job import job
from launching import launch
from terminals import on_terminal

NAMESPACE = "/aws/sagemaker/TrainingJobs"


def put(aws: StandIn, metric: str, value: float, minutes: int = 1, **dimension: str) -> None:
    """Put the value of some minutes ago into CloudWatch, with its one dimension."""
    at = datetime.now(timezone.utc) - timedelta(minutes=minutes)
    dimensions = [{"Name": name, "Value": text} for name, text in dimension.items()]
    data = {"MetricName": metric, "Dimensions": dimensions, "Timestamp": at, "Value": value}
    aws.client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=[data])


@pytest.fixture
def running(aws: StandIn) -> StandIn:
    """A job on two hosts, of which CloudWatch has values of two minutes."""
    job(aws, hosts=2)
    aws.job("cats-1", "Training")
    for minutes, value in ((4, 10.0), (1, 350.5)):
        put(aws, "CPUUtilization", value, minutes, Host="cats-1/algo-1")
    put(aws, "MemoryUtilization", 41.25, Host="cats-1/algo-2")
    put(aws, "loss", 0.25, TrainingJobName="cats-1")
    put(aws, "CPUUtilization", 99.0, Host="cats-12/algo-1")
    aws.clear_calls()
    return aws


def test_json_has_the_latest_values_of_each_host_and_metric(running: StandIn) -> None:
    shown = json.loads(launch("top", "cats-1", "--once", "--json").stdout)
    assert shown["Hosts"] == {"algo-1": {"cpu": 350.5}, "algo-2": {"memory": 41.25}}
    assert shown["Metrics"] == {"loss": 0.25}
    assert shown["SecondaryStatus"] == "Training"
    assert [call["operation"] for call in running.calls()] == ["DescribeTrainingJob", "GetMetricData"]


@pytest.mark.usefixtures("quick_sleep")
def test_throttling_does_not_end_it_but_the_end_of_the_job_does(running: StandIn) -> None:
    running.fault("throttle", "sagemaker:DescribeTrainingJob", count=6)
    running.fault("throttle", "cloudwatch:GetMetricData", count=6)
    running.fault("reset", "sagemaker:DescribeTrainingJob", nth=9, count=6)

    def complete() -> None:
        while sum(call["outcome"] == 200 for call in running.calls("GetMetricData")) < 3:
            time.sleep(0)
        running.job("cats-1", "Completed")

    thread = threading.Thread(target=complete)
    thread.start()
    done = launch("top", "cats-1")
    thread.join()
    assert done.returncode == 0, done.stderr
    hosts, values = zip(*(line.split()[1:] for line in done.stdout.splitlines()), strict=True)
    assert hosts == ("algo-1", "algo-2", "metrics"), "values that do not change are not repeated"
    assert values == ("cpu=350.5%", "memory=41.2%", "loss=0.25")
    assert "trying again until it works" in done.stderr
    assert "cats-1: Completed; `launch status cats-1` shows how it ended" in done.stderr


def test_refusals_and_jobs_without_values_are_reported(aws: StandIn) -> None:
    job(aws)
    done = launch("top", "cats-1", "--once")
    assert (done.returncode, done.stdout) == (0, "")
    assert "CloudWatch has no values; they appear some minutes after the training has begun" in done.stderr
    assert "did you mean cats-1" in launch("top", "cats-2").stderr
    aws.fault("denied", "cloudwatch:*", count=FOREVER)
    done = launch("top", "cats-1")
    assert done.returncode == 3
    assert "not authorized to perform: cloudwatch:GetMetricData" in done.stderr


def test_terminal_is_redrawn_in_place_until_ctrl_c(running: StandIn, tmp_path: Path) -> None:
    program = "import launcher.commands.top as top, launcher.cli as cli; top._REFRESH_SECONDS = 0.1; cli.main()"
    command = ["env", "TERM=xterm", "COLUMNS=100", sys.executable, "-c", program, "top", "cats-1"]
    with on_terminal(command, tmp_path) as terminal:
        terminal.wait_for("350.5", times=2)
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "\x1b[1A" in terminal.shown  # the cursor goes up to draw again
    assert terminal.shown.rfind("\x1b[?25h") > terminal.shown.rfind("\x1b[?25l") >= 0  # the cursor is shown again
    assert "Traceback" not in terminal.shown
    assert running.writing_calls() == []
