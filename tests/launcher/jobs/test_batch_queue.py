"""Jobs in a queue: one service job whatever fails, followed through its attempts, and known to status, list and stop."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import cache
from typing import Any

import pytest
from botocore.serialize import create_serializer
from botocore.session import get_session

import launcher
from aws_stand_in import StandIn
from forked import LAUNCHER, Forked
from launcher.aws.session import Account
from launcher.console import Console
from launcher.errors import AccountError, LaunchError
from launcher.jobs.follow import View, follow
from launcher.jobs.submission import Submitted, submit
from launching import launch
from patience import PATIENCE, wait_for

SETS = {"queue.name": "gpu", "queue.share": "vision", "queue.priority": 7, "queue.attempts": 2, "queue.timeout": "2h"}


@pytest.fixture
def queue(aws: StandIn, submittable: None) -> StandIn:
    aws.queue("other", jobQueueType="EKS")
    aws.queue("gpu")
    return aws


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@cache
def account(endpoint: str) -> Account:
    return Account(region="us-east-1")


def submitted(plan: launcher.Plan) -> Submitted:
    return submit(plan, account(os.environ["AWS_ENDPOINT_URL"]), Console())


def service_jobs(aws: StandIn) -> list[dict[str, Any]]:
    filters = [{"name": "AFTER_CREATED_AT", "values": ["0"]}]
    found: list[dict[str, Any]] = aws.client("batch").list_service_jobs(jobQueue="gpu", filters=filters)[
        "jobSummaryList"
    ]
    return found


def test_queue_gets_the_same_request_byte_for_byte_and_all_that_dry_run_shows(queue: StandIn) -> None:
    plan = launcher.plan("job.yaml", set=SETS)
    job = submitted(plan)
    (call,) = queue.calls("SubmitServiceJob")
    model = get_session().get_service_model("sagemaker")
    sent = create_serializer("json").serialize_to_request(plan.request, model.operation_model("CreateTrainingJob"))
    assert call["parameters"]["serviceRequestPayload"].encode() == sent["body"]
    more = [f"--set={key}={value}" for key, value in SETS.items()]
    shown = launch("job.yaml", *more, "--dry-run", "--show-secrets", "--json")
    assert json.loads(shown.stdout) == call["parameters"]
    assert call["parameters"]["timeoutConfig"] == {"attemptDurationSeconds": 7200}
    assert (job.queue, job.service_job, queue.requests()) == ("gpu", service_jobs(queue)[0]["jobId"], [])
    assert '"TOKEN": "${TOKEN:-hidden-value}"' in launch("job.yaml", "--queue", "gpu", "--dry-run").stdout


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["reset", "reset-after", "throttle", "500", "500-after"])
@pytest.mark.parametrize("operation", ["SubmitServiceJob", "ListServiceJobs", "DescribeServiceJob"])
def test_fault_at_each_call_leaves_one_service_job(queue: StandIn, kind: str, operation: str) -> None:
    if operation == "DescribeServiceJob":  # it is called only if an answer was lost
        queue.fault("reset-after", "batch:SubmitServiceJob")
    queue.fault(kind, f"batch:{operation}")
    assert submitted(launcher.plan("job.yaml", set=SETS)).was_found is False
    assert len(service_jobs(queue)) == 1


@pytest.mark.usefixtures("quick")
def test_answers_lost_for_long_report_that_the_job_may_exist(queue: StandIn) -> None:
    queue.fault("reset-after", "batch:SubmitServiceJob", count=-1)
    assert submitted(launcher.plan("job.yaml", set=SETS)).service_job  # found by its name
    queue.fault("500", "batch:ListServiceJobs", nth=2, count=-1)
    with pytest.raises(
        LaunchError, match=r"whether the job exists is unknown.*`launch status digits-2` shows it later"
    ):
        submitted(launcher.plan("job.yaml", name="digits-2", set=SETS))


def test_ctrl_c_during_submission_and_repeated_command_leave_one_job(queue: StandIn) -> None:
    queue.fault("hang", "batch:SubmitServiceJob", seconds=2 * PATIENCE)
    with Forked(LAUNCHER, ["-m", "launcher", "job.yaml", "--no-check", "--queue", "gpu"]) as process:
        wait_for(lambda: len(queue.calls("SubmitServiceJob")) == 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    queue.clear_faults()
    assert (process.returncode, "`launch status digits-1` shows whether it exists" in err) == (130, True)
    again = launch("job.yaml", "--no-check", "--queue", "gpu")
    assert (again.returncode, len(service_jobs(queue))) == (3, 1)
    assert "a training job 'digits-1' exists already" in again.stderr


def test_name_in_queue_is_taken_once(queue: StandIn) -> None:
    submitted(launcher.plan("job.yaml", set=SETS))
    with pytest.raises(AccountError, match=r"'digits-1' exists already"):
        submitted(launcher.plan("job.yaml", set={**SETS, "hyperparameters.epochs": 9}))
    assert len(service_jobs(queue)) == 1


def test_simultaneous_submission_of_the_same_request_is_found(queue: StandIn) -> None:
    plan = launcher.plan("job.yaml", set=SETS)
    other = launch("job.yaml", "--no-check", *[f"--set={key}={value}" for key, value in SETS.items()])
    assert other.returncode == 0, other.stderr
    queue.fault("refuse", "batch:ListServiceJobs", code="AccessDeniedException", message="no", status=403)
    assert submitted(plan).was_found is True  # it was not listed before, so AWS refuses the client token
    assert len(service_jobs(queue)) == 1


def test_missing_queue_and_missing_permission_are_refused_at_the_queue(queue: StandIn) -> None:
    with pytest.raises(LaunchError, match=r"Job queue cpu does not exist"):
        submitted(launcher.plan("job.yaml", set={"queue.name": "cpu"}))
    queue.deny("batch:SubmitServiceJob")
    done = launch("job.yaml", "--no-check", "--queue", "gpu")
    assert (done.returncode, "batch:SubmitServiceJob" in done.stderr) == (3, True)
    assert "--set queue.name" in done.stderr or "queue:" in done.stderr


@pytest.mark.usefixtures("quick_sleep")
def test_job_is_followed_through_queue_and_attempts_to_its_last_log(
    queue: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(launcher.plan("job.yaml", set=SETS))
    names: list[str] = []

    def attempt(line: str) -> None:
        names.append(queue.start_attempt("digits-1"))
        queue.job(names[-1], "Training")
        queue.log(names[-1], [line])

    def second() -> None:
        queue.job(names[0], "Stopped")
        queue.service_job("digits-1", "RUNNABLE", "Preempted by a job of another share")

    def last() -> None:
        queue.job(names[1], "Completed")
        queue.service_job("digits-1", "SUCCEEDED", "Received status from SageMaker: Training job completed")

    events = iter([lambda: attempt("first"), lambda: None, second, lambda: attempt("again"), lambda: None, last])
    real = Account.call

    def call(self: Account, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        answer = real(self, service, operation, **parameters)
        if operation == "describe_service_job":
            next(events, lambda: None)()
        return answer

    monkeypatch.setattr(Account, "call", call)
    view = View(settling=0.2)
    outcome = follow(Account(), "digits-1", Console(), view, service_job=job.service_job)
    out, err = capsys.readouterr()
    assert (outcome.exit_code, outcome.name) == (0, names[1])
    assert out.splitlines() == ["algo-1 | first", "algo-1 | again"]
    assert "Queued      in gpu (RUNNABLE)" in err
    assert "attempt 1 ended: Preempted by a job of another share" in err
    assert "queue      gpu: digits-1 (SUCCEEDED), attempt 2" in err
    assert outcome.as_data()["ServiceJob"]["Attempts"] == 2
    assert queue.calls("DescribeJobQueues") == []  # the ID is known


def test_status_list_logs_and_stop_know_queued_job(queue: StandIn) -> None:
    done = launch("job.yaml", "--no-check", "--queue", "gpu")
    assert (done.returncode, done.stdout) == (0, "digits-1\n")
    assert "queued    digits-1 in gpu, us-east-1" in done.stderr
    assert "in gpu (RUNNABLE)" in launch("status", "digits-1").stdout
    listed = json.loads(launch("list", "--queue", "gpu", "--json").stdout)
    assert [(job["TrainingJobName"], job["TrainingJobStatus"]) for job in listed] == [("digits-1", "Queued")]
    assert "digits-1: Queued; no lines yet" in launch("logs", "digits-1").stderr
    name = queue.start_attempt("digits-1")
    queue.log(name, ["hello"])
    assert "algo-1 | hello" in launch("logs", "digits-1").stdout
    assert json.loads(launch("status", "digits-1", "--json").stdout)["TrainingJobName"] == name
    assert launch("list").stdout.startswith(f"{name}  InProgress ")
    assert launch("stop", "digits-1").stderr.startswith("digits-1: stopping; its script has 120 s")
    assert queue.service_job("digits-1", "FAILED")["isTerminated"] is True
    assert launch("stop", "other-1").returncode == 3


def test_job_stopped_in_the_queue_ends_as_stopped(queue: StandIn) -> None:
    assert launch("job.yaml", "--no-check", "--queue", "gpu").returncode == 0
    assert launch("job.yaml", "--no-check", "--queue", "gpu", "--name", "digits-2").returncode == 0
    rows = launch("compare", "digits-1", "digits-2").stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["digits-1", "Queued"], ["digits-2", "Queued"]]
    assert launch("stop", "digits-1").stderr == "digits-1: removed from its queue; no script was running\n"
    assert "digits-1: Stopped" in launch("status", "digits-1").stdout
    rerun = launch("rerun", "digits-1", "--dry-run", "--json")
    assert json.loads(rerun.stdout)["ResourceConfig"]["InstanceType"] == "ml.m5.large", rerun.stderr


def test_attempts_count_against_max_cost(queue: StandIn) -> None:
    one = launch("job.yaml", "--no-check", "--queue", "gpu", "--set", "max_cost=0.2")
    two = launch("job.yaml", "--no-check", "--queue", "gpu", "--set", "max_cost=0.2", "--set", "queue.attempts=4")
    assert (one.returncode, two.returncode) == (0, 3)
    assert "in each of 4 runs" in two.stderr
