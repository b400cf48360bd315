"""`--check` on the command line: what it prints, and when it fails."""

from __future__ import annotations

import json
import re

import pytest

from aws_stand_in import StandIn
from launching import launch

pytestmark = pytest.mark.usefixtures("submittable")


def test_strict_fails_if_no_question_could_be_asked(aws: StandIn) -> None:
    aws.deny("*")
    asked = launch("job.yaml", "--check")
    assert (asked.returncode, "passed" in asked.stderr) == (0, False)
    strict = launch("job.yaml", "--check", "--strict")
    unanswered = sum(line.startswith("not asked: ") for line in strict.stderr.splitlines())
    assert unanswered > 10
    assert strict.returncode == 3
    error = strict.stderr.splitlines()[-1]
    last = re.match(
        r"error: (\d+) questions could not be asked, which --strict does not allow; get the permissions", error
    )
    assert last is not None
    assert int(last[1]) >= unanswered  # a line can be about several
    as_json = launch("job.yaml", "--check", "--strict", "--json")
    assert as_json.returncode == 3
    assert "passed" not in {check["status"] for check in json.loads(as_json.stdout)["checks"]}
    sweep = launch("job.yaml", "--check", "--json", "--matrix", "resource_config.instance_count=1,2")
    assert sweep.returncode == 0
    assert [sorted(each) for each in json.loads(sweep.stdout)] == [sorted(json.loads(as_json.stdout))] * 2


def test_strict_submission_creates_no_job_if_a_question_could_not_be_asked(aws: StandIn) -> None:
    aws.deny("service-quotas:*")
    assert launch("job.yaml", "--strict", "--yes").returncode == 3
    assert aws.requests() == []


@pytest.mark.parametrize("command", [["job.yaml", "--check"], ["job.yaml"], ["status", "digits-1"], ["list"]])
@pytest.mark.parametrize("kind", ["invalid", "skewed"])
def test_rejected_credentials_end_each_command_with_one_line(aws: StandIn, command: list[str], kind: str) -> None:
    aws.fault(kind, "*", count=-1)
    done = launch(*command)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("code  ")]
    assert line.startswith(("error: AWS does not accept the credentials; ", "error: this machine's clock differs"))


@pytest.mark.parametrize(
    ("kind", "remedy"), [("denied", "ask the account's administrator for this permission"), ("500", "try again later")]
)
def test_refusal_that_ends_a_command_has_a_remedy(aws: StandIn, kind: str, remedy: str) -> None:
    aws.fault(kind, "sagemaker:ListTrainingJobs", count=-1)
    done = launch("list")
    assert done.returncode == 3
    assert re.fullmatch(rf"error: sagemaker:ListTrainingJobs: .*; {remedy}\n", done.stderr)
