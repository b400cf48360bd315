"""What a container engine's refusals mean for the user, by a program that refuses as docker does; and what containers get."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.console import Console
from launcher.errors import RefusedError
from launcher.local.runners.containers import Containers
from launcher.local.runners.engine import Engine, Image

ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the programs, besides which there is only a shell."""
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_docker(folder: Path, script: str) -> None:
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)


def test_machine_without_docker_is_refused_with_how_to_install_it(folder: Path) -> None:
    with pytest.raises(
        RefusedError, match=r"no program docker; install it \(`apt-get install docker\.io`\), or leave out"
    ):
        Engine("docker")


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            "no engine is running: start it",
        ),
        (
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
            r"usermod -aG docker \$USER",
        ),
    ],
)
def test_engine_that_does_not_answer_is_refused_with_a_remedy(folder: Path, message: str, remedy: str) -> None:
    write_docker(folder, f"echo '{message}' >&2; exit 1")
    with pytest.raises(RefusedError, match=remedy):
        Engine("docker")


@pytest.mark.parametrize(
    ("image", "login"),
    [
        (
            f"{ECR}/a:1",
            rf"`aws ecr get-login-password --region eu-west-1 \| docker login --username AWS --password-stdin {ECR}`",
        ),
        ("registry.example:5000/a", "`docker login registry.example:5000`"),
        ("nvcr.io/nvidia/a", "`docker login nvcr.io`"),
        ("library/a", "`docker login`"),
    ],
)
def test_image_without_access_is_refused_with_the_login_of_its_registry(folder: Path, image: str, login: str) -> None:
    write_docker(folder, '[ "$1" = ps ] || { echo "$2: no basic auth credentials" >&2; exit 1; }')
    with pytest.raises(RefusedError, match=f"no basic auth credentials; build or load it, .* or log in: {login}"):
        Engine("docker").image(image, Console())


def test_image_of_another_processor_is_refused(folder: Path) -> None:
    found = json.dumps([{"Architecture": "pdp11", "Id": "sha256:0", "Config": {}}])
    write_docker(folder, f"[ $1 = ps ] || echo '{found}'")
    with pytest.raises(
        RefusedError, match=rf"the image is for pdp11, this machine is {platform.machine()}; use an image"
    ):
        Engine("docker").image("a", Console())


def test_full_disk_is_an_error_with_the_command_that_frees_it(folder: Path) -> None:
    message = "Error response from daemon: mkdir /var/lib/docker/overlay2/1: no space left on device"
    write_docker(folder, f"[ $1 = ps ] || {{ echo '{message}' >&2; exit 1; }}")
    with pytest.raises(
        RefusedError, match=r"^docker create: mkdir .*: no space left on device; free space .* system prune"
    ):
        Engine("docker").ask("create")


def test_container_gets_a_copy_of_the_stores_certificates(folder: Path) -> None:
    write_docker(folder, "")
    (folder / "ca.pem").write_text("certificates")
    (folder / "ml/input/config").mkdir(parents=True)
    run: Any = SimpleNamespace(root=lambda host: folder / "ml")
    host: Any = None
    runner = Containers(
        Engine("docker"), Image("a", "a", ()), "label=run", Console(), "127.0.0.1", isolated=False, alone=False
    )
    found = runner.environ(run, host, {"AWS_CA_BUNDLE": str(folder / "ca.pem"), "AWS_REGION": "eu-west-1"})
    assert found == {"AWS_CA_BUNDLE": "/opt/ml/input/config/ca-bundle.pem", "AWS_REGION": "eu-west-1"}
    assert (folder / "ml/input/config/ca-bundle.pem").read_text() == "certificates"
    with pytest.raises(RefusedError, match=r"AWS_CA_BUNDLE .*: No such file or directory; name a file of certificates"):
        runner.environ(run, host, {"AWS_CA_BUNDLE": str(folder / "none.pem")})
