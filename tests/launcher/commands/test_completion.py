"""Shell completion, requested as click's scripts for bash, zsh and fish do."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import launcher
from aws_stand_in import StandIn
from launcher import bundled
from launcher.cli import main
from launcher.commands import COMMANDS
from launcher.rules.examples import BASE
from patience import PATIENCE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("job.yaml", "spec.yml", "request.json", ".hidden.yaml", "train.py"):
        (tmp_path / name).write_text(BASE)
    monkeypatch.chdir(tmp_path)


def offered(line: str, shell: str = "bash") -> list[str]:
    """Return the completions of `launch LINE`, as `type,value` for bash."""
    words = ["launch", *shlex.split(line), *([""] if line.endswith(" ") or not line else [])]
    typed = words[-1] if shell == "fish" else str(len(words) - 1)
    printed, errors = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with pytest.MonkeyPatch.context() as environment, redirect_stdout(printed), redirect_stderr(errors):
        environment.setenv("_LAUNCH_COMPLETE", f"{shell}_complete")
        environment.setenv("COMP_WORDS", " ".join(words))
        environment.setenv("COMP_CWORD", typed)
        with pytest.raises(SystemExit):
            main([])
    assert errors.getvalue() == ""
    printed.seek(0)
    answer = printed.read()
    return answer.split("\n")[:-1] if answer.strip() else []


def test_launch_offers_commands_and_specs() -> None:
    commands = [f"plain,{name}" for name in COMMANDS]
    assert offered("") == [*commands, "plain,job.yaml", "plain,request.json", "plain,spec.yml"]
    assert offered("s") == ["plain,submit", "plain,status", "plain,stop", "plain,spec.yml"]
    assert offered(".") == ["plain,.hidden.yaml"]
    assert offered("folder/") == ["file,folder/"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("import ", ["file,"]),
        ("submit ", ["file,"]),
        ("--example s3-pipe-t", ["plain,s3-pipe-tar"]),
        ("--explain disk-too", ["plain,disk-too-small"]),
        ("job.yaml --ignore max-runtime-s", ["plain,max-runtime-short"]),
        ("submit --dry", ["plain,--dry-run"]),
        ("list --status comp", ["plain,Completed"]),
        ("job.yaml --local --instance", ["plain,--instance-count"]),
        ("job.yaml --lo", ["plain,--local"]),
        ("job.yaml --dry", ["plain,--dry-run"]),
    ],
)
def test_completion_offers_values_of_option(line: str, answer: list[str]) -> None:
    assert offered(line) == answer


def test_every_example_is_offered() -> None:
    assert offered("--example ") == [f"plain,{name}" for name in bundled.spec_names()]


def test_zsh_and_fish_get_completions() -> None:
    assert offered("j", "zsh")[:2] == ["plain", "job.yaml"]
    assert offered("j", "fish") == ["plain,job.yaml"]


def test_job_names_are_offered_for_arguments_of_commands(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.commands.options.MAX_COMPLETION_SECONDS", PATIENCE)
    for name in ("one", "other", "two"):
        aws.client("sagemaker").create_training_job(**launcher.plan("job.yaml", name=name).request)
    aws.job("one", "Completed")
    for command in ("status", "logs", "rerun", "diff job.yaml"):
        assert sorted(offered(f"{command} o")) == ["plain,one", "plain,other"]
    assert sorted(offered("stop ")) == ["plain,other", "plain,two"]
    offered("status --region eu-west-1 o")
    assert [call["region"] for call in aws.calls("sagemaker:ListTrainingJobs")][-1] == "eu-west-1"
    assert aws.writing_calls() == ["sagemaker:CreateTrainingJob"] * 3


def test_nothing_is_offered_if_aws_refuses_or_hangs(aws: StandIn) -> None:
    aws.deny("sagemaker:ListTrainingJobs")
    assert offered("status ") == []
    aws.clear_faults()
    aws.fault("hang", "sagemaker:ListTrainingJobs")
    assert offered("status ") == []
    aws.clear_faults()


def test_bash_completes_a_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls the function of the script in docs/howto/editors.md as bash does."""
    script = """
        eval "$(_LAUNCH_COMPLETE=bash_source launch)"
        COMP_WORDS=(launch jo) COMP_CWORD=1
        _launch_completion launch
        echo "${COMPREPLY[@]}"
    """
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("job.yaml\n", "")
