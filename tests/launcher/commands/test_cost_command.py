"""`launch cost`: its text, `--json`, and `--online` against the stand-in for AWS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import aws_stand_in
from launcher.commands.cost import cost
from launcher.errors import InputError, RefusedError
from launcher.rules.examples import BASE, laid_over_base

IN_US_EAST_1 = (
    "region: us-east-1\nimage: 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"
)


def launch_cost(folder: Path, spec: str, *options: str) -> Result:
    (folder / "job.yaml").write_text(spec)
    return CliRunner().invoke(cost, [str(folder / "job.yaml"), *options])


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_cost_prints_an_estimate_with_sources(tmp_path: Path, nowhere: None) -> None:
    resources = "resource_config: {instance_type: ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 30}"
    spec = laid_over_base(f"{resources}\nstopping_condition: {{max_runtime_in_seconds: 3600}}\n{IN_US_EAST_1}")
    done = launch_cost(tmp_path, spec)
    assert done.exit_code == 0, done.output
    assert "an estimate, not AWS's bill" in done.stdout
    assert "2 x ml.m5.xlarge at $0.23/h, AWS's price list of 2026-09-27" in done.stdout
    assert "at most $0.46, for 1 h" in done.stdout
    assert "not counted" in done.stdout
    assert "https://pricing.us-east-1.amazonaws.com/" in done.stdout


def test_cost_accepts_set_and_json(tmp_path: Path, nowhere: None) -> None:
    done = launch_cost(tmp_path, laid_over_base(IN_US_EAST_1), "--json", "--set", "resource_config.instance_count=3")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["is_estimate"] is True
    assert data["region"] == "us-east-1"
    row = data["clusters"][0]["instances"][0]
    assert row["instance_count"] == 3
    assert {"usd", "region", "date", "source", "url"} <= set(row["price"])
    assert data["usd_per_hour"] == pytest.approx(3 * row["price"]["usd"])


def test_cost_refuses_job_not_billed_by_the_hour(tmp_path: Path, nowhere: None) -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
    done = launch_cost(tmp_path, BASE, "--set", f"resource_config.training_plan_arn={plan}")
    assert isinstance(done.exception, RefusedError)
    assert "paid for in advance" in str(done.exception)


def test_online_shows_todays_price(tmp_path: Path, aws: aws_stand_in.StandIn) -> None:
    aws.price("ml.m5.xlarge", 0.253, region="eu-west-1")
    aws.price("ml.m5.xlarge", 9.99, region="eu-west-1", component="Hosting")
    aws.price("ml.m5.xlarge", 8.88, region="us-east-1")
    options = ("--set", "resource_config.instance_type=ml.m5.xlarge", "--set", "resource_config.instance_count=2")
    done = launch_cost(tmp_path, BASE, *options, "--set", "region=eu-west-1", "--online")
    assert done.exit_code == 0, done.output
    assert "2 x ml.m5.xlarge at $0.253/h, AWS's price API of 2026-01-01" in done.stdout
    (call,) = aws.calls("pricing:")
    assert call["region"] == "us-east-1"  # the price API answers there for every region
    assert aws.writing_calls() == []


def test_online_takes_the_tables_price_if_aws_has_none(tmp_path: Path, aws: aws_stand_in.StandIn) -> None:
    spec, options = laid_over_base(IN_US_EAST_1), ("--set", "resource_config.instance_type=ml.m5.xlarge")
    done = launch_cost(tmp_path, spec, *options, "--online", "--json")
    assert done.exit_code == 0, done.output
    online, offline = json.loads(done.stdout), json.loads(launch_cost(tmp_path, spec, *options, "--json").stdout)
    assert online == offline
    assert online["usd_per_hour"] > 0


def test_cost_of_a_job_names_the_command_that_shows_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(cost, ["digits-1"])
    assert isinstance(done.exception, InputError)
    assert "'digits-1' is not a spec; `launch status digits-1` shows what a job" in str(done.exception)
