"""What other repositories use: the hook of pre-commit, the GitHub Action and the agent skill."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import launcher
from launcher import pre_commit
from launcher.cli import cli
from launcher.errors import EXIT_CODES
from launcher.rules import find_problems
from launcher.rules.examples import BASE, laid_over_base
from make_docs import all_commands
from patience import PATIENCE

ROOT = Path(launcher.__file__).parents[1]
SKILL = ROOT / "docs/skills/sagemaker-launch/SKILL.md"
WRONG = laid_over_base("role_arn: nobody")


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a right and a wrong spec and other YAML."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"right.yaml": BASE, "wrong.yaml": WRONG}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "ci.yml").write_text("on: push\njobs: {}\nname: CI\nenvironment: {}\n")
    return tmp_path


def test_hook_checks_the_specs_among_the_files(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pre_commit.main(["ci.yml", "right.yaml"]) == 0
    assert pre_commit.main(["ci.yml", "wrong.yaml", "right.yaml"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.findall(r"^error: (\w+\.ya?ml):", shown.err, re.MULTILINE) == ["wrong.yaml"]
    assert pre_commit.main(["--set=role_arn=arn:aws:iam::123456789012:role/x", "wrong.yaml"]) == 0


def test_hook_checks_the_specs_that_extend_a_file_in_its_place(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (specs / "jobs").mkdir()
    whole = yaml.safe_load(BASE)
    role = whole.pop("role_arn")
    (specs / "base.yaml").write_text(yaml.safe_dump(whole))
    (specs / "jobs/middle.yaml").write_text("extends: [../base.yaml]\nmax_cost: 5\n")
    (specs / "jobs/one.yaml").write_text(f"extends: middle.yaml\nrole_arn: {role}\n")
    (specs / "jobs/two.yaml").write_text("extends: ../base.yaml\nrole_arn: nobody\n")
    assert pre_commit.main(["base.yaml"]) == 2
    assert "role_arn" in capsys.readouterr().err
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    assert pre_commit.main(["jobs/middle.yaml"]) == 0
    assert pre_commit.main(["base.yaml", "jobs/middle.yaml"]) == 2
    assert re.findall(r"^error: ([\w/]+\.yaml):", capsys.readouterr().err, re.MULTILINE) == ["jobs/two.yaml"]


def test_hook_checks_the_specs_below_a_changed_file_of_the_team(
    specs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LAUNCH_TEAM")
    (specs / "wrong.yaml").unlink()
    (specs / ".launch.yaml").write_text("required: {tags.team: vision}\n")
    assert pre_commit.main([".launch.yaml"]) == 0  # the repository has no spec
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    assert pre_commit.main([".launch.yaml"]) == 2
    assert "right.yaml:1:1: tags.team: is required by the team's file" in capsys.readouterr().err


def test_hook_is_declared_as_the_documentation_writes_it() -> None:
    (ours,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    page = (ROOT / "docs/howto/editors.md").read_text()
    (block,) = re.findall(r"```yaml\n(repos:.*?)```", page, re.DOTALL)
    (local,) = yaml.safe_load(block)["repos"][0]["hooks"]
    assert local.pop("additional_dependencies")
    assert local.items() <= ours.items()


def action(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's second step as GitHub does, with this environment's `launch`."""
    declared = yaml.safe_load((ROOT / "action.yml").read_text())
    step = declared["runs"]["steps"][1]
    given = {name: inputs.get(name, each.get("default", "")) for name, each in declared["inputs"].items()}
    program = folder / "temp/sagemaker-launch/bin/launch"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m launcher "$@"\n')
    program.chmod(0o755)
    environ = {name: given[re.findall(r"inputs\.(\w+)", value)[0]] for name, value in step["env"].items()}
    environ |= {"PATH": "/usr/bin:/bin", "RUNNER_TEMP": str(folder / "temp"), "GITHUB_ACTIONS": "true"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_action_checks_every_spec_and_fails_if_one_is_wrong(specs: Path) -> None:
    (specs / "$(touch hacked).yaml").write_text(BASE)
    (specs / "--set=x=1.yaml").write_text(BASE)
    done = action(specs, specs="wrong.yaml\n*.yaml\n", options="--name=a b;touch hacked\n")
    assert done.returncode == 2
    assert len(re.findall("^::error ", done.stderr, re.MULTILINE)) >= 4
    done = action(specs, specs="*t*.yaml\n", options="--set=hyperparameters.text=a b; touch hacked\n")
    assert (done.returncode, done.stdout.count("a b; touch hacked")) == (0, 3), done.stderr
    assert not (specs / "hacked").exists()
    (specs / "a/b").mkdir(parents=True)
    (specs / "a/b/deep.yaml").write_text(BASE)
    done = action(specs, specs="  a/**/*.yaml \r\n", options=" --name=deep \r\n")
    assert (done.returncode, done.stdout.count("TrainingJobName")) == (0, 1), done.stderr


@pytest.mark.parametrize("inputs", [{"specs": " \n"}, {"specs": "right.yaml", "mode": "x;y"}])
def test_action_refuses_wrong_inputs(specs: Path, inputs: dict[str, str]) -> None:
    done = action(specs, **inputs)
    assert (done.returncode, done.stdout.count("::error::")) == (2, 1)


def test_action_has_no_input_in_a_script() -> None:
    """GitHub replaces `${{ }}` before bash reads the script."""
    for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]:
        assert "${{" not in step["run"]


def test_skill_has_the_form_of_agent_skills_and_names_commands_that_exist() -> None:
    _, front, text = SKILL.read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["name"] == SKILL.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", about["name"])
    assert 0 < len(about["description"]) <= 1024
    commands = all_commands()
    lines = re.findall(r"`launch (.+?)(?: > \S+)?`", text)
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)
        name = "local" if "--local" in words else words[0] if words[0] in commands else "submit"
        known = {name for each in (cli, commands[name]) for option in each.params for name in option.opts} | {"--help"}
        assert words[0] in {*commands, "job.yaml", "COMMAND"} or words[0].startswith("--"), line
        assert [word for word in words if word.startswith("--") and word not in known] == [], line
    codes = re.findall(r"^\| (\d+) \| (.+?) \|", text, re.MULTILINE)
    assert codes
    assert all(EXIT_CODES[int(code)].startswith(meaning) for code, meaning in codes)
    (spec,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert find_problems(launcher.parse_spec(laid_over_base(spec))) == []
