"""`max_cost`: no job is created that may cost more than the user has agreed to."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest

import launcher
import launching
from aws_stand_in import StandIn
from forked import LAUNCHER, Forked
from launcher.account.results import CheckResult
from launcher.commands.agreement import require_agreement
from launcher.console import Console
from launcher.cost.limit import VARIABLE, limit_of, objection
from launcher.errors import InputError, RefusedError

SPEC = """\
base_name: digits
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/trainer:1
role_arn: arn:aws:iam::123456789012:role/training
region: us-east-1
resource_config: {instance_type: ml.p5.48xlarge, instance_count: 16}
stopping_condition: {max_runtime_in_seconds: 28d}
output_data_config: {s3_output_path: s3://my-bucket/out/}
container_entrypoint: [python3, train.py]
channels:
  train: {s3_uri: s3://my-bucket/train/, input_mode: FastFile}
  list: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /lists}
  a: s3://my-bucket/a/
  b: s3://my-bucket/b/
  c: {source: S3Connector, s3_uri: s3://my-bucket/c/}
vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}
"""
SMALL = ("--set", "resource_config.instance_type=ml.g5.xlarge", "--set", "stopping_condition.max_runtime_in_seconds=1h")
UNKNOWN = ("--set", "resource_config.instance_type=ml.new1.large", "--ignore", "aws-enum")


@pytest.fixture(autouse=True)
def folder(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder with the spec of a job that may cost $680,558.60, without a user's setting."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "job.yaml").write_text(SPEC)
    return tmp_path


def launch(*arguments: str, answer: str | None = None, before: str = "") -> tuple[int, str]:
    """Return the exit code and output of `launch`.

    With an answer it runs on a terminal, where the answer is typed after the question, and `before` at the start.
    """
    arguments += ("--no-follow",)
    if answer is None:
        done = launching.launch(*arguments)
        return done.returncode, done.stdout + done.stderr
    ours, theirs = pty.openpty()
    streams = (theirs, subprocess.PIPE, subprocess.STDOUT)
    with Forked(LAUNCHER, ["-m", "launcher", *arguments], streams=streams) as process:
        os.write(ours, before.encode())
        output = ""
        while letter := process.stdout.read(1):
            output += letter
            if output.endswith("[y/N]: "):
                os.write(ours, answer.encode())
        os.close(ours)
        os.close(theirs)
    return process.wait(), output


def test_terminal_shows_plan_and_creates_nothing_after_no(aws: StandIn) -> None:
    code, output = launch("job.yaml", "--no-check", "--name", "one", answer="n\n")
    assert code == 5
    assert output.endswith("not submitted; nothing was created\n")
    assert output.splitlines()[:6] == [
        "runs      python3 train.py in 123456789012.dkr.ecr.us-east-1.amazonaws.com/trainer:1",
        "on        16 x ml.p5.48xlarge; region us-east-1",
        "data      train: s3://my-bucket/train/ by FastFile; list: fs-0123456789abcdef0:/lists on EFS, ro;"
        " a: s3://my-bucket/a/ by File; b: s3://my-bucket/b/ by File; 1 more",
        "time      at most 28 d",
        "cost      at most $680,558.60, an estimate: 16 x ml.p5.48xlarge for 28 d; `launch cost` shows more",
        "this needs your agreement: it can cost at most $680,558.60, more than max_cost $100.00 (the default)",
    ]
    assert aws.requests() == []


def test_no_answer_exceeds_a_locked_max_cost(aws: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "team.yaml").write_text("locked: {max_cost: 500}")
    monkeypatch.setenv("LAUNCH_TEAM", "team.yaml")
    code, output = launch("job.yaml", "--no-check", "--name", "one", answer="y\n")
    assert code == 2
    assert "more than max_cost $500.00 (team.yaml:1), which the team has locked" in output
    assert "[y/N]" not in output
    assert aws.requests() == []


@pytest.mark.parametrize("command", [["job.yaml", "--dry-run"], ["cost", "job.yaml"]])
def test_limit_is_compared_without_an_account(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    done = launching.launch(*command, "--set", "max_cost=700")
    assert "warning: it can cost at most $680,558.60, more than max_cost $700.00 (--set" in done.stderr
    done_by_default = launching.launch(*command)
    assert (done.returncode, done_by_default.returncode, done_by_default.stderr) == (0, 0, "")
    (folder / "team.yaml").write_text("locked: {max_cost: 500}")
    monkeypatch.setenv("LAUNCH_TEAM", "team.yaml")
    done = launching.launch(*command)
    assert (done.returncode, "which the team has locked" in done.stderr) == (2, True)
    done = launching.launch(*command, "--json")
    assert json.loads(done.stdout)["problems"][0]["code"] == "team-locked", "one document"


def test_dry_run_compares_a_whole_sweep_with_the_limit() -> None:
    small = ("job.yaml", *SMALL, "--set", "max_cost=30", "--dry-run")
    assert launching.launch(*small).stderr == ""
    assert (
        launching.launch(*small, "--matrix", "lr=1,2").stderr.count("in each of 2 runs, more than max_cost $30.00") == 1
    )


def test_keys_pressed_before_the_question_do_not_answer_it(aws: StandIn) -> None:
    assert launch("job.yaml", "--no-check", "--name", "one", before="y\n", answer="n\n")[0] == 5
    assert aws.requests() == []


def test_ctrl_c_at_the_question_creates_nothing(aws: StandIn) -> None:
    code, output = launch("job.yaml", "--no-check", "--name", "one", answer="\x04")
    assert (code, output.splitlines()[-1]) == (130, "interrupted; nothing was created")
    assert aws.requests() == []


def test_yes_answers_the_question(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch("job.yaml", "--no-check", "--name", "one", answer="y\n")[0] == 0
    code, shown = launch("job.yaml", "--no-check", "--name", "two", "--yes")
    assert code == 0 and "cost      at most $" in shown
    monkeypatch.setenv(VARIABLE, "5")
    assert launch("job.yaml", "--no-check", "--name", "three", answer="y\n")[0] == 0
    assert len(aws.requests()) == 3


@pytest.mark.parametrize("answer", [None, ""])
def test_yes_lifts_no_limit_that_is_set(aws: StandIn, monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    monkeypatch.setenv(VARIABLE, "30")
    code, output = launch("job.yaml", "--no-check", "--name", "one", "--yes", answer=answer)
    assert (
        code,
        f"more than max_cost $30.00 ({VARIABLE}); nothing was created. Raise max_cost ({VARIABLE}), unset" in output,
    ) == (
        3,
        True,
    )
    code, output = launch("job.yaml", "--no-check", "--name", "one", "--yes", *UNKNOWN, answer=answer)
    assert (code, f"nothing was created. Raise max_cost ({VARIABLE}), unset it and agree with --yes" in output) == (
        3,
        True,
    )
    assert launch("job.yaml", "--no-check", "--name", "one", "--yes", "--set", "max_cost=5", answer=answer)[0] == 3
    assert aws.requests() == []


def test_plan_shows_what_the_checks_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    notes = [((), "account 123456789012, region us-east-1"), (("channels", "train", "s3_uri"), "8 objects, 1.6 MB")]
    report = launcher.Report([CheckResult("prefixes", [], notes, [], True)], 0.1)
    ours, theirs = pty.openpty()
    with open(theirs) as terminal:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdin", terminal)
        require_agreement(launcher.plan("job.yaml"), "us-east-1", Console(), report)
    os.close(ours)
    shown = capsys.readouterr().err
    assert "on        16 x ml.p5.48xlarge; account 123456789012, region us-east-1\n" in shown
    assert "data      train: s3://my-bucket/train/ by FastFile (8 objects, 1.6 MB); list: " in shown


def test_small_job_is_not_asked_about(aws: StandIn) -> None:
    code, output = launch("job.yaml", "--no-check", "--name", "one", *SMALL, answer="")
    assert (code, "agreement" in output) == (0, False)
    assert len(aws.requests()) == 1


def test_unknown_price_is_asked_about(aws: StandIn) -> None:
    code, output = launch("job.yaml", "--no-check", "--name", "one", *UNKNOWN, answer="n\n")
    assert code == 5
    assert "what it can cost is unknown: no price is known for ml.new1.large" in output
    assert aws.requests() == []


def test_without_terminal_each_limit_refuses(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = launch("job.yaml", "--no-check", "--name", "one")
    assert code == 3
    assert "more than max_cost $100.00 (the default); nothing was created. Set max_cost in the spec to what" in output
    assert launch("job.yaml", "--no-check", "--name", "one", *UNKNOWN)[0] == 3
    assert launch("job.yaml", "--no-check", "--name", "one", *SMALL)[0] == 0
    monkeypatch.setenv(VARIABLE, "680558")
    code, output = launch("job.yaml", "--no-check", "--name", "two")
    assert code == 3
    assert "it can cost at most $680,558.60, more than max_cost $680,558.00 (LAUNCH_MAX_COST)" in output
    code, output = launch("job.yaml", "--no-check", "--name", "two", *UNKNOWN)
    assert (code, "what it can cost is unknown" in output) == (3, True)
    assert launch("job.yaml", "--no-check", "--name", "two", "--set", "max_cost=680559")[0] == 0
    assert [request["TrainingJobName"] for request in aws.requests()] == ["one", "two"]


def test_rerun_is_refused_above_the_limit(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.client("sagemaker").create_training_job(**launcher.plan("job.yaml", name="one").request)
    assert launch("rerun", "one", "--no-check", answer="n\n")[0] == 5
    code, output = launch("rerun", "one", "--no-check", "--set", "max_cost=5")
    reason = "it can cost at most $680,558.60, more than max_cost $5.00 (--set max_cost); nothing was created. "
    remedy = "Raise max_cost (--set max_cost), unset it and agree with --yes, or lower stopping_condition.max_runtime_in_seconds"
    assert (code, output.splitlines()[-1].partition(": it")[2]) == (3, f"{reason}{remedy}".removeprefix("it"))
    assert len(aws.requests()) == 1


def test_python_submit_refuses_above_the_limit(aws: StandIn) -> None:
    plan = launcher.plan("job.yaml", name="one")
    with pytest.raises(RefusedError, match=r"max_cost \$100.00 \(.*or agree with submit\(plan, yes=True\)$"):
        launcher.submit(plan)
    limited = launcher.plan("job.yaml", name="one", set={"max_cost": 5})
    for yes in (False, True):
        with pytest.raises(RefusedError, match=r"max_cost \$5.00 "):
            launcher.submit(limited, yes=yes)
    assert aws.requests() == []
    assert launcher.submit(plan, yes=True).name == "one"


def test_spec_counts_before_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, own = launcher.parse_spec("base_name: x"), launcher.parse_spec("base_name: x\nmax_cost: 1.5", "job.yaml")
    assert (limit_of(spec).usd, limit_of(spec).source) == (Decimal(100), None)
    monkeypatch.setenv(VARIABLE, "20.5")
    assert (str(limit_of(spec).usd), limit_of(spec).source) == ("20.5", VARIABLE)
    assert (str(limit_of(own).usd), limit_of(own).source) == ("1.5", "job.yaml:2:1")
    monkeypatch.setenv(VARIABLE, "")
    assert limit_of(spec).source is None


@pytest.mark.parametrize("value", ["-5", "$5", "1e3", "many", "."])
def test_variable_that_is_not_a_number_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(InputError, match=r"^LAUNCH_MAX_COST: is '.*', but a number of US dollars"):
        limit_of(launcher.parse_spec("base_name: x"))


@pytest.mark.parametrize("value", ["-5", "$5", "'5'", "1e3", "many", "[5]", "true"])
def test_max_cost_that_is_not_a_number_is_refused(value: str) -> None:
    with pytest.raises(launcher.SpecError, match=r"max_cost: is .*but a number of US dollars belongs here"):
        launcher.parse_spec(f"max_cost: {value}")


def test_price_of_another_region_counts_twice() -> None:
    """ml.g5.xlarge costs $1.408 an hour in us-east-1, so 40 hours are $56.32; sa-east-1's price is not in the table."""
    request = {
        "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 40 * 3600},
    }
    limit = limit_of(launcher.parse_spec("base_name: x"))
    assert objection(request, "us-east-1", limit) is None
    assert objection(request, "sa-east-1", limit) == (
        "it can cost at most $56.32 at us-east-1's prices, and up to twice that in sa-east-1, more than max_cost $100.00"
        " (the default)"
    )


@pytest.mark.parametrize(
    ("resources", "more", "reason"),
    [
        ({"InstanceType": "ml.g5.xlarge"}, {}, None),
        (
            {"InstancePreferences": [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.p5.48xlarge"}]},
            {},
            "more than",
        ),
        ({"InstanceType": "ml.p5.48xlarge", "TrainingPlanArn": "arn:aws:sagemaker:::training-plan/p"}, {}, None),
        ({}, {"ServerlessJobConfig": {}}, "unknown: a serverless job is billed by the tokens"),
        ({}, {}, "unknown: the request names no instance type"),
    ],
)
def test_objection_names_what_is_above_the_limit_or_unknown(
    resources: dict[str, Any], more: dict[str, Any], reason: str | None
) -> None:
    request = {"ResourceConfig": {"InstanceCount": 2, **resources}, **more}
    found = objection(request, "us-east-1", limit_of(launcher.parse_spec("base_name: x")))
    assert reason in found if reason and found else found is reason
