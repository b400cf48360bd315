"""`code.command` and the tags of its git commit, from the spec to the request."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import launcher
from boot_container import Container
from launcher.code.git import commit_of
from launcher.errors import SpecError
from launcher.rules.examples import laid_over_base
from sagemaker_channels import contract

LINE = "cd src\npython train.py --text 'é \"x\"' " + "--more " * 60


def planned(folder: Path, code: str, overlay: str = "") -> launcher.Plan:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text("print('trained')\n")
    (folder / "job.yaml").write_text(laid_over_base(f"code: {{directory: src, {code}}}\n{overlay}"))
    return launcher.plan(folder / "job.yaml", name="one")


def found(folder: Path, code: str, overlay: str = "") -> list[str]:
    try:
        return [problem.code for problem in planned(folder, code, overlay).warnings]
    except SpecError as error:
        return [problem.code for problem in error.problems]


@pytest.mark.parametrize("command", [LINE, ["accelerate", "launch", "train.py", ""]])
def test_command_survives_the_request(command: Any, tmp_path: Path) -> None:
    plan = planned(tmp_path, f"command: {json.dumps(command)}, arguments: none")
    form, option, *pieces = plan.request["AlgorithmSpecification"]["ContainerArguments"]
    assert (form, option, json.loads("".join(pieces))) == ("--arguments=none", "--command", command)
    assert all(len(piece) <= 256 and "\n" not in piece for piece in pieces)


def test_command_in_the_request_is_what_boot_runs(tmp_path: Path) -> None:
    plan = planned(tmp_path, 'command: "echo one two"', "hyperparameters: {a: 1}")
    container = Container(tmp_path / "ml", {"x": ""}, hyperparameters={"a": "1"})
    assert container.run(*plan.request["AlgorithmSpecification"]["ContainerArguments"]).stdout == "one two -a 1\n"


def test_toolkit_gets_the_command_in_a_variable(tmp_path: Path) -> None:
    plan = planned(tmp_path, "command: torchrun train.py, delivery: submit_directory")
    assert plan.request["HyperParameters"]["sagemaker_program"] == "launcher_bundle/entrypoints/boot.py"
    arguments = json.loads(plan.request["Environment"][contract.BOOT_ARGUMENTS_VARIABLE])
    assert arguments == ["--command", '"torchrun train.py"']


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("cd . && python train.py --a 'x|y' 2>&1", []),
        ("python train.py | tee log", ["code-command"]),
        ('python train.py \\"$@\\" | tee log', []),
        ("for i in 1 2; do python train.py; done", ["code-command"]),
        ("python train.py # comment", ["code-command"]),
        ("echo it's", ["code-command"]),
        ("python trian.py", ["code-command-file"]),
        ("python ${HOME}/train.py", ["code-command"]),
        ("  ", ["code-entry-point"]),
        ("accelerate launch train.py", ["code-command-hosts"]),
        ("accelerate launch --num_machines=2 train.py", []),
        ("x" * 26_000, ["aws-max"]),
    ],
)
def test_doubtful_command_is_reported(
    command: str, codes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    overlay = "hyperparameters: {a: 1}\nresource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}"
    assert found(tmp_path, f'command: "{command}"', overlay) == codes


def git(folder: Path, *arguments: str) -> str:
    user = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *user, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def tags(plan: launcher.Plan) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in plan.request.get("Tags", [])}


def test_commit_of_the_code_folder_becomes_tags(tmp_path: Path) -> None:
    code = "entry_point: train.py"
    assert tags(planned(tmp_path, code)) == {}, "a folder outside of a repository"
    git(tmp_path, "init", "--quiet")
    assert tags(planned(tmp_path, code)) == {}, "a repository without a commit"
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    plan = planned(tmp_path, code)
    assert tags(plan) == {"git-commit": commit, "git-dirty": "false"}
    (tmp_path / "src" / "new.py").write_text("")
    plan = planned(tmp_path, code)
    assert commit_of(plan.request["Tags"]) == f"commit {commit[:12]} with uncommitted changes"
    assert tags(planned(tmp_path, code, "tags: {git-commit: mine}")) == {"git-commit": "mine", "git-dirty": "true"}
    assert tags(planned(tmp_path, f"{code}, git: false")) == {}
    assert tags(planned(tmp_path, code, "request: {Tags: null}")) == {}
    many = "".join(f", t{number}: x" for number in range(49))
    assert len(tags(planned(tmp_path, code, f"tags: {{t: x{many}}}"))) == 50
    (tmp_path / ".gitignore").write_text("/src/\n")
    git(tmp_path, "rm", "--quiet", "-r", "--cached", "src")
    assert tags(planned(tmp_path, code)) == {}, "an ignored folder is not what the commit has"


def test_plan_without_git_has_no_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tags(planned(tmp_path, "entry_point: train.py")) == {}
