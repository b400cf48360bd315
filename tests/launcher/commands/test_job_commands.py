"""The commands on existing jobs: status, list, stop, rerun and diff."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import launcher
from aws_stand_in import StandIn
from launcher.cli import cli
from launcher.errors import InputError, LaunchError, RefusedError, SpecError
from launcher.jobs.submission import is_of_request
from launcher.spec.aws_model import shapes

SPEC = """\
base_name: digits
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1
role_arn: arn:aws:iam::123456789012:role/trainer
code: {directory: src, entry_point: train.py}
hyperparameters: {epochs: 5}
environment: {TOKEN: "${TOKEN:-hidden-value}"}
resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 10}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://mine/out/}
tags: {team: vision}
channels:
  train: s3://mine/train/
  more: {s3_uri: s3://mine/more/, input_mode: FastFile}
"""
NAME = "digits-20261121-101112-ab12"


@pytest.fixture
def request_of(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Create a job from the spec, and return its request."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print('trained')\n")
    (tmp_path / "job.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    request = launcher.plan("job.yaml", name=NAME).request
    aws.client("sagemaker").create_training_job(**request)
    aws.client("s3").create_bucket(Bucket="mine")
    aws.clear_calls()
    return request


def launch(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)


def data(*arguments: str) -> Any:
    return json.loads(launch(*arguments, "--json").stdout)


def test_status_shows_running_and_failed_job(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.job(NAME, "Training")
    assert (data("status", NAME)["TrainingJobStatus"], data("status", NAME)["SecondaryStatus"]) == (
        "InProgress",
        "Training",
    )
    aws.log(NAME, ["ModuleNotFoundError: No module named 'timm'"])
    aws.job(NAME, "Failed", reason="AlgorithmError: ExitCode 1")
    shown = launch("status", NAME).stdout
    assert "AlgorithmError: ExitCode 1" in shown
    assert "timm" in shown
    assert aws.writing_calls() == []


def test_status_and_rerun_show_the_commit_of_the_code(
    aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(
        f"{SPEC}\n".replace("team: vision", "git-commit: 0123456789abcdef, git-dirty: true")
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    aws.client("sagemaker").create_training_job(**launcher.plan("job.yaml", name=NAME).request)
    assert "code       commit 0123456789ab with uncommitted changes\n" in launch("status", NAME).stdout
    assert {"Key": "git-commit", "Value": "0123456789abcdef"} in data("status", NAME)["Tags"]
    assert "0123456789abcdef" in launch("rerun", NAME, "--dry-run").stdout


def test_status_of_a_running_job_shows_reason_metrics_cost_and_links(aws: StandIn, request_of: dict[str, Any]) -> None:
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    algorithm = {**request_of["AlgorithmSpecification"], "MetricDefinitions": metrics}
    server = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/app-1"
    mlflow = {"MlflowResourceArn": server, "MlflowRunName": "first"}
    request = {**request_of, "TrainingJobName": "cats", "AlgorithmSpecification": algorithm, "MlflowConfig": mlflow}
    aws.client("sagemaker").create_training_job(**request)
    aws.job("cats", "Pending", message="Insufficient capacity, retrying")
    assert "  now        Pending for " in (shown := launch("status", "cats").stdout)
    assert "s: Insufficient capacity, retrying" in shown
    assert "EstimatedCost" not in data("status", "cats")
    begun = datetime.now(timezone.utc) - timedelta(hours=2)
    package = "arn:aws:sagemaker:us-east-1:123456789012:model-package/cats/1"
    more = {"OutputModelPackageArn": package, "MlflowDetails": {"MlflowRunId": "8f2"}}
    more["WarmPoolStatus"] = {"Status": "Reused", "ReusedByJob": "dogs", "ResourceRetainedBillableTimeInSeconds": 90}
    aws.job("cats", "Training", describe={"TrainingStartTime": begun.timestamp(), **more})
    aws.log("cats", ["loss=0.5", "loss=0.25"])
    shown, found = launch("status", "cats").stdout, data("status", "cats")
    assert found["Metrics"] == {"loss": 0.25}
    price = 2 * 0.115 + 10 * 7200 / 2_592_000 * 0.14
    assert found["EstimatedCost"]["usd"] == pytest.approx(price, rel=0.05)
    for text in (
        f"  console    {found['ConsoleUrl']}\n",
        " so far, an estimate: 7,2",
        "  metric     loss = 0.25\n",
        f"  mlflow     {server}, run first, run ID 8f2\n",
        f"  package    {package}\n",
        "  warm pool  Reused by dogs, billed 1 min 30 s (90 s)\n",
    ):
        assert text in shown
    assert found["ConsoleUrl"] == "https://us-east-1.console.aws.amazon.com/sagemaker/home?region=us-east-1#/jobs/cats"


def test_times_are_iso_8601_with_the_zone(
    aws: StandIn, request_of: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        aws.job(NAME, "Training")
        aws.log(NAME, ["a line"])
        moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
        assert re.match(rf"{moment}\+05:30 Starting", launch("status", NAME).stdout)
        assert re.search(rf"InProgress +{moment}\+05:30", launch("list").stdout)
        times = [data("list")[0]["CreationTime"], data("status", NAME)["CreationTime"]]
        times += [each["StartTime"] for each in data("status", NAME)["SecondaryStatusTransitions"]]
        times.append(json.loads(launch("logs", NAME, "--json").stdout.splitlines()[0])["timestamp"])
        assert [each for each in times if not re.fullmatch(rf"{moment}(\.\d+)?\+00:00", each)] == []
    finally:
        monkeypatch.undo()
        time.tzset()


def test_status_of_several_jobs_shows_all_although_one_is_missing(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.client("sagemaker").create_training_job(**{**request_of, "TrainingJobName": "cats"})
    assert [each["TrainingJobName"] for each in data("status", "cats", NAME)] == ["cats", NAME]
    with CliRunner().isolation() as (out, _, _), pytest.raises(LaunchError, match="there is no training job 'dogs'"):
        cli.main(["status", "dogs", "cats", NAME], standalone_mode=False)
    shown = out.getvalue().decode()
    assert "cats: InProgress" in shown
    assert f"{NAME}: InProgress" in shown


def test_missing_job_gets_nearest_name(request_of: dict[str, Any]) -> None:
    for command in (["status"], ["stop"], ["rerun"], ["diff", "job.yaml"], ["logs"]):
        with pytest.raises(LaunchError, match=f"there is no training job .*did you mean {NAME}"):
            launch(*command, "digits-20261121-101112-ab13")


def test_list_takes_every_status_of_aws(aws: StandIn) -> None:
    for status in shapes()["TrainingJobStatus"]["enum"]:
        assert data("list", "--status", status) == []
    with pytest.raises(click.BadParameter, match="'foo' is not one of 'InProgress', 'Completed'"):
        launch("list", "--status", "foo")
    assert "us-east-1: no training jobs; create one by `launch job.yaml`" in launch("list").stderr


def test_list_filters_by_status_name_and_age(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.client("sagemaker").create_training_job(**{**request_of, "TrainingJobName": "cats"})
    aws.job("cats", "Failed")
    assert [job["TrainingJobName"] for job in data("list")] == ["cats", NAME]
    assert [job["TrainingJobName"] for job in data("list", "--status", "failed")] == ["cats"]
    assert [job["TrainingJobName"] for job in data("list", "digits")] == [NAME]
    assert [job["TrainingJobName"] for job in data("list", "--limit", "1")] == ["cats"]
    assert len(data("list", "--since", "5m")) == 2
    assert data("list", "--since", "0s") == []
    assert "us-east-1: no training jobs; widen TEXT" in launch("list", "--since", "0s").stderr
    assert NAME in launch("list").stdout.replace("\n", "")


def test_list_shows_instances_and_cost_as_far_as_they_are_known(aws: StandIn, request_of: dict[str, Any]) -> None:
    client = aws.client("sagemaker")
    for number in range(20):
        client.create_training_job(**{**request_of, "TrainingJobName": f"many-{number}"})
    aws.job("many-19", "Training")
    aws.job("many-19", "Completed", billable=7200)
    aws.clear_calls()
    latest = launch("list", "many").stdout.splitlines()[0]
    assert latest.startswith("many-19")
    assert latest.endswith("1 x ml.m5.large  $0.23")
    assert len(aws.calls()) == 2
    assert data("list", "many")[0]["EstimatedCost"]["usd"] == pytest.approx(0.23, rel=0.05)
    aws.deny("sagemaker:Search")
    done = launch("list", "many")
    assert done.stdout.splitlines()[0].endswith("0:00:00")
    assert "instances and cost are unknown: " in done.stderr
    assert "sagemaker:Search" in done.stderr


def test_list_filters_by_tag_and_by_creator(aws: StandIn, request_of: dict[str, Any]) -> None:
    client, now = aws.client("sagemaker"), time.time()
    for number in range(3):
        tags = [{"Key": "team", "Value": "sound" if number else "vision"}]
        client.create_training_job(**{**request_of, "TrainingJobName": f"cats-{number}", "Tags": tags})
    theirs = "arn:aws:sts::123456789012:assumed-role/developer/another"
    aws.order("cloudtrail/job", name=NAME, at=now - 100 * 86_400)
    for number in range(60):
        aws.order("cloudtrail/job", name="cats-1" if number == 3 else f"dogs-{number}", at=now, arn=theirs)
    aws.order("cloudtrail/job", name="cats-0", at=now)
    aws.order("cloudtrail/job", name="cats-2", at=now - 3600)
    aws.order("cloudtrail/job", name="cats-1", at=now, error="ResourceInUse")

    def names(*arguments: str) -> list[str]:
        return [job["TrainingJobName"] for job in data("list", *arguments)]

    assert names("--tag", "team=sound") == ["cats-2", "cats-1"]
    assert names("--tag", "team=vision") == ["cats-0", NAME]
    assert names("--tag", "team=vision", "--status", "failed") == []
    assert names("--mine") == ["cats-2", "cats-0"]
    assert names("--mine", "--limit", "1") == ["cats-2"]
    assert names("--mine", "--tag", "team=sound") == ["cats-2"]
    assert names("--mine", "--since", "10m") == ["cats-0"]
    assert not any(call["writes"] for call in aws.calls() if call["operation"] != "CreateTrainingJob")
    aws.deny("cloudtrail:LookupEvents")
    with pytest.raises(LaunchError, match="cloudtrail:LookupEvents"):
        launch("list", "--mine")
    with pytest.raises(click.BadParameter, match="expected KEY=VALUE, such as team=vision, got 'team'"):
        launch("list", "--tag", "team")


def test_list_in_a_pipe_has_a_line_per_job(aws: StandIn, request_of: dict[str, Any]) -> None:
    long = "a" * 63
    aws.client("sagemaker").create_training_job(**{**request_of, "TrainingJobName": long})
    lines = CliRunner(env={"COLUMNS": "30"}).invoke(cli, ["list"]).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[long, "InProgress"], [NAME, "InProgress"]]
    assert len({line.index("InProgress") for line in lines}) == 1


@pytest.mark.parametrize(
    ("columns", "titles"), [("80", ["name", "status", "created", "took"]), ("45", ["name", "status"]), ("20", ["name"])]
)
def test_list_on_a_narrow_terminal_keeps_names(
    request_of: dict[str, Any], columns: str, titles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with CliRunner().isolation() as (out, _, _):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        cli.main(["list"], standalone_mode=False)
        lines = click.unstyle(out.getvalue().decode()).splitlines()
    assert lines[0].split() == titles
    assert lines[1].split()[0] == NAME


def test_invalid_name_is_refused_without_asking_aws(aws: StandIn, request_of: dict[str, Any]) -> None:
    for name in ("", "a b", "-a", "a" * 64):
        with pytest.raises(LaunchError, match="is not a training job's name"):
            launch("status", "--", name)
    assert aws.calls() == []


def test_status_with_json_has_everything_it_prints(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.job(NAME, "Training")
    aws.job(NAME, "Failed", reason="CapacityError: Unable to provision requested ML compute capacity.", billable=3600)
    aws.job(NAME, metrics={"loss": 0.25})
    shown = data("status", NAME)
    assert shown["LikelyCause"]["Code"] == "capacity"
    assert shown["LikelyCause"]["Cause"] in launch("status", NAME).stdout
    assert shown["LikelyCause"]["Remedy"] in launch("status", NAME).stdout
    assert shown["EstimatedCost"]["usd"] > 0.1
    assert [(each["MetricName"], each["Value"]) for each in shown["FinalMetricDataList"]] == [("loss", 0.25)]


def test_denied_tags_are_left_out_with_a_warning(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.deny("sagemaker:ListTags")
    done = launch("rerun", NAME, "--dry-run", "--json")
    assert "Tags" not in json.loads(done.stdout)
    assert "the tags of" in done.stderr
    assert "the new job gets no tags" in done.stderr
    done = launch("diff", "job.yaml", NAME, "--json")
    assert json.loads(done.stdout) == []
    assert "they are not compared" in done.stderr


def test_compare_leaves_tags_out_if_those_of_a_job_are_unknown(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.client("sagemaker").create_training_job(**{**request_of, "TrainingJobName": "cats"})
    aws.deny("sagemaker:ListTags", containing="cats")
    done = launch("compare", "cats", NAME, "--json")
    assert json.loads(done.stdout)["differences"] == []
    assert "the tags of cats are unknown" in done.stderr
    assert "they are not compared" in done.stderr


def test_taken_name_of_a_rerun_is_reported_at_the_option(aws: StandIn, request_of: dict[str, Any]) -> None:
    with pytest.raises(LaunchError, match=r"^--name: a training job .* exists already") as caught:
        launch("rerun", NAME, "--name", NAME, "--no-check")
    assert "base_name" not in str(caught.value)


def test_list_reads_all_pages(aws: StandIn, request_of: dict[str, Any]) -> None:
    client = aws.client("sagemaker")
    for number in range(120):
        client.create_training_job(**{**request_of, "TrainingJobName": f"many-{number}"})
    assert len(data("list", "many", "--limit", "1000")) == 120
    assert len(data("list", "many", "--limit", "110")) == 110


def test_stop_stops_running_job_once(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.job(NAME, "Training")
    assert data("stop", NAME)["TrainingJobStatus"] == "Stopping"
    assert aws.writing_calls() == ["sagemaker:StopTrainingJob"]
    assert "already stopping" in launch("stop", NAME).stderr
    assert data("stop", NAME)["TrainingJobStatus"] == "Stopping"
    aws.job(NAME, "Stopped")
    assert data("stop", NAME)["TrainingJobStatus"] == "Stopped"
    assert aws.writing_calls() == ["sagemaker:StopTrainingJob"]


def test_stop_of_job_that_ends_meanwhile_succeeds(aws: StandIn, request_of: dict[str, Any]) -> None:
    aws.refuse("sagemaker:StopTrainingJob", "ValidationException", "The request was rejected: Completed.")
    with pytest.raises(LaunchError, match="rejected"):
        launch("stop", NAME)
    aws.job(NAME, "Training")
    aws.job(NAME, "Completed")
    assert "already Completed" in launch("stop", NAME).stderr


def test_rerun_sends_same_request_under_new_name(aws: StandIn, request_of: dict[str, Any]) -> None:
    again = json.loads(launch("rerun", NAME, "--dry-run", "--json", "--show-secrets").stdout)
    assert again["TrainingJobName"].startswith("digits-")
    assert again["TrainingJobName"] != NAME
    description = aws.client("sagemaker").describe_training_job(TrainingJobName=NAME)
    assert is_of_request(description, {**again, "TrainingJobName": NAME})
    assert is_of_request(again, {**request_of, "TrainingJobName": again["TrainingJobName"]})
    assert aws.writing_calls() == []
    done = launch("rerun", NAME, "--name", "digits-2", "--no-check", "--set", "hyperparameters.epochs=7")
    assert (done.exit_code, done.stdout) == (0, "digits-2\n")
    assert aws.requests()[1]["HyperParameters"] == {"epochs": "7"}
    assert aws.requests()[1]["Tags"] == request_of["Tags"]
    assert aws.writing_calls() == ["sagemaker:CreateTrainingJob"]


def test_wrong_change_is_reported_at_the_option(request_of: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"--set resource_config\.instance_type: 'ml.*did you mean ml\.m5\.large"):
        launch("rerun", NAME, "--dry-run", "--set", "resource_config.instance_type=ml.m5.larg")


def test_compare_shows_settings_metrics_and_costs_of_jobs(
    aws: StandIn, request_of: dict[str, Any], tmp_path: Path
) -> None:
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    for number, name in enumerate(("cats-1", "cats-2", "cats-3")):
        request = {**request_of, "TrainingJobName": name}
        request["AlgorithmSpecification"] = {**request_of["AlgorithmSpecification"], "MetricDefinitions": metrics}
        request["HyperParameters"] = {"epochs": str(number // 2), "api_token": f"secret-{number}"}
        request["Tags"] = [{"Key": "launch:sweep", "Value": "cats"}]
        aws.client("sagemaker").create_training_job(**request)
        aws.log(name, [f"loss={loss}" for loss in (2, 0.25, 0.5 + number)] if number else ["no metric"])
        aws.job(name, "Training")
        aws.job(name, "Completed", billable=3600 * (number + 1), metrics={"loss": 0.5 + number})
    file = tmp_path / "plot.svg"
    found = data("compare", "cats-1", "cats-2", "cats-3", "--plot", str(file))
    assert [each["path"] for each in found["differences"]] == ["HyperParameters.api_token", "HyperParameters.epochs"]
    assert found["differences"][0]["values"] == dict.fromkeys(("cats-1", "cats-2", "cats-3"), "***")
    assert found["differences"][1]["values"] == {"cats-1": "0", "cats-2": "0", "cats-3": "1"}
    losses = [job["Metrics"]["loss"] for job in found["jobs"]]
    assert losses == [{"last": 0.5}, {"last": 1.5, "least": 0.25, "most": 2}, {"last": 2.5, "least": 0.25, "most": 2.5}]
    assert found["jobs"][2]["EstimatedCost"]["usd"] == pytest.approx(3 * 0.115, rel=0.1)
    assert "secret-" not in json.dumps(found)
    aws.deny("sagemaker:DescribeTrainingJob", "sagemaker:ListTags")
    assert data("compare", "cats") == found  # by the sweep's name, which has no call for each job that AWS may throttle
    aws.clear_faults()
    assert {"cats-2", "cats-3"} <= set(re.findall("<!-- (.*?) -->", file.read_text()))
    shown = launch("compare", "cats-1", "cats-3").stdout
    assert 'HyperParameters.epochs:\n  cats-1  "0"\n  cats-3  "1"\n' in shown
    assert "loss:\n  cats-1  last 0.5\n  cats-3  last 2.5, least 0.25, most 2.5\n" in shown
    aws.deny("logs:*", "sagemaker:ListTags")
    done = launch("compare", "cats-1", "cats-3")
    assert "loss:\n  cats-1  last 0.5\n  cats-3  last 2.5\n" in done.stdout
    assert done.stderr.count("are unknown: ") == 4
    assert "Tags" not in done.stdout
    with pytest.raises(RefusedError, match="no sweep 'cats-1' of two jobs or more was found in us-east-1; pass"):
        launch("compare", "cats-1")
    with pytest.raises(InputError, match="cats-1 is named twice; pass"):
        launch("compare", "cats-1", "cats-1")


def test_diff_shows_changed_members_and_no_secrets(
    aws: StandIn, request_of: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data("diff", "job.yaml", NAME) == []
    assert "no differences between" in launch("diff", "job.yaml", NAME).stderr
    changed = ("--set", "hyperparameters.epochs=7", "--set", "channels.more=null", "--set", "tags.team=sound")
    found = {each["path"]: (each["job"], each["plan"]) for each in data("diff", "job.yaml", NAME, *changed)}
    assert found["HyperParameters.epochs"] == ("5", "7")
    assert found["Tags.team.Value"] == ("vision", "sound")
    assert found["InputDataConfig.more"][1] is None
    assert len(found) == 3
    monkeypatch.setenv("TOKEN", "another-secret")
    shown = launch("diff", "job.yaml", NAME)
    assert "${TOKEN:-hidden-value}" in shown.stdout
    assert "another-secret" not in shown.output
    assert "hidden-value" not in shown.output.replace("${TOKEN:-hidden-value}", "")
    monkeypatch.delenv("TOKEN")
    (tmp_path / "src/train.py").write_text("print('better')\n")
    assert [each["path"] for each in data("diff", "job.yaml", NAME)] == [
        "InputDataConfig.launcher_code.DataSource.S3DataSource.S3Uri"
    ]
    assert aws.writing_calls() == []
