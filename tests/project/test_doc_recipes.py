"""The recipes of the documentation, run as they are printed, here and against the stand-in for AWS."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import launcher
from aws_stand_in import StandIn
from launching import launch
from patience import PATIENCE

ROOT = Path(launcher.__file__).parents[1]


@pytest.fixture
def folder(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the complete spec of docs/reference/spec.md and its code, and an account with its bucket."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    (tmp_path / "src/requirements.txt").touch()
    (tmp_path / "job.yaml").write_text(blocks("yaml", "docs/reference/spec.md", "## A complete spec")[0])
    monkeypatch.chdir(tmp_path)
    aws.client("s3").create_bucket(Bucket="my-bucket")
    aws.clear_calls()
    return tmp_path


def blocks(language: str, page: str, heading: str) -> list[str]:
    """The code blocks of a language in the section under a heading of a page."""
    section = (ROOT / page).read_text(encoding="utf-8").split(f"{heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", section, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for name, text in found if name == language]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def code_of(aws: StandIn, request: dict[str, Any]) -> set[str]:
    """The names of the objects at the place where the request's code channel says that the code is."""
    source = request["InputDataConfig"][-1]["DataSource"]["S3DataSource"]
    bucket, _, prefix = source["S3Uri"].removeprefix("s3://").partition("/")
    found = aws.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {each["Key"].removeprefix(prefix) for each in found}


@pytest.mark.usefixtures("quick_sleep")
def test_python_recipe_creates_job_with_code_and_follows_it(aws: StandIn, folder: Path) -> None:
    aws.script({"after": 0, "status": "Completed", "message": "Training job completed"})
    (recipe,) = blocks("python", "docs/howto/python.md", "# Launch from Python")
    names: dict[str, Any] = {}
    exec(recipe, names)
    assert (names["job"].name, names["outcome"].status, names["outcome"].exit_code) == ("digits-1", "Completed", 0)
    (request,) = aws.requests()
    assert request == launcher.plan("job.yaml", name="digits-1", set={"hyperparameters.epochs": 3}).request
    assert request["HyperParameters"]["epochs"] == "3"
    assert code_of(aws, request) == {"boot.py", "code.tar.gz"}


def test_boto3_recipe_creates_the_same_job_as_launch(aws: StandIn, folder: Path) -> None:
    exec(blocks("python", "docs/howto/send.md", "# Send the request yourself")[0], {})
    (request,) = aws.requests()
    assert code_of(aws, request) == {"boot.py", "code.tar.gz"}
    aws.reset()
    aws.client("s3").create_bucket(Bucket="my-bucket")
    assert launch("job.yaml", "--no-check", "--name", "digits-2").returncode == 0
    assert aws.requests() == [request]


def test_cli_recipe_prints_the_request_that_launch_sends(
    aws: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The AWS CLI reads --cli-input-json as boto3's arguments, so boto3 stands for it here."""
    monkeypatch.setenv("TOKEN", "a-secret")
    settings = "environment: {LOG_LEVEL: info, TOKEN: '${TOKEN}', LITERAL: '$${NOT}', MIXED: 'a $${NOT} ${TOKEN}'}"
    (folder / "job.yaml").write_text(
        (folder / "job.yaml").read_text().replace("environment: {LOG_LEVEL: info}", settings)
    )
    (recipe,) = blocks("", "docs/howto/send.md", "# Send the request yourself")
    assert recipe.splitlines()[-1] == "aws sagemaker create-training-job --cli-input-json file://request.json"
    commands = recipe.replace("launch ", f"{sys.executable} -m launcher.cli ").replace(
        "python -c", f"{sys.executable} -c"
    )
    assert run("sh", "-ec", "\n".join(commands.splitlines()[:-1])).stderr.count("masked") == 0
    request = json.loads((folder / "request.json").read_text())
    aws.client("sagemaker").create_training_job(**request)
    assert code_of(aws, request) == {"boot.py", "code.tar.gz"}
    aws.reset()
    aws.client("s3").create_bucket(Bucket="my-bucket")
    assert launch("job.yaml", "--no-check", "--name", "digits-1").returncode == 0
    assert aws.requests() == [request]
    assert request["Environment"]["MIXED"] == "a ${NOT} a-secret"


def test_recipes_of_reading_and_checkpoints_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    launch("toy-data", "images", "--format", "folders", "--shards", "2", "--samples", "20", "--size", "8")
    reading, _ = blocks("python", "docs/howto/read.md", "# Read a channel in the training script")
    (saving,) = blocks("python", "docs/howto/resume.md", "# Save checkpoints, and resume on any number of hosts")
    names: dict[str, Any] = {"model": torch.nn.Linear(2, 2)}
    names["optimizer"] = torch.optim.SGD(names["model"].parameters())
    capsys.readouterr()
    for _ in range(2):
        exec(reading.replace('"train"', '"./images"'), names)
        exec(saving.replace("Checkpoints()", "Checkpoints('checkpoints')").replace("% 500", "% 2"), names)
    assert capsys.readouterr().out.splitlines() == ["begins at step 0, epoch 0", "begins at step 10, epoch 4"]
    assert names["step"] == 10  # 40 samples, 5 epochs and batches of 32: the second run had none left


def test_first_spec_draws_no_warning(folder: Path) -> None:
    """With --strict, a warning is an error. One day the image's patches end."""
    done = launch("job.yaml", "--dry-run", "--strict", "--ignore", "image-out-of-patch")
    assert (done.returncode, "warning" in done.stderr) == (0, False)


PAGE = "docs/tutorial.md"


@pytest.fixture
def road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """A function that runs the commands under a heading of the tutorial as they are printed, and returns what each prints."""
    monkeypatch.chdir(tmp_path)

    def printed(heading: str) -> list[str]:
        found = []
        for arguments in commands(blocks("sh", PAGE, f"## {heading}")[0]):
            if arguments[0] == "cd":
                monkeypatch.chdir(arguments[1])
            else:
                found.append(run(*arguments).stdout)
        return found

    return printed


def commands(text: str) -> list[list[str]]:
    """The lines of a block of commands as arguments; `launch` is that of this checkout."""
    found = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [[sys.executable, "-m", "launcher.cli", *each[1:]] if each[0] == "launch" else each for each in found]


def test_tutorial_trains_here_and_submits_the_same_job(aws: StandIn, road: Callable[[str], list[str]]) -> None:
    road("Some images")
    Path("train.py").write_text(blocks("python", PAGE, "## The training script")[0])
    road("The spec")
    request, samples = road("Look before you run")
    assert yaml.safe_load(request)["OutputDataConfig"] == {"S3OutputPath": "s3://my-bucket/pets/out/"}
    assert "class-0/00000.png" in samples
    (mistake,) = commands(blocks("", PAGE, "## Look before you run")[0])
    refused = subprocess.run(mistake, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (refused.returncode, "[channel-gzip-needs-pipe]" in refused.stderr) == (2, True)
    (lines,) = road("Train here")
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([0-9.]+)$", lines, re.MULTILINE)]
    assert len(losses) == 5 and losses[-1] < losses[0]
    (model,) = (torch.load(path) for path in Path(".launch").glob("pets-*/*/ml/model/model.pt"))
    assert model["1.weight"].shape == (2, 32 * 32 * 3)

    s3 = aws.client("s3")
    s3.create_bucket(Bucket="my-bucket")
    upload, check, submission = commands(blocks("", PAGE, "## Train on AWS")[0])
    run(str(Path(sys.executable).with_name("aws")), *upload[1:])
    keys = {each["Key"] for each in s3.list_objects_v2(Bucket="my-bucket", Prefix="pets/train/")["Contents"]}
    assert keys == {f"pets/train/{path.relative_to('images')}" for path in Path("images").rglob("*.png")}
    assert check[-1] == "--check"
    planned = yaml.safe_load(run(*submission, "--dry-run", "--name", "pets-1").stdout)
    aws.script({"after": 0, "status": "Completed", "message": "Training job completed"})
    run(*submission, "--no-check", "--name", "pets-1")
    assert aws.requests() == [planned]
    assert code_of(aws, planned) == {"boot.py", "code.tar.gz"}


def test_tutorial_with_a_wrong_content_type_names_the_key(road: Callable[[str], list[str]]) -> None:
    road("Some images")
    Path("train.py").write_text(blocks("python", PAGE, "## The training script")[0])
    road("The spec")
    (command,) = commands(blocks("sh", PAGE, "## Train here")[0])
    command += ["--set", "channels.train.content_type=application/x-tar"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 4
    assert re.search(
        r"reason .*object '[\w-]+/\d+.png', byte 0: these bytes are a PNG image, .*; delete the channel's content_type",
        done.stderr,
    )
