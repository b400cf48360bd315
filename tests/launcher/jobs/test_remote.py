"""`launch exec NAME`: sessions in hosts of running jobs. The session-manager-plugin is a script that runs commands here.

It prints what the real plugin and the agent in the container do around the command's output, as their public source shows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from followed_job import job
from forked import LAUNCHER, run
from patience import PATIENCE

PLUGIN = """\
#!{python}
import json, os, subprocess, sys
session = json.loads(os.environ[sys.argv[1]])
with open("plugin.json", "w") as file:
    json.dump([session, *sys.argv[2:]], file)
print("\\nStarting session with SessionId: " + session["SessionId"], flush=True)
parameters = json.loads(sys.argv[5])
if "Parameters" not in parameters:
    sys.exit(int(os.environ.get("PLUGIN_EXIT", "0")))
if "PLUGIN_EXIT" not in os.environ:
    code = subprocess.run(["sh", "-c", *parameters["Parameters"]["command"]]).returncode
    print("EXIT_CODE: " + str(code), end="")
print("\\n\\nExiting session with sessionId: " + session["SessionId"] + ".\\n")
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin/session-manager-plugin"
    program.parent.mkdir()
    program.write_text(PLUGIN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.fixture
def cats(aws: StandIn) -> StandIn:
    """An account with the running job cats-1 on two hosts."""
    job(aws, hosts=2)
    aws.job("cats-1", "Training")
    aws.clear_calls()
    return aws


def called(aws: StandIn) -> list[str]:
    return [call["operation"] for call in aws.calls()]


def execute(*options: str, name: str = "cats-1") -> subprocess.CompletedProcess[str]:
    return run(LAUNCHER, ["-m", "launcher", "exec", name, *options])


def test_command_runs_in_host_after_enabling_remote_debugging(cats: StandIn, tmp_path: Path) -> None:
    done = execute("--host", "algo-2", "--", "printf", "%s", "it's $HOME")
    assert (done.returncode, done.stdout) == (0, "it's $HOME"), done.stderr
    assert "remote debugging of cats-1 is now enabled" in done.stderr
    assert called(cats) == ["DescribeTrainingJob", "UpdateTrainingJob", "StartSession", "TerminateSession"]
    session, region, operation, profile, parameters, endpoint = json.loads((tmp_path / "plugin.json").read_text())
    assert (session["TokenValue"], region, operation, profile) == ("hidden-token", "us-east-1", "StartSession", "")
    assert endpoint.startswith("http")
    assert json.loads(parameters)["Target"] == "sagemaker-training-job:cats-1_algo-2"
    assert "hidden-token" not in done.stdout + done.stderr
    cats.clear_calls()
    assert execute("--", "exit 7").returncode == 7
    assert "UpdateTrainingJob" not in called(cats)


@pytest.mark.parametrize(
    ("line", "printed", "code"),
    [
        ("echo a; echo; echo EXIT_CODE: 3; echo b; exit 5", "a\n\nEXIT_CODE: 3\nb\n", 5),
        ("printf 'no end'; exit 1", "no end", 1),
        ("echo a; echo; echo", "a\n\n\n", 0),
    ],
)
def test_output_of_command_is_copied_without_what_the_plugin_adds(
    cats: StandIn, line: str, printed: str, code: int
) -> None:
    done = execute("--", line)
    assert done.returncode == code
    assert done.stdout == printed


def test_json_has_the_exit_code_alone_on_stdout(cats: StandIn) -> None:
    done = execute("--json", "--", "echo shown; exit 7")
    assert json.loads(done.stdout) == {"TrainingJobName": "cats-1", "Host": "algo-1", "ExitCode": 7}
    assert "shown" in done.stderr


def test_session_without_exit_code_is_no_success(cats: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUGIN_EXIT", "0")
    done = execute("--", "true")
    assert done.returncode == 3
    assert "without the command's exit code" in done.stderr
    assert execute().returncode == 0  # an interactive session has none
    monkeypatch.setenv("PLUGIN_EXIT", "255")
    assert execute().returncode == 3


def test_ctrl_c_is_the_plugins_and_ends_the_session(cats: StandIn) -> None:
    words = [sys.executable, "-m", "launcher.cli", "exec", "cats-1", "--", "echo begun; sleep 60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert called(cats)[-1] == "TerminateSession"


@pytest.mark.parametrize(
    ("options", "secondary", "said"),
    [
        (["--host", "algo-3"], "Training", "cats-1 has algo-1 to algo-2"),
        ([], "Starting", "cats-1 is Starting; a job can be entered while it is Downloading or Training"),
        ([], "Completed", "cats-1 is Completed; a job can be entered while it is Downloading or Training"),
        (["--sample", "3"], "Training", "--sample works only with a spec"),
    ],
)
def test_job_that_cannot_be_entered_is_refused(aws: StandIn, options: list[str], secondary: str, said: str) -> None:
    job(aws, hosts=2)
    aws.job("cats-1", secondary)
    aws.clear_calls()
    done = execute(*options, "--", "true")
    assert done.returncode in (2, 3)
    assert said in done.stderr
    assert aws.writing_calls() == []


def test_isolated_job_and_missing_permission_are_refused(aws: StandIn) -> None:
    job(aws, EnableNetworkIsolation=True)
    aws.job("cats-1", "Training")
    assert "enable_network_isolation" in execute().stderr
    job(aws, TrainingJobName="dogs-1", RemoteDebugConfig={"EnableRemoteDebug": True})
    aws.job("dogs-1", "Training")
    aws.deny("ssm:StartSession")
    done = execute(name="dogs-1")
    assert done.returncode == 3
    assert "ssm:StartSession" in done.stderr


def test_missing_plugin_is_refused_before_anything_is_changed(cats: StandIn, plugin: Path) -> None:
    plugin.unlink()
    done = execute()
    assert done.returncode == 3
    assert "session-manager-plugin was not found" in done.stderr
    assert "brew install" in done.stderr
    assert called(cats) == []
