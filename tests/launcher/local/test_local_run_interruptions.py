"""Local runs that are stopped by a limit or interrupted like spot instances.

The scripts are PID 1: the launcher sends SIGTERM as soon as they handle it, so `0s` interrupts them exactly there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import launcher
from launcher.console import Console
from launcher.errors import InputError
from launcher.local.attempts import planned_end
from launcher.local.channels.stores import embedded_store
from launcher.local.checkpoints import Checkpoints
from launcher.local.processes import Processes
from launcher.local.state import LocalRun
from launcher.local.workspace import LocalOptions, hosts_of
from launcher.parsing.parser import load
from launcher.rules.examples import laid_over_base
from local_jobs import assert_nothing_is_left, command, launch, namespaces, result, signalled
from patience import PATIENCE, wait_for

CHECKPOINTS = "checkpoint_config: {s3_uri: s3://bucket/checkpoints/}\n"
STOPPED = (
    "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *a: (open('/opt/ml/model/saved', 'w'), sys.exit(3)))\n"
)


def write_script(here: Path, script: str, overlay: str = "channels: null\n") -> None:
    """Write a job whose PID 1 is the script."""
    (here / "script.py").write_text(script)
    entrypoint = json.dumps([sys.executable, str(here / "script.py")])
    (here / "job.yaml").write_text(laid_over_base(f"container_entrypoint: {entrypoint}\n{overlay}"))


@pytest.mark.parametrize(
    ("options", "trained", "waited", "interruptions", "expected"),
    [
        ({}, 0, 0, 0, (50, "MaxRuntimeExceeded")),
        ({}, 20, 40, 1, (30, "MaxRuntimeExceeded")),
        ({}, 20, 95, 1, (5, "MaxWaitTimeExceeded")),
        ({"stop_after": 30.0}, 20, 20, 1, (10, "Stopped")),
        ({"interrupt_after": 30.0}, 0, 0, 0, (30, "Interrupted")),
        ({"interrupt_after": 30.0}, 30, 30, 1, (20, "MaxRuntimeExceeded")),
    ],
)
def test_first_limit_ends_an_attempt(
    options: dict[str, Any], trained: float, waited: float, interruptions: int, expected: tuple[float, str]
) -> None:
    request = {"StoppingCondition": {"MaxRuntimeInSeconds": 50, "MaxWaitTimeInSeconds": 100}}
    end = planned_end(request, LocalOptions(**options), trained, waited, interruptions)
    assert (end.seconds, end.secondary) == expected


def test_nothing_ends_a_job_without_limits() -> None:
    assert planned_end({}, LocalOptions(), 1e9, 1e9, 0).seconds == float("inf")


@pytest.mark.parametrize(
    ("limit", "options", "secondary"),
    [("1", [], "MaxRuntimeExceeded"), ("600", ["--stop-after", "0s"], "Stopped")],
    ids=["limit", "stop"],
)
def test_stopped_job_saves_its_model(here: Path, limit: str, options: list[str], secondary: str) -> None:
    namespaces()
    write_script(
        here,
        f"{STOPPED}while True: signal.pause()",
        f"channels: null\nstopping_condition: {{max_runtime_in_seconds: {limit}}}",
    )
    assert "stopping (up to 120 s; Ctrl-C kills)" in launch(here, *options, code=5)
    found = result(here)
    assert (found["TrainingJobStatus"], found["SecondaryStatus"], list(found["Artifacts"])) == (
        "Stopped",
        secondary,
        ["model"],
    )
    assert [each["Status"] for each in found["SecondaryStatusTransitions"]] == [
        "Downloading",
        "Training",
        "Uploading",
        secondary,
    ]


def test_interrupted_job_restarts_with_its_checkpoints_and_nothing_else(here: Path) -> None:
    namespaces()
    script = """
import json, os, pathlib, signal, sys, tempfile
ml, folder = pathlib.Path("/opt/ml"), pathlib.Path("/opt/ml/checkpoints")
config = json.loads((ml / "input/config/resourceconfig.json").read_text())
host = config["current_host"]
read = sorted(path.name for path in folder.glob("*.txt"))
pipe = len((ml / "input/data/pipe_0").read_text().split())
names = [sorted(path.name for path in (ml / name).iterdir()) for name in ("model", "input/data/train")]
names += [os.listdir(tempfile.gettempdir()), os.listdir(os.environ["HOME"])]
print("hosts", config["hosts"], "read", read, "pipe", pipe, "names", names, flush=True)
tempfile.mkstemp()
for place in (ml / "model", ml / "input/data/train", pathlib.Path.home()):
    (place / host).touch()
for name in read:
    (folder / name).unlink()
(folder / f"by-{host}").touch()
if read:
    sys.exit()
(folder / "1.txt").touch()
def stop(*args):
    (folder / f"stopped-{host}").touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
while True:
    signal.pause()
"""
    channels = "channels: {train: s3://bucket/train/, pipe: {s3_uri: s3://bucket/train/, input_mode: Pipe}}\n"
    write_script(here, script, CHECKPOINTS + channels)
    output = launch(here, "--interrupt-after", "0s", "--instance-count", "2")
    files = [f"{index}.txt" for index in range(6)]
    for host in ("algo-1", "algo-2"):
        for read in ([], ["1.txt"]):
            shown = f"hosts ['algo-1', 'algo-2'] read {read} pipe 12 names [[], {files}, [], []]"
            assert output.count(f"{host} | {shown}\n") == 1
    assert "warning: SageMaker interrupts and restarts a job only with enable_managed_spot_training: true" in output
    assert "interrupted: the job starts again, with its checkpoints" in output
    assert "Completed" in output
    assert "interrupted 1 time" in output
    found = result(here)
    assert found["Interruptions"] == 1
    attempt = ["Downloading", "Training"]
    statuses = [each["Status"] for each in found["SecondaryStatusTransitions"]]
    assert statuses == [*attempt, "Interrupted", *attempt, "Uploading", "Completed"]
    stored = here / ".launch/job/s3/bucket/checkpoints"
    assert sorted(path.name for path in stored.iterdir()) == [
        *("by-algo-1", "by-algo-2", "stopped-algo-1", "stopped-algo-2"),
    ]
    with tarfile.open(here / ".launch/job/s3/bucket/out/job/output/model.tar.gz") as tar:
        assert sorted(tar.getnames()) == ["algo-1", "algo-2"]


def test_job_continues_with_other_hosts_by_resuming_a_stopped_run(here: Path) -> None:
    """Which host reads what changes; what was read is in the checkpoints."""
    namespaces()
    script = """
import pathlib, signal, sys
done = pathlib.Path("/opt/ml/checkpoints")
rest = [path for path in sorted(pathlib.Path("/opt/ml/input/data/train").iterdir()) if not (done / path.name).exists()]
print("rest", len(rest), flush=True)
for path in rest[:2]:
    (done / path.name).touch()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if len(rest) > 3:
    signal.pause()
"""
    channels = "channels: {train: {s3_uri: s3://bucket/train/, s3_data_distribution_type: ShardedByS3Key}}\n"
    write_script(here, script, CHECKPOINTS + channels)
    launch(here, "--stop-after", "0s", code=5)
    output = launch(here, "--name", "second", "--resume", "job", "--instance-count", "2")
    assert sorted(line for line in output.splitlines() if "rest" in line) == ["algo-1 | rest 2", "algo-2 | rest 2"]
    stored = here / ".launch/second/s3/bucket/checkpoints"
    assert sorted(path.name for path in stored.iterdir()) == [f"{index}.txt" for index in range(6)]


def test_line_with_the_text_interrupts_the_job_once(here: Path) -> None:
    """The script waits after its line unless it has been interrupted; the checkpoint counts the attempts."""
    script = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
attempts = pathlib.Path("/opt/ml/checkpoints/attempts")
done = len(attempts.read_text()) if attempts.exists() else 0
attempts.write_text("x" * (done + 1))
print("epoch 1", flush=True)
print("epoch 2: loss 0.5", flush=True)
if not done:
    signal.pause()
"""
    namespaces()
    write_script(here, script, f"channels: null\n{CHECKPOINTS}")
    output = launch(here, "--interrupt-at", "epoch 2:")
    assert output.count("algo-1 | epoch 2: loss 0.5") == 2
    found = result(here)
    assert (found["TrainingJobStatus"], found["Interruptions"]) == ("Completed", 1)


def test_text_that_no_line_has_interrupts_nothing(here: Path) -> None:
    write_script(here, "print('epoch 1')")
    output = launch(here, "--interrupt-at", "epoch 2", "--no-namespaces")
    assert "warning: --interrupt-at: the job ended before a line with 'epoch 2' could interrupt it" in output


def test_empty_text_is_refused(here: Path) -> None:
    """Each line contains it."""
    write_script(here, "")
    output = launch(here, "--interrupt-at", "", code=InputError.exit_code)
    assert "error: --interrupt-at: the text is empty" in output


def test_limit_still_ends_an_attempt_that_waits_for_a_text() -> None:
    request, options = {"StoppingCondition": {"MaxRuntimeInSeconds": 50}}, LocalOptions(interrupt_at="epoch 2")
    ends = [planned_end(request, options, 20.0, 20.0, interruptions) for interruptions in (0, 1)]
    assert [(end.seconds, end.interrupt_at) for end in ends] == [(30, "epoch 2"), (30, None)]


def test_ctrl_c_after_an_interruption_ends_the_run(here: Path) -> None:
    namespaces()
    write_script(here, f"{STOPPED}while True: signal.pause()")
    assert signalled(here, "--interrupt-after", "0s", at="interrupted: the job starts again")[0] == 130
    assert result(here)["SecondaryStatusTransitions"][-1]["Status"] == "Stopped"
    assert_nothing_is_left(here)


@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_while_a_temporary_folder_is_made_leaves_none(
    here: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The interrupt comes just after the folder has been made, by a change of Python's own function that makes it."""
    write_script(here, "")
    change = f"""
import os, signal, tempfile
made = []
def mkdtemp(*args, usual=tempfile.mkdtemp, **named):
    made.append(usual(*args, **named))
    if len(made) == {number}:
        os.kill(os.getpid(), signal.SIGINT)
    return made[-1]
tempfile.mkdtemp = mkdtemp
"""
    (here / "change").mkdir()
    (here / "change/sitecustomize.py").write_text(change)
    monkeypatch.setenv("PYTHONPATH", str(here / "change"))
    (here / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(here / "temporary"))
    assert subprocess.run(command("--no-namespaces"), cwd=here, check=False, timeout=PATIENCE).returncode == 130
    assert_nothing_is_left(here)
    assert [*(here / "temporary").iterdir()] == []


def test_restart_that_cannot_be_delivered_fails_the_run(here: Path) -> None:
    namespaces()
    data = here / "data/s3/bucket/train"
    write_script(here, f"import shutil\nshutil.rmtree('{data}')\n{STOPPED}while True: signal.pause()", "")
    output = launch(here, "--interrupt-after", "0s", code=4)
    assert "s3://bucket/train/" in result(here)["FailureReason"], output


def test_mistyped_time_of_an_interruption_is_refused(here: Path) -> None:
    write_script(here, "")
    assert "expected a time such as 90s" in launch(here, "--interrupt-after", "often", code=2)


def test_checkpoints_are_stored_during_the_job_and_completed_at_its_end(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = here / "data/s3/bucket/checkpoints"
    (before / "old").mkdir(parents=True)
    (before / "old/file").write_text("one")
    write_script(here, "", CHECKPOINTS)
    plan = launcher.plan(load(str(here / "job.yaml")), name="job")
    folder = here / ".launch/job"
    folder.mkdir(parents=True)
    run = LocalRun(plan, LocalOptions(), folder, hosts_of(plan.request), Console(), Processes(mounts=False), here)
    own, stored = folder / "algo-1/checkpoints", folder / "s3/bucket/checkpoints"
    with embedded_store(here / "data", run.s3_folder) as store:
        checkpoints = Checkpoints(run, store)
        checkpoints.place(run.hosts[0])
        with checkpoints.stored_meanwhile():
            (own / "new").write_text("two")
            (own / "latest").symlink_to("new")
            (own / "epoch-1").mkdir()
            (own / "last-epoch").symlink_to("epoch-1")
            (own / "folder").symlink_to(before)
            (own / "outside").symlink_to("/etc/passwd")
            wait_for(lambda: (stored / "latest").exists() and (stored / "new").exists())
        (own / "late").write_text("three")
        (own / "old/file").unlink()
        (own / "old").rmdir()
        (own / "old").write_text("a file now")
        checkpoints.store()
        checkpoints.forget()
        shutil.rmtree(folder / "algo-1")
        checkpoints.place(run.hosts[0])
    assert {path.name: path.read_text() for path in own.iterdir()} == {
        "new": "two",
        "late": "three",
        "latest": "two",
        "old": "a file now",
    }
    assert [path for path in own.rglob("*") if path.is_symlink()] == []
    assert (before / "old/file").read_text() == "one"
    shown = capsys.readouterr().err
    for link, target in (("last-epoch", "epoch-1"), ("outside", "/etc/passwd"), ("folder", before)):
        assert f"the checkpoint {link} is a link to {target}, which is not stored" in shown
