"""`launch exec SPEC`: a shell where the job would run, on a terminal and without one, and nothing left after it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from launcher.rules.examples import laid_over_base
from local_jobs import assert_nothing_is_left, namespaces, write_job
from patience import PATIENCE
from terminals import on_terminal

CHANNELS = (
    "channels: {train: {s3_uri: s3://bucket/train/, input_mode: FastFile}, pipe: {s3_uri: s3://bucket/train/, "
    "input_mode: Pipe}}\nhyperparameters: {text: it's $HOME}\n"
)
COMMAND = [sys.executable, "-m", "launcher.cli", "exec", "job.yaml", "--data", "data", "--name", "job"]


def shell(here: Path, typed: str, *options: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *options], cwd=here, input=typed, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert not (here / ".launch/job").exists()
    assert_nothing_is_left(here)
    return done


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_shell_without_terminal_runs_commands_where_the_job_would(here: Path, options: list[str], fuse: None) -> None:
    write_job(here, "import os\nprint('trained', os.environ['SM_HP_TEXT'])", CHANNELS)
    typed = "cat $SM_CHANNEL_TRAIN/3.txt\nhead -n 1 ../input/data/pipe_0\npython3 train.py\nexit 7\n"
    done = shell(here, typed, *options)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "train 3\ntrain 0\ntrained it's $HOME\n"


def test_command_runs_in_place_of_the_shell(here: Path) -> None:
    write_job(
        here,
        "import os, sys\nprint('trained', sys.argv[1], os.environ['SM_HP_TEXT'])",
        "hyperparameters: {text: it's}\n",
    )
    done = shell(here, "ignored\n", "--no-namespaces", "--", "python3", "train.py", "$HOME it's")
    assert (done.returncode, done.stdout) == (0, "trained $HOME it's it's\n"), done.stderr
    assert shell(here, "", "--no-namespaces", "--", "ls | grep -c train; exit 7").returncode == 7


def test_shell_in_another_host_has_its_name_and_shard(here: Path, fuse: None) -> None:
    namespaces()
    sharded = "s3_uri: s3://bucket/train/, s3_data_distribution_type: ShardedByS3Key"
    channels = f"channels: {{train: {{{sharded}}}, pipe: {{{sharded}, input_mode: Pipe}}}}"
    write_job(
        here,
        "",
        f"resource_config: {{instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}}\n{channels}",
    )
    done = shell(
        here, "hostname; ls $SM_CHANNEL_TRAIN; cat ../input/data/pipe_0; getent hosts algo-1", "--host", "algo-2"
    )
    odd = (1, 3, 5)
    files, lines = "".join(f"{each}.txt\n" for each in odd), "".join(f"train {each}\n" for each in odd)
    assert done.stdout.startswith(f"algo-2\n{files}{lines}127.0.1.1"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ["--host", "algo-3", "--instance-count", "2"],
            "--host algo-3: the job runs on algo-1, algo-2; name one of them",
        ),
        *(
            (
                [option, "1s"],
                "--stop-after, --interrupt-after, --interrupt-at end a job; leave them out: you end the shell",
            )
            for option in ("--stop-after", "--interrupt-after", "--interrupt-at")
        ),
    ],
)
def test_shell_that_cannot_be_is_refused(here: Path, options: list[str], error: str) -> None:
    write_job(here, "", CHANNELS)
    done = shell(here, "", *options)
    assert done.returncode == 2
    assert error in done.stderr


def test_shell_of_a_job_with_its_own_entrypoint_prints_json_alone(here: Path) -> None:
    namespaces()
    (here / "job.yaml").write_text(laid_over_base("container_entrypoint: [/no/such]\nchannels: null"))
    done = shell(here, "echo $TRAINING_JOB_NAME; kill -9 $$", "--json", "--no-namespaces")
    result = json.loads(done.stdout)
    assert result["ExitCode"] == 137
    assert result["Fidelity"]["hosts"]["Same"] is True
    assert "job\n" in done.stderr


def test_shell_on_a_terminal_keeps_ctrl_c_for_its_programs(here: Path, fuse: None) -> None:
    namespaces()
    write_job(here, "", CHANNELS)
    with on_terminal(COMMAND, here) as terminal:
        terminal.wait_for("a shell on algo-1; the job runs: python3 /opt/ml/input/data/launcher_code/boot.py train.py")
        program = """sh -c 'trap "echo $((6 * 7)) caught; exit 3" INT; echo $((6 * 8)) waits; while :; do sleep 0.1; done'\n"""
        terminal.type(f"ls -d $SM_CHANNEL_TRAIN; {program}")
        terminal.wait_for("48 waits")
        terminal.type("\x03")
        terminal.wait_for("42 caught")  # the terminal has dropped what was typed before
        terminal.type("echo $((6 * 9)) $?\n")
        terminal.wait_for("54 3")
        terminal.type("exit 7\n")
        assert terminal.end() == 7, terminal.shown
    assert not (here / ".launch/job").exists()
    assert_nothing_is_left(here)


def test_shell_ends_with_the_launcher(here: Path) -> None:
    namespaces()
    write_job(here, "", "channels: {train: s3://bucket/train/}\n")
    with on_terminal(COMMAND, here) as terminal:
        terminal.wait_for("a shell on")
        terminal.type("echo $((6 * 7))\n")
        terminal.wait_for("42")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 130, terminal.shown
    assert not (here / ".launch/job").exists()
    assert_nothing_is_left(here)


def test_killed_shell_can_be_cleaned(here: Path) -> None:
    write_job(here, "")
    with subprocess.Popen([*COMMAND, "--no-namespaces"], cwd=here, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("echo ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        process.kill()
    clean = [sys.executable, "-m", "launcher", "clean", "job", "--yes"]
    done = subprocess.run(clean, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (here / ".launch/job").exists()
