"""Following a job without a user: stopped on a signal, a command at the end, GitHub's annotations and summary, the last lines."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from followed_job import job
from forked import LAUNCHER, Forked
from launching import launch
from patience import PATIENCE, wait_for
from submitted_spec import SPEC

SUBMIT = ("submit", "job.yaml", "--no-check", "--yes", "--wait")
COMPLETED = [{"status": "Training", "after": 0}, {"status": "Completed", "billable": 3600, "after": 0}]


@pytest.fixture
def completing(submittable: None, aws: StandIn) -> StandIn:
    """The account and folder of a spec whose job completes at once."""
    aws.script(*COMPLETED)
    return aws


def stopped_on_exit(*options: str) -> Forked:
    return Forked(LAUNCHER, ["-m", "launcher", *SUBMIT, "--stop-on-exit", *options])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_followed_job(submittable: None, aws: StandIn, number: int) -> None:
    with stopped_on_exit() as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("created"):
            assert process.poll() is None
        process.send_signal(number)
        shown = process.stderr.read()
        assert process.wait(PATIENCE) == 130
    assert "digits-1: stopping; its script has 120 s to save" in shown
    assert "continues" not in shown
    assert aws.writing_calls()[-1].endswith("StopTrainingJob")


def test_signal_during_creation_stops_the_job(submittable: None, aws: StandIn) -> None:
    aws.order("faults", kind="hang", operation="sagemaker:CreateTrainingJob", seconds=1)
    with stopped_on_exit() as process:
        while "CreateTrainingJob" not in [call["operation"] for call in aws.calls()]:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 130
    assert aws.job("digits-1")["TrainingJobStatus"] == "Stopping"


def test_signal_during_upload_creates_no_job(submittable: None, aws: StandIn) -> None:
    aws.fault("hang", "s3:PutObject", seconds=2 * PATIENCE)
    with stopped_on_exit("--json") as process:
        wait_for(lambda: bool(aws.calls("PutObject")))
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=PATIENCE)
    aws.clear_faults()
    assert (process.returncode, json.loads(shown)) == (130, {"error": "interrupted", "exit_code": 130})
    assert aws.requests() == []


def test_job_that_cannot_be_stopped_is_reported(submittable: None, aws: StandIn) -> None:
    aws.deny("sagemaker:StopTrainingJob")
    with stopped_on_exit("--json") as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("created"):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, shown = process.communicate(timeout=PATIENCE)
        assert (process.returncode, json.loads(out)["exit_code"]) == (3, 3)
    assert "digits-1 continues, since it cannot be stopped: " in shown
    assert "sagemaker:StopTrainingJob" in shown


def test_options_for_a_followed_job_need_one(submittable: None, aws: StandIn) -> None:
    for options in (["--stop-on-exit"], ["--on-end", "true"]):
        done = launch("submit", "job.yaml", *options)
        assert (done.returncode, "add --wait or --follow" in done.stderr) == (2, True)
        assert "exclude each other" in launch("submit", "job.yaml", "--dry-run", *options).stderr
    assert launch("logs", "digits-1", "--on-end", "true").returncode == 2
    assert aws.calls() == []


def test_command_at_the_end_gets_the_outcome(completing: StandIn, tmp_path: Path) -> None:
    command = 'echo "$NAME $STATUS $REASON $COST" > ended; echo printed'
    done = launch(*SUBMIT, "--json", "--on-end", command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["TrainingJobStatus"] == "Completed"
    name, status, cost = (tmp_path / "ended").read_text().split()
    assert (name, status) == ("digits-1", "Completed")
    assert float(cost) > 0.05
    done = launch("logs", "digits-1", "--follow", "--on-end", "exit 3")
    assert done.returncode == 0
    assert "warning: --on-end exit 3: it ended with exit code 3; the job is Completed" in done.stderr


def test_command_at_the_end_gets_no_secrets(submittable: None, aws: StandIn, tmp_path: Path) -> None:
    aws.script({"status": "Failed", "reason": "AlgorithmError: bad token hidden-value", "after": 0})
    assert launch(*SUBMIT, "--on-end", "env > ended").returncode == 4
    shown = (tmp_path / "ended").read_text()
    assert "REASON=AlgorithmError: bad token ${TOKEN:-hidden-value}\n" in shown  # as the spec has it
    assert shown.count("hidden-value") == 1


def test_problems_are_annotations_in_github_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b/job.yaml").write_text(SPEC.replace("s3://mine/train/", "s3://mine/100%:\\nno\n  more: 1"))
    monkeypatch.chdir(tmp_path / "a,b")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    done = launch("submit", "job.yaml", "--dry-run")
    assert done.returncode == 2
    first = next(line for line in done.stderr.splitlines() if line.startswith("::error"))
    head, _, message = first.removeprefix("::error ").partition("::")
    properties = dict(each.split("=") for each in head.split(","))
    assert properties.keys() == {"file", "line", "col", "title"}
    assert properties["file"] == "a%2Cb/job.yaml"
    assert message.startswith("job.yaml:")
    assert "error: " not in done.stderr
    assert "::error title=launch::" in launch("status", "a b").stderr
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::error" not in launch("submit", "job.yaml", "--dry-run").stderr


def test_outcome_is_in_the_summary_of_the_step(
    completing: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert launch(*SUBMIT).returncode == 0
    assert summary.read_text() == "before\n"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert launch("logs", "digits-1", "--follow").returncode == 0
    before, title, _, *table = summary.read_text().splitlines()
    assert (before, title, table[1]) == ("before", "### digits-1: Completed", "|---|---|")
    assert any(row.startswith("| console | https://") and "#/jobs/digits-1 |" in row for row in table)
    assert "| model | s3://mine/out/digits-1/output/model.tar.gz |" in table
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert "the step's summary cannot be written" in launch("logs", "digits-1", "--follow").stderr


@pytest.mark.parametrize("options", [[], ["--follow"]])
def test_tail_begins_with_the_last_lines(aws: StandIn, options: list[str]) -> None:
    job(aws)
    aws.job("cats-1", "Training")
    aws.log("cats-1", [f"line {number}" for number in range(20)], timestamps=list(range(1000, 1020)))
    aws.job("cats-1", "Completed")
    shown = launch("logs", "cats-1", "--tail", "3", *options).stdout.splitlines()
    assert shown == [f"algo-1 | line {number}" for number in (17, 18, 19)]
    shown = launch("logs", "cats-1", "--tail", "30", *options).stdout.splitlines()
    assert len(shown) == 20


def test_stop_takes_several_names(aws: StandIn) -> None:
    for name in ("a-1", "a-2"):
        job(aws, TrainingJobName=name)
    done = launch("stop", "a-1", "missing", "a-2")
    assert done.returncode == 3
    assert "there is no training job 'missing'" in done.stderr
    assert [each["TrainingJobStatus"] for each in json.loads(launch("stop", "a-1", "a-2", "--json").stdout)] == [
        "Stopping"
    ] * 2
