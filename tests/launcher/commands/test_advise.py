"""`launch advise` against the stand-in for AWS and against folders."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import launcher
from aws_stand_in import StandIn
from launcher.advice.facts import Shards
from launcher.cli import cli
from launcher.errors import InputError, LaunchError
from launcher.s3.uri import S3Location
from launcher.survey.channels import Channel
from launcher.survey.findings import reshard_command

SPEC = """\
base_name: digits
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1
role_arn: arn:aws:iam::123456789012:role/trainer
region: us-east-1
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 10}  # small
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://mine/out/}
hyperparameters: {epochs: 5}
vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}
channels:
  # shards of last year
  train: s3://mine/train/   # by whom?
"""
EFS = "  shared: {source: EFS, file_system_id: %s, directory_path: /images}\n"
RUN = {"samples": 30, "seconds": 2}
MEASURED = {
    "machine": {"date": "2026-11-22"},
    "format": "objects",
    "batch_size": 4,
    "num_workers": 4,
    "step": None,
    "ways": [{"name": "fast-file", "title": "", "row": 2, "samples": 30, "bytes": 1_200_000, "runs": [RUN]}],
}


def launch(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["advise", *arguments], catch_exceptions=False, standalone_mode=False)


def advised(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(launch(*arguments, "--json").stdout)
    return found


@pytest.fixture
def account(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """An account with 40 shards of 1 GB at s3://mine/train/, and job.yaml in the working directory."""
    aws.client("s3").create_bucket(Bucket="mine")
    aws.objects("mine", pattern="train/{:05d}.tar", count=40, size=10**9)
    (tmp_path / "job.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    aws.clear_calls()
    return aws


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for AWS's storage, and job.yaml beside it."""
    for name in [f"s3/mine/train/{number}.png" for number in range(30)]:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"\x89PNG" + bytes(40_000))
    (tmp_path / "job.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_section_has_data_use_estimates_advice_and_what_is_unknown(account: StandIn) -> None:
    text = launch("job.yaml").stdout
    for part in (
        "train: s3://mine/train/ by File",
        "there: 40 objects, 40.0 GB",
        "stored: S3 (STANDARD 40)",
        "read: 5 epochs a job",
        "some formats are unknown: s3://mine/train/",
        "not File: 40.0 GB do not fit the disk of 10.7 GB",
        "runner-up: ",
    ):
        assert part in text
    rows = [line.split("  ")[0] for line in re.findall(r"^    (\w.+\$\d.*)$", text, re.MULTILINE)]
    assert {"FastFile", "S3Connector", "Pipe", "FSxLustre", "EFS"} <= {*rows}
    assert account.writing_calls() == []


def test_json_has_the_whole_advice(account: StandIn) -> None:
    train = advised("s3://mine/train/", "--use", "samples_per_s=100", "--use", "epochs=5")["data"]
    assert train["data"] == "s3://mine/train/"
    assert train["inventory"]["sizes"]["p50"] == 10**9
    assert (train["use"]["epochs"], train["use"]["samples_per_s"]) == (5, 100)
    assert train["advice"]["best"]["name"] in {each["name"] for each in train["advice"]["estimates"]}


def test_advice_says_what_to_write_into_the_spec(account: StandIn, tmp_path: Path) -> None:
    assert "  first: write input_mode: FastFile below channels.train\n" in launch("job.yaml").stdout
    spec = SPEC.replace("train: s3://mine/train/ ", "train: {s3_uri: s3://mine/train/, input_mode: FastFile} ")
    (tmp_path / "job.yaml").write_text(spec)
    assert "first:" not in launch("job.yaml").stdout


def test_file_system_in_the_account_is_not_advised_on_but_said_how(account: StandIn, tmp_path: Path) -> None:
    name = "fs-0123456789abcdef0"
    (tmp_path / "job.yaml").write_text(SPEC + EFS % name)
    text = launch("job.yaml", "shared").stdout
    assert f"shared: EFS {name}:/images" in text
    assert f"unknown: its files; mount it on a machine as DIR/efs/{name}" in text


def test_denied_prefix_is_one_error_with_its_place(account: StandIn) -> None:
    account.deny("s3:ListObjectsV2")
    error = "job.yaml:12:3: s3://mine/train/ at http"
    done = launch("job.yaml")
    assert done.return_value == 3
    assert done.stderr.count("error: ") == 1
    assert re.search(rf"error: {error}.*: access is denied; .*s3:ListBucket", done.stderr)
    assert json.loads(launch("job.yaml", "--json").stdout)["train"]["error"].startswith(error)


def test_other_channels_are_advised_on_if_one_cannot_be_listed(account: StandIn, tmp_path: Path) -> None:
    """And if AWS says nothing about instance types."""
    (tmp_path / "job.yaml").write_text(SPEC + "  other: s3://mine/nothing/\n")
    account.deny("ec2:*")
    done = launch("job.yaml", "--json")
    assert done.return_value == 3
    assert json.loads(done.stdout)["train"]["advice"]["best"]["name"] == "FastFile"
    assert json.loads(done.stdout)["other"]["error"].startswith(
        "job.yaml:13:3: s3://mine/nothing/: no object begins with this"
    )
    assert "error: job.yaml:13:3: s3://mine/nothing/: no object begins with this" in done.stderr


def test_every_channel_that_cannot_be_listed_has_an_error(folder: Path) -> None:
    lines = "  one: s3://mine/one/\n  two: s3://mine/two/\n"
    (folder / "job.yaml").write_text(SPEC.partition("  # shards")[0] + lines)
    done = launch("job.yaml", "--data", "data")
    assert done.return_value == 3
    assert done.stderr.count("error: job.yaml:11:3: s3://mine/one/: there is no data/s3/mine/one/") == 1
    assert done.stderr.count("error: job.yaml:12:3: s3://mine/two/: there is no data/s3/mine/two/") == 1


def test_missing_credentials_are_one_error(account: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(LaunchError, match="no AWS credentials found; configure them") as caught:
        launch("job.yaml")
    assert caught.value.exit_code == 3


def test_folder_stands_for_the_prefix(folder: Path) -> None:
    name = "fs-0123456789abcdef0"
    (folder / f"data/efs/{name}/images").mkdir(parents=True)
    (folder / f"data/efs/{name}/images/1.png").write_bytes(b"\x89PNG")
    (folder / "job.yaml").write_text(SPEC + EFS % name)
    data = advised("job.yaml", "--data", "data")
    assert (data["train"]["inventory"]["objects"], data["train"]["inventory"]["formats"]) == (30, {"png": 24})
    assert (data["shared"]["inventory"]["place"], data["shared"]["advice"]["best"]["name"]) == ("EFS", "EFS")
    missing = launch("s3://mine/none/", "--data", "data")
    assert (missing.return_value, "s3://mine/none/: there is no data/s3/mine/none/" in missing.stderr) == (3, True)


@pytest.mark.parametrize("arguments", [("data/s3/mine",), ("job.yaml", "--channel", "train=data/s3/mine")])
def test_folder_of_this_machine_is_looked_at_without_an_account(
    folder: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (folder / "job.yaml").write_text(SPEC + "  other: s3://mine/other/\n")
    (found,) = advised(*arguments).values()
    assert (found["data"], found["inventory"]["objects"]) == ("data/s3/mine", 30)
    channel = Channel("data", S3Location("folder", ""), folder=Path("data/s3/mine"))
    command = reshard_command(channel, Shards(3, 100_000_000))
    assert command.startswith("launch reshard data/s3/mine data/s3/mine-shards/ --format tar --shard-size 100MB")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("job.yaml --channel train", "--channel train: write NAME=PATH, such as train=./images; to advise on one"),
        ("job.yaml --channel train=none", "--channel train=none: there is no folder none"),
        ("data --data data", "data is a folder of this machine; leave out --data"),
        ("job.yaml --data none", "there is no directory none"),
        ("s3://mine/train/ train", "--set, CHANNEL and --channel need a spec; pass job.yaml instead"),
        ("job.yaml --use epochs=many", "--use epochs=many: expected a whole number above 0"),
        ("none.yaml", "none.yaml: cannot be read"),
        ("job.yaml trian", "did you mean train?"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_asked(folder: Path, arguments: str, message: str) -> None:
    import click

    with pytest.raises((LaunchError, click.UsageError), match=re.escape(message)):
        launch(*arguments.split())


def test_examples_of_the_documentation_run(folder: Path) -> None:
    """Those that ask AWS read the folder."""
    page = (Path(launcher.__file__).parents[1] / "docs/howto/advise.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^ *```sh\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)
    (folder / "data/s3/mine").rename(folder / "data/s3/my-bucket")
    (folder / "job.yaml").write_text(SPEC.replace("s3://mine", "s3://my-bucket"))
    (folder / "measure.json").write_text(json.dumps(MEASURED))
    (folder / "images").symlink_to(folder / "data/s3/my-bucket/train")
    for line in block.splitlines():
        arguments = shlex.split(line)[2:]
        if not {"--data", "--channel", "./images"} & set(arguments):
            arguments += ["--data", "data"]
        done = launch(*arguments)
        assert "advice: " in done.stdout


def test_spec_without_channels_is_refused(folder: Path) -> None:
    (folder / "job.yaml").write_text(SPEC.partition("channels:")[0])
    with pytest.raises(InputError, match="the spec has no channels; add one"):
        launch("job.yaml")


def test_connector_that_streams_is_not_good_enough_for_access_by_index(folder: Path) -> None:
    short = "train: s3://mine/train/ "
    (folder / "job.yaml").write_text(SPEC.replace(short, "train: {s3_uri: s3://mine/train/, source: S3Connector} "))
    options = ("--data", "data", "--use", "random_access=yes")
    section = launch("job.yaml", *options).stdout
    assert "style: iterable, which does not read samples by index" in section
    assert "the present way is good enough" not in section
