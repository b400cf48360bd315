"""What container engines' refusals mean for the user, by a program that refuses as they do; and what containers get."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.console import Console
from launcher.errors import RefusedError
from launcher.local import containers
from launcher.local.containers import Containers
from launcher.local.engine import Engine, Image
from launcher.local.workspace import HostProcess, LocalOptions

ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the programs, besides which there is only a shell."""
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_engine(folder: Path, script: str, name: str = "docker") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("name", "package"), [("docker", r"docker\.io"), ("podman", "podman")])
@pytest.mark.linux
def test_machine_without_the_engine_is_refused_with_how_to_install_it(folder: Path, name: str, package: str) -> None:
    with pytest.raises(
        RefusedError, match=rf"no program {name}; install it \(`apt-get install {package}`\), or leave out"
    ):
        Engine(name)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            "no engine is running: start it",
        ),
        ("error during connect: Get http://nonsense:2375/v1.50: dial tcp: no such host", "or correct DOCKER_HOST"),
        (
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
            r"usermod -aG docker \$USER",
        ),
    ],
)
def test_engine_that_does_not_answer_is_refused_with_a_remedy(folder: Path, message: str, remedy: str) -> None:
    write_engine(folder, f"echo '{message}' >&2; exit 1")
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
    write_engine(folder, '[ "$1" = ps ] || [ "$1" = images ] || { echo "$2: no basic auth credentials" >&2; exit 1; }')
    with pytest.raises(RefusedError, match=f"no basic auth credentials; build or load it, .* or log in: {login}"):
        Engine("docker").image(image, Console())


def test_misspelt_image_is_refused_with_how_to_write_it(folder: Path) -> None:
    write_engine(
        folder, 'case $1 in ps) ;; images) echo a:1 a:b b:c ;; *) echo "invalid reference format" >&2; exit 1 ;; esac'
    )
    with pytest.raises(
        RefusedError,
        match=r"^docker pull a b: invalid reference format; write it as NAME:TAG, in lower.*; did you mean a:b\?$",
    ):
        Engine("docker").image("a b", Console())


@pytest.mark.linux
def test_image_of_another_processor_is_refused(folder: Path) -> None:
    found = json.dumps([{"Architecture": "pdp11", "Id": "sha256:0", "Config": {}}])
    write_engine(folder, f"[ $1 = ps ] || echo '{found}'")
    with pytest.raises(
        RefusedError, match=rf"the image is for pdp11, this machine is {platform.machine()}; use an image"
    ):
        Engine("docker").image("a", Console())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("mkdir /var/lib/docker/overlay2/1: no space left on device", r"mkdir .*; free space .* system prune"),
        ('exec: "/bin/sh": no such file or directory: unknown', r"exec: .*; the image has no /bin/sh"),
    ],
)
def test_container_that_cannot_start_is_an_error_with_a_remedy(folder: Path, message: str, reason: str) -> None:
    said = f"Error response from daemon: {message}\nError: failed to start containers: launch-job-algo-1"
    write_engine(folder, f"[ $1 = ps ] || {{ echo '{said}' >&2; exit 1; }}")
    with pytest.raises(RefusedError, match=f"^docker start: {reason}") as refused:
        Engine("docker").ask("start")
    assert "failed to start containers" not in str(refused.value)


@pytest.mark.linux
def test_short_name_of_an_image_is_refused_with_its_full_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    log = 'time="1" level=warning msg="Failed, retrying'
    message = (
        f'{log}\nError: short-name "a" did not resolve to an alias and no unqualified-search registries are defined'
    )
    write_engine(folder, f"[ $1 = ps ] || [ $1 = images ] || {{ echo '{message}' >&2; exit 125; }}", "podman")
    with pytest.raises(RefusedError, match=r"^podman pull a: short-name .*; name the image with its registry"):
        Engine("podman").image("a", Console())


@pytest.mark.parametrize("name", ["podman", "docker"])
@pytest.mark.linux
def test_rootless_podman_is_refused_by_any_name(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write_engine(folder, "echo podman version 4.3.1", name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RefusedError, match=r"not an address of this machine; use sudo, or --local alone"):
        Engine(name)


@pytest.mark.parametrize(
    ("name", "options"), [("docker", "--gpus all "), ("podman", "--device nvidia.com/gpu=all "), ("docker", "")]
)
@pytest.mark.linux
def test_containers_get_all_gpus_if_there_are_any(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: str
) -> None:
    """A program writes down its arguments in the engine's place, since machines that run tests have no GPU."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(containers, "NVIDIA", folder if options else folder / "none")
    states = '[{"State": {"Running": true, "Pid": 1}}]'
    write_engine(folder, f"[ $2 != inspect ] || echo '{states}'; echo \"$@\" >>{folder}/asked", name)
    for place in ("input/config", "model", "output", "output/data"):
        (folder / "run/algo-1/ml" / place).mkdir(parents=True)
    runner = Containers(
        Engine(name), Image("a", "a", ()), "label=run", Console(), "127.0.0.1", isolated=False, alone=False
    )
    runner.prepare([HostProcess("algo-1", folder / "run/algo-1/ml", ("train",), {}, (), str(folder))])
    asked = (folder / "asked").read_text()
    assert options in asked
    assert ("--gpus" in asked or "nvidia" in asked) == bool(options)


def test_container_gets_a_copy_of_the_stores_certificates(folder: Path) -> None:
    write_engine(folder, "")
    (folder / "ca.pem").write_text("certificates")
    (folder / "ml/input/config").mkdir(parents=True)
    plan: Any = SimpleNamespace(request={})
    runner = Containers(
        Engine("docker"), Image("a", "a", ()), "label=run", Console(), "127.0.0.1", isolated=False, alone=False
    )
    _, found = runner.settings(
        plan, folder / "ml", {"AWS_CA_BUNDLE": str(folder / "ca.pem"), "AWS_REGION": "eu-west-1"}
    )
    assert found == {"AWS_CA_BUNDLE": "/opt/ml/input/config/ca-bundle.pem", "AWS_REGION": "eu-west-1"}
    assert (folder / "ml/input/config/ca-bundle.pem").read_text() == "certificates"
    with pytest.raises(RefusedError, match=r"^AWS_CA_BUNDLE /none\.pem: cannot be read: No such file"):
        runner.settings(plan, folder / "ml", {"AWS_CA_BUNDLE": "/none.pem"})


@pytest.fixture
def desktop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job of a File channel, on a Mac whose engine answers."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    (folder / "sleep").symlink_to(shutil.which("sleep") or "/bin/sleep")
    image = json.dumps([{"Architecture": "amd64", "Id": "sha256:0", "Config": {}}])
    write_engine(folder, f"echo \"$@\" >>{folder}/asked; [ $2 != inspect ] || echo '{image}'")
    channel = {"ChannelName": "train", "InputMode": "File"}
    return SimpleNamespace(request={"TrainingJobName": "job", "InputDataConfig": [channel]})


def test_docker_desktop_reaches_this_machine_by_name_and_emulates_processors(folder: Path, desktop: Any) -> None:
    store = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_SAGEMAKER": "http://localhost:2",
        "A": "localhost",
    }
    with containers.opened(desktop, LocalOptions(runner="docker", image="a"), Console()) as runner:
        _, found = runner.settings(desktop, folder / "ml", {**store, "no_proxy": "127.0.0.1,localhost"})
        assert runner.address == "127.0.0.1"
    there = "host.docker.internal"
    assert found == {
        "AWS_ENDPOINT_URL": f"http://{there}:1",
        "AWS_ENDPOINT_URL_SAGEMAKER": f"http://{there}:2",
        "A": "localhost",
        "no_proxy": f"{there},localhost",
    }
    assert "network inspect" not in (folder / "asked").read_text()


def test_docker_desktop_refuses_what_needs_a_fifo_before_it_asks_for_the_image(folder: Path, desktop: Any) -> None:
    [channel] = desktop.request["InputDataConfig"]
    channel["InputMode"] = "Pipe"
    with (
        pytest.raises(RefusedError, match=r"needs Linux for input_mode Pipe \(channel train\); use --local alone, or"),
        containers.opened(desktop, LocalOptions(runner="docker", image="a"), Console()),
    ):
        pass
    with (
        pytest.raises(RefusedError, match="a shell in a container needs Linux"),
        containers.opened(desktop, LocalOptions(runner="docker", image="a", shell="algo-1"), Console()),
    ):
        pass
    assert (folder / "asked").read_text().split("\n") == ["--version", "ps --quiet"] * 2 + [""]
    with pytest.raises(RefusedError, match="--local podman needs Linux; use --local docker"):
        Engine("podman")
