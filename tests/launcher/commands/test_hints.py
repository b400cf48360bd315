"""The commands that other commands print: they find the job, whatever region and profile the spec names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from launcher.aws.session import Account
from launching import launch

ELSEWHERE = ("--set", "region=eu-west-1", "--set", "image=123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine:1")
PROFILES = """\
[default]
region = us-east-1
[profile team]
region = eu-west-1
aws_access_key_id = team-key-id
aws_secret_access_key = team-secret
"""


@pytest.fixture
def profiles(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up two profiles, and leave region and keys to them."""
    (tmp_path / "aws-config").write_text(PROFILES)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("submittable")
def test_printed_commands_find_job_in_the_region_of_the_spec(aws: StandIn) -> None:
    done = launch("job.yaml", "--no-check", "--no-follow", *ELSEWHERE)
    printed = re.search(r"^follow    launch (.*)$", done.stderr, re.MULTILINE)
    assert printed is not None, done.stderr
    assert printed[1] == "logs digits-1 --region eu-west-1 --follow"
    stopped = launch("stop", "digits-1", "--region", "eu-west-1")
    assert "`launch logs digits-1 --region eu-west-1 --follow` shows the end" in stopped.stderr
    assert launch("logs", "digits-1").returncode == 3  # in the environment's region
    aws.job("digits-1", "Completed")
    assert launch(*printed[1].split()).returncode == 0


@pytest.mark.usefixtures("submittable", "profiles")
def test_printed_command_names_profile_of_the_spec(aws: StandIn) -> None:
    done = launch("job.yaml", "--no-check", "--no-follow", *ELSEWHERE, "--set", "profile=team")
    assert "follow    launch logs digits-1 --profile team --follow\n" in done.stderr


@pytest.mark.parametrize(
    ("region", "profile", "environ", "options"),
    [
        (None, None, {}, ""),
        ("us-east-1", "default", {}, ""),
        ("eu-west-1", None, {}, " --region eu-west-1"),
        ("eu-west-1", "team", {}, " --profile team"),
        (None, "team", {}, " --profile team"),
        ("us-east-1", "team", {}, " --region us-east-1 --profile team"),
        ("us-east-1", "team", {"AWS_REGION": "us-east-1"}, " --profile team"),
        ("eu-west-1", "team", {"AWS_PROFILE": "team"}, ""),
        ("us-east-1", "default", {"AWS_PROFILE": "team"}, " --profile default"),
    ],
)
@pytest.mark.usefixtures("profiles")
def test_options_name_what_differs_from_the_environment(
    region: str | None, profile: str | None, environ: dict[str, str], options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert Account(region=region, profile=profile).options == options
