"""The recipes of the documentation, run as they are printed against the stand-in for AWS."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import launcher
from aws_stand_in import StandIn
from entrypoints import write_shards
from launching import launch
from patience import PATIENCE

ROOT = Path(launcher.__file__).parents[1]


@pytest.fixture
def folder(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the complete spec of channel_specs/README.md and its code, and an account with its bucket."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    (tmp_path / "src/requirements.txt").touch()
    (tmp_path / "job.yaml").write_text(blocks("yaml", "channel_specs/README.md", "## A complete spec")[0])
    monkeypatch.chdir(tmp_path)
    aws.client("s3").create_bucket(Bucket="my-bucket")
    aws.clear_calls()
    return tmp_path


def blocks(language: str, page: str, heading: str) -> list[str]:
    """The code blocks of a language in the section under a heading of a page."""
    section = (ROOT / page).read_text(encoding="utf-8").split(f"\n{heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


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
    (recipe,) = blocks("python", "launcher/README.md", "## In Python")
    names: dict[str, Any] = {}
    exec(recipe, names)
    assert (names["job"].name, names["outcome"].status, names["outcome"].exit_code) == ("digits-1", "Completed", 0)
    (request,) = aws.requests()
    assert request == launcher.plan("job.yaml", name="digits-1", set={"hyperparameters.epochs": 3}).request
    assert request["HyperParameters"]["epochs"] == "3"
    assert code_of(aws, request) == {"boot.py", "code.tar.gz"}


def test_boto3_recipe_creates_the_same_job_as_launch(aws: StandIn, folder: Path) -> None:
    exec(blocks("python", "launcher/README.md", "## Sending the request yourself")[0], {})
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
    (recipe,) = blocks("", "launcher/README.md", "## Sending the request yourself")
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


def test_first_spec_draws_no_warning(folder: Path) -> None:
    """With --strict, a warning is an error."""
    done = launch("job.yaml", "--dry-run", "--strict")
    assert (done.returncode, "warning" in done.stderr) == (0, False)


def test_container_code_trains_in_a_local_run(tmp_path: Path) -> None:
    """The README's spec with its line for the code, and its script, which then prints its last batch."""
    (script,) = blocks("python", "README.md", "## The training script")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(f"{script}print('last batch', tuple(images.shape), labels.dtype)\n")
    (spec,) = (block for block in blocks("yaml", "README.md", "## A job in seven lines") if "base_name" in block)
    assert len(spec.splitlines()) == 7
    (tmp_path / "job.yaml").write_text(spec + blocks("yaml", "README.md", "## The training script")[0])
    samples = [{"__key__": f"{number}", "raw": bytes(16), "cls": b"3"} for number in range(33)]
    write_shards(samples, tmp_path / "images", "tar", 10_000)
    command = (sys.executable, "-m", "launcher.cli", "job.yaml", "--local", "--channel", "train=./images")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"last batch \(\d+, 16\) torch.int64", done.stdout), done.stdout
