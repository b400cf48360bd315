"""Ends of local runs: Ctrl-C, signals, and a launcher that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import launcher
from launcher.errors import RefusedError
from launcher.local.channels.stores import embedded_store
from launcher.local.workspace import LocalOptions
from launcher.rules.examples import laid_over_base
from local_jobs import assert_nothing_is_left, begun, command, launch, processes_of, result, signalled, write_job
from patience import PATIENCE, wait_for
from terminals import on_terminal


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_ctrl_c_stops_the_run_and_leaves_nothing(here: Path, options: list[str]) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *a: (print('saving'), sys.exit(0)))\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    channels = (
        "channels: {train: {s3_uri: s3://bucket/train/, input_mode: Pipe},"
        " v: {s3_uri: s3://bucket/train/, input_mode: FastFile}}"
    )
    write_job(here, script, channels)
    code, output = signalled(here, *options)
    assert (code, "saving" in output) == (130, True), output
    assert result(here)["TrainingJobStatus"] == "Stopped"
    assert_nothing_is_left(here)


def test_ctrl_c_before_the_training_leaves_no_folder(here: Path, fuse: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher waits for a program that mounts nothing."""
    rclone = here / "bin/rclone"
    rclone.parent.mkdir()
    rclone.write_text(f"#!/bin/sh\ntouch {here}/asked\nexec sleep 600")
    rclone.chmod(0o755)
    monkeypatch.setenv("PATH", f"{rclone.parent}:{os.environ['PATH']}")
    write_job(here, "", "channels: {train: {s3_uri: s3://bucket/train/, input_mode: FastFile}}")
    with subprocess.Popen(command(), cwd=here, stderr=subprocess.PIPE, text=True) as process:
        wait_for((here / "asked").exists)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE)
    assert process.returncode == 130
    assert not (here / ".launch/job").exists()
    assert_nothing_is_left(here)


def test_ctrl_c_after_the_script_has_ended_keeps_the_result(here: Path) -> None:
    script = """
import os, sys, time
parent = os.getpid()
if os.fork() == 0:
    os.setsid()
    while os.getppid() == parent:
        time.sleep(0.01)
    time.sleep(0.5)
    print("alone", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
"""
    # The launcher waits for the end of the output, which a process with a session of its own keeps open.
    (here / "script.py").write_text(script)
    entrypoint = json.dumps([sys.executable, str(here / "script.py"), str(here / "go")])
    (here / "job.yaml").write_text(laid_over_base(f"container_entrypoint: {entrypoint}\nchannels: null"))
    with begun(here, "--no-namespaces") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "alone" in line:
                process.send_signal(signal.SIGINT)
                (here / "go").touch()
        process.wait(timeout=PATIENCE)
    assert result(here)["TrainingJobStatus"] in ("Completed", "Stopped")  # the latter if the launcher is slow
    assert_nothing_is_left(here)


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_second_ctrl_c_kills_the_job(here: Path, options: list[str]) -> None:
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)"
    write_job(here, script)
    assert signalled(here, *options, at="ready|Ctrl-C again kills")[0] == 130
    assert_nothing_is_left(here)


def test_stop_by_sigterm_is_announced_without_an_earlier_ctrl_c(here: Path) -> None:
    write_job(here, "import time\nprint('ready', flush=True)\ntime.sleep(600)")
    code, output = signalled(here, number=signal.SIGTERM)
    assert (code, "stopping (up to 120 s; Ctrl-C kills)" in output) == (5, True), output


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_killed_launcher_leaves_no_process_and_no_mount(
    here: Path, fuse: None, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(here))  # for the folders that it leaves
    # A file that is open in the mount is closed in the moment in which the mount shall go.
    write_job(
        here,
        "import os, time\nopened = open(os.environ['SM_CHANNEL_TRAIN'] + '/0.txt')\nprint('ready', flush=True)\ntime.sleep(600)",
        "channels: {train: {s3_uri: s3://bucket/train/, input_mode: FastFile}}",
    )
    with subprocess.Popen(
        command(*options), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                process.kill()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and (processes_of(here) or str(here) in Path("/proc/self/mounts").read_text()):
        time.sleep(0.1)
    assert_nothing_is_left(here)


def test_run_of_the_same_name_is_refused(here: Path) -> None:
    write_job(here, "print('done')")
    launch(here)
    before = (here / ".launch/job/algo-1.log").stat()
    assert "holds an earlier run of this name" in launch(here, code=3)
    assert (here / ".launch/job/algo-1.log").stat() == before
    (here / ".launch/job/result.json").unlink()
    assert "earlier run of this name; unless it is still running, `launch clean job` removes it, or use" in launch(
        here, code=3
    )


def test_simultaneous_run_of_the_same_name_keeps_its_fifos(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(here, "")
    monkeypatch.chdir(here)
    fifo = here / ".launch/job/algo-1/pipe_0"

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        fifo.parent.mkdir(parents=True)
        os.mkfifo(fifo)
        return embedded_store(*arguments, **options)

    monkeypatch.setattr("launcher.local.run.embedded_store", meanwhile)
    with pytest.raises(RefusedError, match="holds an earlier run of this name"):
        launcher.run_local(launcher.plan("job.yaml", name="job"), options=LocalOptions(data=Path("data")))
    assert fifo.is_fifo()


@pytest.mark.parametrize("end", ["", "; 1 / 0"])
def test_run_whose_folder_is_removed_is_an_error(here: Path, end: str) -> None:
    """As `git clean -fdX` removes it, in another terminal."""
    write_job(here, "import os, shutil\nshutil.rmtree(os.environ['SAGEMAKER_BASE_DIR'] + '/../..')" + end)
    assert "/.launch/job was removed during the run" in launch(here, "--no-namespaces", code=3)


def test_stop_immediately_after_the_start_ends_the_job(here: Path) -> None:
    write_job(here, "import time\ntime.sleep(600)")
    with begun(here) as process:
        while not (here / ".launch/job/algo-1.log").exists():  # made as the host is started
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE)
    assert process.returncode == 130
    assert_nothing_is_left(here)


def test_ignored_sighup_stays_ignored(here: Path) -> None:
    write_job(here, "import time\nprint('ready', flush=True)\ntime.sleep(2)")
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with subprocess.Popen(command(), cwd=here, stdout=subprocess.PIPE, text=True, preexec_fn=ignore) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                process.send_signal(signal.SIGHUP)
    assert process.returncode == 0


def test_closed_terminal_ends_the_run_with_its_result(here: Path) -> None:
    script = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *a: (open(os.environ["SM_MODEL_DIR"] + "/saved", "w").close(), sys.exit(0)))
print("ready", flush=True)
time.sleep(600)
"""
    write_job(here, script)
    with on_terminal(command("--no-namespaces"), here) as terminal:
        terminal.wait_for("ready")
        terminal.close()
        assert terminal.process.wait(PATIENCE) == 130
    assert result(here)["TrainingJobStatus"] == "Stopped"
    assert "model" in result(here)["Artifacts"]
    assert_nothing_is_left(here)
