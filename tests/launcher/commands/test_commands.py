"""What every command has: a help, an example that runs, and documented exit codes; tried against the stand-in for AWS."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

import launcher
from aws_stand_in import StandIn
from launcher.errors import EXIT_CODES
from launching import launch
from make_docs import all_commands, example_of

SPEC = """\
base_name: digits
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1
role_arn: arn:aws:iam::123456789012:role/trainer
resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 10}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://mine/out/}
container_entrypoint: [echo, trained]
hyperparameters: {epochs: 5}
channels: {train: s3://mine/train/}
"""
NAMES = [*all_commands()]


@pytest.fixture
def account(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """An account with the jobs digits-1, digits-2 and s3://mine/train/1.jpg, and a folder with job.yaml, images and lists."""
    (tmp_path / "job.yaml").write_text(SPEC)
    for name in (f"{kind}/{number}.jpg" for kind in ("cat/siamese", "cat/persian", "dog") for number in range(10)):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).touch()
    lines = [
        f"{n}\t{n >= 20:d}\t{kind}/{n % 10}.jpg\n"
        for n, kind in enumerate(sorted(["cat/siamese", "cat/persian", "dog"] * 10))
    ]
    (tmp_path / "train.lst").write_text("".join(lines))
    (tmp_path / "more.lst").write_text("".join(lines[1:]))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "map.txt").write_text("cat/siamese/\t1\n")
    aws.client("s3").create_bucket(Bucket="mine")
    aws.client("s3").put_object(Bucket="mine", Key="train/1.jpg", Body=b"1")
    monkeypatch.chdir(tmp_path)
    for name in ("digits-2", "digits-1"):
        aws.client("sagemaker").create_training_job(**launcher.plan("job.yaml", name=name).request)
    aws.job("digits-1", "Training")
    aws.log("digits-1", ["epoch 1"])
    aws.clear_calls()
    return aws


@pytest.mark.parametrize("name", NAMES)
def test_help_of_command_explains_it_and_every_option(name: str) -> None:
    command = all_commands()[name]
    summary, *paragraphs = str(command.help).split("\n\n")
    assert paragraphs, f"{name}: add a second paragraph to the docstring"
    assert " ".join(summary.split()) == command.get_short_help_str(limit=64)  # whole in `launch --help`
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert [each.name for each in options if not (each.help or "").endswith(".")] == []
    shown = " ".join(command.get_help(click.Context(command, info_name=name)).split())
    assert f"Example: launch {example_of(command)}" in shown
    assert example_of(command).startswith(name) or name == "submit"


@pytest.mark.parametrize("name", NAMES)
def test_example_of_command_runs_and_its_json_parses(name: str, account: StandIn) -> None:
    words = shlex.split(example_of(all_commands()[name]))
    done = launch(*words)
    assert done.returncode == 0, done.stderr
    shutil.rmtree("toy", ignore_errors=True)  # of toy-data, which writes to a new folder only
    done = launch(*words, "--json")
    assert done.returncode == 0, done.stderr
    values = done.stdout.splitlines() if name == "logs" else [done.stdout]
    assert all(json.loads(value) is not None for value in values)
    assert values


@pytest.mark.parametrize("name", NAMES)
def test_exit_codes_of_command_are_documented(name: str, account: StandIn) -> None:
    """Done, wrong arguments, and calls that AWS denies."""
    command = all_commands()[name]
    documented = {int(code) for code in re.findall(r"(?:codes:|;) (\d+) ", str(command.epilog))}
    assert documented <= EXIT_CODES.keys()
    assert launch(*name.split(), "--no-such-option").returncode == 2
    account.deny("*")
    codes = {launch(*shlex.split(example_of(command))).returncode, 2}
    assert codes <= documented
    asks = bool(account.calls())
    account.clear_faults()
    assert (codes == {2, 3}) == asks


@pytest.mark.parametrize("name", NAMES)
def test_wrong_word_of_a_command_is_an_error(name: str, account: StandIn) -> None:
    """Each word of the example in turn is a missing file, a folder, an empty file and a missing bucket; in turn with --json."""
    Path("empty.yaml").touch()
    words = shlex.split(example_of(all_commands()[name]))
    places = [place for place, word in enumerate(words) if word not in name.split() and word[0] != "-"]
    wrong = ("none.yaml", "images", "empty.yaml", "s3://none/x/")
    for number, (place, word) in enumerate(itertools.product(places, wrong)):
        done = launch(*words[:place], word, *words[place + 1 :], *["--json"] * (number % 2))
        assert done.returncode in (0, 2, 3), done.stderr
        if done.returncode and number % 2 == 0:
            assert re.search("^error: .*([;,.:] |expected|only)", done.stderr + done.stdout, re.MULTILINE), done.stderr
        elif done.returncode:
            assert json.loads(done.stdout.splitlines()[-1] if name == "logs" else done.stdout), done.stderr


def test_help_begins_with_what_launch_does() -> None:
    shown = re.findall(r"^ +launch (job.yaml.*?|--example \S+)  ", launch("--help").stdout, re.MULTILINE)
    assert shown == [
        "job.yaml --dry-run",
        "job.yaml --check",
        "job.yaml --local --data DIR",
        "job.yaml",
        "--example s3-file",
    ]
