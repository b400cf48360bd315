"""What a team's file demands is checked before anything is sent, whatever the options, and for an earlier job's request."""

from __future__ import annotations

from pathlib import Path

import pytest

import launcher
from aws_stand_in import StandIn
from launcher.errors import SpecError
from launching import launch
from submitted_spec import SPEC

pytestmark = pytest.mark.usefixtures("submittable")


def demand(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("team.yaml").write_text(text)
    monkeypatch.setenv("LAUNCH_TEAM", "team.yaml")


@pytest.mark.parametrize(
    ("text", "code"), [("accounts: ['210987654321']", "team-account"), ("regions: [eu-west-1]", "team-region")]
)
def test_other_account_or_region_gets_no_upload(
    aws: StandIn, monkeypatch: pytest.MonkeyPatch, text: str, code: str
) -> None:
    role_elsewhere = SPEC.replace("arn:aws:iam::123456789012", "arn:aws:iam::210987654321")
    Path("job.yaml").write_text(role_elsewhere.replace("region: us-east-1\n", ""))
    demand(text, monkeypatch)
    for options in ([], ["--no-check"], ["--check"]):
        done = launch("job.yaml", "--yes", *options)
        assert done.returncode == 2
        assert f"team.yaml:1:1: {code.removeprefix('team-')}" in done.stderr
        assert f"[{code}]" in done.stderr
    plan = launcher.plan("job.yaml")
    for do in (launcher.submit, launcher.upload_code, launcher.check):
        with pytest.raises(SpecError, match=code):
            do(plan)
    assert aws.writing_calls() == []


def test_allowed_account_and_region_submit(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    demand("accounts: ['123456789012']\nregions: [us-east-1]", monkeypatch)
    assert launch("job.yaml", "--no-check", "--yes").returncode == 0
    assert len(aws.requests()) == 1
    assert len(aws.calls("GetCallerIdentity")) == 1
    launcher.submit(launcher.plan("job.yaml", name="digits-2"))  # which asks before the upload and before the job
    assert len(aws.calls("GetCallerIdentity")) == 2


def test_locked_max_cost_is_not_lifted(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    demand("locked: {max_cost: 0.01}", monkeypatch)
    done = launch("job.yaml", "--no-check", "--yes")
    assert done.returncode == 2
    assert "max_cost: it can cost at most $0.1" in done.stderr
    with pytest.raises(SpecError, match=r"team.yaml:1\), which the team has locked"):
        launcher.submit(launcher.plan("job.yaml"), yes=True)
    assert aws.writing_calls() == []


def test_rerun_takes_the_layers(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch("job.yaml", "--no-check", "--yes").returncode == 0
    vpc = "{subnets: [subnet-0a1b2c3d], security_group_ids: [sg-0a1b2c3d]}"
    text = f"defaults: {{tags: {{cost-center: '4711'}}}}\nlocked: {{vpc_config: {vpc}}}\nrequired: {{tags.team: }}"
    demand(text, monkeypatch)
    done = launch("rerun", "digits-1", "--no-check", "--yes", "--set", "vpc_config=null")
    assert done.returncode == 2
    assert "--set vpc_config: vpc_config.subnets: is locked by the team's file (team.yaml:2)" in done.stderr
    assert "<digits-1>: tags.team: is required by the team's file (team.yaml:3)" in done.stderr
    shown = launch("rerun", "digits-1", "--dry-run", "--set", "tags.team=vision").stdout
    assert "subnet-0a1b2c3d" in shown
    assert "4711" in shown
