"""Trouble around the creation of a job: Ctrl-C at any moment, a first Describe that fails, and closed output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from forked import LAUNCHER, Forked
from launcher.aws.session import Account
from launcher.console import Console
from launcher.jobs.follow import follow
from launching import launch
from patience import PATIENCE, wait_for

LAUNCH = [sys.executable, "-m", "launcher"]


@pytest.fixture(autouse=True)
def completing(aws: StandIn, submittable: None) -> None:
    """Let each job complete as soon as it is created."""
    aws.script({"status": "Training", "after": 0}, {"status": "Completed", "after": 0})


def interrupted(
    until: Callable[[], bool], *arguments: str, number: signal.Signals = signal.SIGINT
) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a submission that gets a signal as soon as `until` is true."""
    with Forked(LAUNCHER, ["-m", "launcher", "job.yaml", "--no-check", *arguments]) as process:
        wait_for(until)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)  # the hanging call lasts longer
        return process.wait(), out, err


def calls(aws: StandIn, operation: str, count: int = 1) -> Callable[[], bool]:
    return lambda: len(aws.calls(operation)) >= count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_during_upload_leaves_no_job_and_no_temporary_file(
    aws: StandIn, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    aws.fault("hang", "s3:PutObject", seconds=2 * PATIENCE, count=-1)
    code, _, err = interrupted(calls(aws, "PutObject"), number=number)
    aws.clear_faults()
    assert (code, err.strip().splitlines()[-1]) == (130, "interrupted")
    assert "Traceback" not in err
    assert aws.requests() == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("hangs", ["CreateTrainingJob", "DescribeTrainingJob"])
def test_ctrl_c_during_creation_names_command_to_look_up_job(aws: StandIn, hangs: str) -> None:
    if hangs == "DescribeTrainingJob":
        aws.fault("reset-after", "sagemaker:CreateTrainingJob", count=-1)
    aws.fault(
        "hang", f"sagemaker:{hangs}", nth=1 if hangs == "CreateTrainingJob" else 2, seconds=2 * PATIENCE, count=-1
    )
    code, out, err = interrupted(calls(aws, hangs, 1 if hangs == "CreateTrainingJob" else 2), "--json")
    aws.clear_faults()
    assert code == 130
    assert "`launch status digits-1` shows whether it exists" in err
    assert "`launch status digits-1" in json.loads(out)["error"]


def test_ctrl_c_before_first_description_reports_that_job_continues(aws: StandIn) -> None:
    aws.fault("hang", "sagemaker:DescribeTrainingJob", nth=2, seconds=2 * PATIENCE, count=-1)
    code, out, err = interrupted(calls(aws, "DescribeTrainingJob", 2), "--wait", "--json")
    aws.clear_faults()
    assert (code, json.loads(out)["ExitCode"]) == (130, 130)
    assert "digits-1 continues; `launch logs digits-1 --follow` resumes following it" in err
    assert "stopped" not in err


@pytest.mark.parametrize(("kind", "count"), [("500", 7), ("reset", 14)])  # botocore makes six attempts of a call
@pytest.mark.usefixtures("quick_sleep")
def test_failing_first_describe_is_retried(aws: StandIn, kind: str, count: int) -> None:
    aws.fault(kind, "sagemaker:DescribeTrainingJob", nth=2, count=count)
    done = launch("job.yaml", "--no-check", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    assert "trying again until it works" in done.stderr
    assert json.loads(done.stdout)["TrainingJobStatus"] == "Completed"


@pytest.mark.usefixtures("quick_sleep")
def test_logs_with_follow_retries_first_describe(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("job.yaml", "--no-check").returncode == 0
    aws.fault("throttle", "sagemaker:DescribeTrainingJob", count=7)
    assert follow(Account(), "digits-1", Console()).exit_code == 0
    err = capsys.readouterr().err
    assert "trying again until it works" in err
    assert "digits-1: Completed" in err


def test_credentials_expiring_after_creation_report_that_job_continues(aws: StandIn) -> None:
    aws.fault("expired", "sagemaker:DescribeTrainingJob", nth=2, count=-1)
    done = launch("job.yaml", "--no-check", "--wait", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["exit_code"] == 3
    for said in ("credentials have expired", "the job is not affected", "`launch logs digits-1 --follow`"):
        assert said in done.stderr


def test_submission_without_permission_to_describe_cannot_be_followed(aws: StandIn) -> None:
    aws.deny("sagemaker:DescribeTrainingJob")
    done = launch("job.yaml", "--no-check", "--json")
    assert (done.returncode, json.loads(done.stdout)["TrainingJobName"]) == (0, "digits-1")
    done = launch("job.yaml", "--no-check", "--wait", "--name", "digits-2")
    assert done.returncode == 3
    assert "created   digits-2" in done.stderr
    assert "the job is not affected: resume with `launch logs digits-2 --follow`" in done.stderr


def into(target: str, *arguments: str) -> tuple[int, str]:
    """Return exit code and stderr of a command whose stdout is a closed pipe, a full disk, or closed, as stdin is then."""
    words = " ".join([*LAUNCH, *arguments])
    line = {
        "pipe": f"{words} | true; exit ${{PIPESTATUS[0]}}",
        "full": f"{words} > /dev/full",
        "closed": f"{words} <&- >&-",
    }
    done = subprocess.run(["bash", "-c", line[target]], capture_output=True, text=True, timeout=PATIENCE)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("buffered", ["", "1"])
def test_created_job_is_reported_if_stdout_is_closed(buffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", buffered)
    exists = "exists and continues; `launch logs"
    code, err = into("pipe", "job.yaml", "--no-check")
    assert (code, exists in err) == (141, True)
    code, err = into("full", "job.yaml", "--no-check", "--name", "digits-2", "--json")
    assert (code, exists in err, "No space left on device" in err) == (3, True, True)
    code, err = into(
        "pipe", "job.yaml", "--no-check", "--name", "digits-1", "--json"
    )  # the error cannot be printed either
    assert (code, "exists and" in err) == (141, False)


def test_closed_pipe_ends_other_commands_silently(aws: StandIn) -> None:
    launch("job.yaml", "--no-check")
    for arguments in (
        ["list"],
        ["list", "--json"],
        ["status", "digits-1", "--json"],
        ["job.yaml", "--dry-run", "--show-secrets", "--set", "code=null"],
        ["cost", "job.yaml"],
    ):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as stdout:  # noqa: PTH123 - a descriptor
            done = launch(*arguments, stdout=stdout)
        assert (done.returncode, done.stderr) == (141, ""), arguments


def test_closed_or_full_stdout_ends_other_commands_with_their_code(aws: StandIn) -> None:
    assert into("closed", "job.yaml", "--no-check")[0] == 0
    assert into("pipe", "list") == (141, "")
    assert into("pipe", "job.yaml", "--check", "--json")[0] == 141
    assert into("full", "list")[0] == 3


def test_closed_pipe_while_following_reports_that_job_continues(aws: StandIn) -> None:
    aws.log("digits-1", ["x" * 100] * 3000)
    line = f"{' '.join(LAUNCH)} job.yaml --no-check --follow | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 141
    assert done.stdout.startswith("algo-1 | x")
    assert "digits-1 exists and continues" in done.stderr
