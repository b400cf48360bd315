"""`--local --image-env`: the variables of an image, as ECR knows them, in a run without the image."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from local_jobs import launch, write_job

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"
MEDIA = "application/vnd.oci.image.%s.v1+json"
SCRIPT = """\
import os, shutil, sys
print("here:", os.environ["STAGE"], os.environ["EPOCHS"], os.environ["TRAINING_JOB_NAME"], sys.prefix)
print("programs:", os.environ["PATH"].split(":")[1], shutil.which("expr") is not None)
"""


def put_image(aws: StandIn, *, architectures: bool = False) -> None:
    """Push an image with variables; for several architectures, as buildx does, with its variables only in that of amd64."""
    ecr = aws.client("ecr")
    ecr.create_repository(repositoryName="mine")

    def put(manifest: object, **tag: str) -> str:
        text = json.dumps(manifest)
        image = ecr.put_image(repositoryName="mine", imageManifest=text, **tag)["image"]
        return str(image["imageId"]["imageDigest"])

    parts: dict[str, str] = {}
    for architecture in ("arm64", "amd64"):
        config = {"digest": f"sha256:{'1' * 64}"} if architecture == "amd64" else {}
        tag = {} if architectures or architecture == "arm64" else {"imageTag": "1"}
        parts[architecture] = put({"schemaVersion": 2, "mediaType": MEDIA % "manifest", "config": config}, **tag)
    if architectures:
        entries = [
            {"digest": digest, "platform": {"architecture": name, "os": "linux"}} for name, digest in parts.items()
        ]
        put({"schemaVersion": 2, "mediaType": MEDIA % "index", "manifests": entries}, imageTag="1")
    variables = ["PATH=/image/bin:/usr/bin", "STAGE=a=b", "EPOCHS=1", "TRAINING_JOB_NAME=of the image"]
    aws.order("ecr/config", architecture="amd64", config={"Env": variables, "WorkingDir": "/app"})


@pytest.mark.parametrize("architectures", [False, True], ids=["one architecture", "several architectures"])
def test_run_has_the_variables_of_the_image_below_those_of_the_spec(
    aws: StandIn, here: Path, architectures: bool
) -> None:
    put_image(aws, architectures=architectures)
    write_job(here, SCRIPT, f"image: {IMAGE}\nenvironment: {{EPOCHS: '2'}}\nchannels: null\n")
    output = launch(here, "--image-env", "--no-namespaces")
    assert f"algo-1 | here: a=b 2 job {sys.prefix}\n" in output
    assert "algo-1 | programs: /image/bin True\n" in output
    assert "4 variables of the image: PATH, STAGE, EPOCHS, TRAINING_JOB_NAME\n" in output


def test_run_without_the_option_asks_nothing(aws: StandIn, here: Path) -> None:
    put_image(aws)
    aws.clear_calls()
    write_job(here, "import os\nprint('STAGE' in os.environ)", f"image: {IMAGE}\nchannels: null\n")
    assert "algo-1 | False\n" in launch(here, "--no-namespaces")
    assert not aws.calls()


@pytest.mark.parametrize(
    ("image", "options", "code", "words"),
    [
        (
            "ghcr.io/mine/training:1",
            [],
            3,
            "only ECR is asked for variables, and 'ghcr.io/mine/training:1' is elsewhere",
        ),
        (IMAGE.replace(":1", ":2"), [], 3, "/mine:2; check the image's name and tag"),
        (IMAGE, ["--local", "docker"], 2, "--image-env: --local docker has the image's variables; leave it out"),
    ],
)
def test_image_whose_variables_cannot_be_read_is_one_error(
    aws: StandIn, here: Path, image: str, options: list[str], code: int, words: str
) -> None:
    put_image(aws)
    write_job(here, "", f"image: {image}\nchannels: null\n")
    output = launch(here, "--image-env", *options, code=code)
    assert words in output
    assert "Traceback" not in output
