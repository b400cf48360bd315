"""The recipes of the documentation, run as they are printed, here and against the stand-in for AWS."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image

import launcher
from aws_stand_in import StandIn
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
    """With --strict, a warning is an error. One day the image's patches end."""
    done = launch("job.yaml", "--dry-run", "--strict", "--ignore", "image-out-of-patch")
    assert (done.returncode, "warning" in done.stderr) == (0, False)


def pictures(folder: Path) -> None:
    """Write 24 small images in two class folders: light cats and dark dogs."""
    for number in range(24):
        name, light = ("cat", 200) if number % 2 else ("dog", 40)
        file = folder / name / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40 + number, 30), (light, light, number)).save(file)


ROAD = "## From a folder of images to a model"


@pytest.fixture
def road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's images, spec and script."""
    pictures(tmp_path / "images")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(blocks("python", "README.md", ROAD)[0])
    (tmp_path / "job.yaml").write_text(blocks("yaml", "README.md", ROAD)[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(text: str) -> list[list[str]]:
    """The lines of a block of commands as arguments; `launch` is that of this checkout."""
    found = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [[sys.executable, "-m", "launcher.cli", *each[1:]] if each[0] == "launch" else each for each in found]


def test_road_of_the_readme_trains_on_a_folder_of_images(road: Path) -> None:
    """The same again from a folder with the layout of the bucket that the next commands fill."""
    _, here, _ = blocks("", "README.md", ROAD)
    (command,) = commands(here)
    shutil.copytree("images", "data/s3/my-bucket/train")
    for arguments in (command, [*command[: command.index("--channel")], "--data", "data"]):
        done = run(*arguments)
        assert [float(loss) for loss in re.findall(r"epoch \d: loss ([0-9.]+)$", done.stdout, re.MULTILINE)][4:], (
            done.stdout
        )
    models = [torch.load(path) for path in Path(".launch").glob("pets-*/*/ml/model/model.pt")]
    assert [model["1.weight"].shape for model in models] == [(2, 64 * 64 * 3)] * 2


def test_road_of_the_readme_submits_the_same_job(aws: StandIn, road: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, there = blocks("", "README.md", ROAD)
    upload, dry_run, check, submission = commands(there)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="my-bucket")
    run(str(Path(sys.executable).with_name("aws")), *upload[1:])
    keys = {each["Key"] for each in s3.list_objects_v2(Bucket="my-bucket", Prefix="train/")["Contents"]}
    assert keys == {f"train/{path.relative_to('images')}" for path in Path("images").rglob("*.jpg")}
    assert check[-1] == "--check" and dry_run[-1] == "--dry-run"
    planned = yaml.safe_load(run(*dry_run, "--name", "pets-1").stdout)
    aws.script({"after": 0, "status": "Completed", "message": "Training job completed"})
    run(*submission, "--no-check", "--name", "pets-1")
    assert aws.requests() == [planned]
    assert code_of(aws, planned) == {"boot.py", "code.tar.gz"}


def test_road_with_a_wrong_content_type_names_the_key(road: Path) -> None:
    job = road / "job.yaml"
    job.write_text(job.read_text().replace("FastFile}", "FastFile, content_type: application/x-tar}"))
    (command,) = commands(blocks("", "README.md", ROAD)[1])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 4
    assert re.search(
        r"reason .*object '\w+/\d+.jpg', byte 0: these bytes are a JPEG image, .*; delete the channel's content_type",
        done.stderr,
    )
