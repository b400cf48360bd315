"""Local runs that have ended or still run: listed, shown, followed, resumed and removed."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

import launcher
from aws_stand_in import StandIn
from forked import LAUNCHER, Forked, run
from launcher.local.leftovers import remove_run
from launching import launch as called
from local_jobs import command, launch, write_job
from patience import PATIENCE, wait_for
from sagemaker_channels.job.process_identity import start_time
from terminals import on_terminal

SCRIPT = """
import os, pathlib, sys, time
step = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"), "checkpoints/step")
begin = int(step.read_text()) if step.exists() else 0
print("begins with", begin)
for number in range(begin, begin + 3):
    print(f"loss={1 / (number + 1):.3f}")
    step.write_text(str(number + 1))
pathlib.Path(os.environ["SM_MODEL_DIR"], "model.pt").write_text("model")
"""
OVERLAY = """\
metric_definitions: [{name: loss, regex: "loss=([0-9.]+)"}]
checkpoint_config: {s3_uri: "s3://bucket/checkpoints"}
channels: null
"""


@pytest.fixture
def ended(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the ended run `job`; it is the working folder."""
    monkeypatch.chdir(here)
    write_job(here, SCRIPT, OVERLAY)
    launch(here)
    return here


def data(*arguments: str) -> Any:
    done = called(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def killed(here: Path, name: str) -> None:
    """Leave the folder of a run whose process has ended without a result."""
    folder = here / ".launch" / name
    folder.mkdir()
    noted = json.loads((here / ".launch/job/run.json").read_text())
    (folder / "run.json").write_text(json.dumps(noted | {"CreationTime": "2020-02-02T02:02:02+00:00"}))


def test_killed_run_is_removed_with_folders_without_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overlay leaves one. Root may remove it as it is, so this is another user."""
    (tmp_path / "run/work").mkdir(parents=True)
    (tmp_path / "run/work").chmod(0)
    monkeypatch.chdir(tmp_path)
    if os.geteuid() == 0:
        for path in (tmp_path, tmp_path / "run", tmp_path / "run/work"):
            os.chown(path, 65534, 65534)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            warnings: list[str] = []
            remove_run(Path("run"), warnings.append)
            os._exit(len(warnings))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not (tmp_path / "run").exists()


def test_ended_and_killed_runs_are_listed_and_shown(ended: Path) -> None:
    killed(ended, "old")
    assert [(run["TrainingJobName"], run["TrainingJobStatus"]) for run in data("list", "--local")] == [
        ("job", "Completed"),
        ("old", "Stopped"),
    ]
    assert [run["TrainingJobName"] for run in data("list", "--local", "--status", "Stopped")] == ["old"]
    assert [run["TrainingJobName"] for run in data("list", "--local", "--since", "1d")] == ["job"]
    assert data("list", "nothing", "--local") == []
    shown = called("status", "job", "--local")
    assert "job: Completed" in shown.stdout and "metric     loss = 0.333" in shown.stdout
    assert shown.stderr == ""
    assert data("status", "job", "--local") == json.loads((ended / ".launch/job/result.json").read_text()) | {
        "Folder": ".launch/job"
    }
    assert "old: Stopped, began 2020-02-02" in called("status", "old", "--local").stdout
    missing = called("status", "jobs", "--local")
    assert (missing.returncode, "did you mean job?" in missing.stderr) == (3, True)


def test_lines_of_a_run_are_shown_and_its_metrics_drawn(ended: Path) -> None:
    lines = ["begins with 0", "loss=1.000", "loss=0.500", "loss=0.333"]
    shown = called("logs", "job", "--local", "--plot", "loss.svg")
    assert shown.stdout.splitlines() == [f"algo-1 | {line}" for line in lines]
    assert "<svg" in (ended / "loss.svg").read_text()
    of_json = called("logs", "job", "--local", "--json").stdout.splitlines()
    assert [json.loads(line) for line in of_json] == [{"host": "algo-1", "message": line} for line in lines]
    assert called("logs", "job", "--local", "--since", "1h").returncode == 2
    assert "job has algo-1" in called("logs", "job", "--local", "--host", "algo-2").stderr


def test_running_run_is_entered_and_followed_to_its_end_and_not_removed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    entered = [*command()[:3], "exec", "job", "--local", "--"]
    wait = "print('waits', flush=True)\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.05)\nprint('ends')\nsys.exit(7)\n"
    write_job(here, f"import os, sys, time\n{wait}", f"channels: null\nhyperparameters: {{go: {here}/go}}\n")
    with subprocess.Popen(command(), cwd=here, stdout=DEVNULL, stderr=DEVNULL) as running, ExitStack() as stack:
        stack.callback((here / "go").touch)  # so that the run ends, too, if something here fails
        log = here / ".launch/job/algo-1.log"
        wait_for(lambda: log.exists() and "waits" in log.read_text())
        assert [run["TrainingJobStatus"] for run in data("list", "--local")] == ["InProgress"]
        assert "job: InProgress" in called("status", "job", "--local").stdout
        how = f"press Ctrl-C in its terminal, or `kill {running.pid}`"
        assert f"job has not ended; {how}\n" in called("clean", "job", "--yes").stderr
        assert f"job is a local run; to stop it, {how}\n" in called("stop", "job").stderr
        assert data("clean", "--yes") == []
        done = run(LAUNCHER, [*entered[1:], "ls; echo $SM_HP_GO; env | grep -c ^LAUNCHER_S; exit 7"], cwd=here)
        assert (done.returncode, done.stdout) == (7, f"train.py\n{here}/go\n0\n"), done.stderr
        with on_terminal([*entered, "exec python3"], here) as terminal:
            terminal.type("import os; print(os.environ['SM_CURRENT_HOST'], 6 * 7)\n")
            terminal.wait_for("algo-1 42")
            # Python may keep an interrupt, at its prompt until a line is typed, and as a sleep begins to its end.
            terminal.type("import time; print('sle' + 'eps'); [time.sleep(0.1) for _ in range(6000)]\n")
            terminal.wait_for("sleeps")
            terminal.type("\x03")
            terminal.wait_for("KeyboardInterrupt")
            terminal.type("exit(3)\n")
            assert terminal.end() == 3, terminal.shown
        assert "; use `launch exec job -- top`" in called("top", "job").stderr
        words = [*command()[:3], "logs", "job", "--local", "--follow"]
        with subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert following.stdout.readline() == "algo-1 | waits\n"
            (here / "go").touch()
            rest, report = following.communicate(timeout=PATIENCE)
    assert "algo-1 | ends\n" in rest
    assert (following.returncode, running.returncode) == (4, 4)
    assert "job is Failed; only a running job can be entered" in called("exec", "job", "--local", "--", "ls").stderr
    assert "job: Failed" in report


def test_resumed_run_begins_with_the_checkpoints_of_the_earlier_one(ended: Path) -> None:
    assert "begins with 3" in launch(ended, "--name", "second", "--resume", "job")
    output = launch(ended, "--name", "third", "--resume", "latest")
    assert "resumes second: 1 file" in output and "begins with 6" in output
    assert not (ended / ".launch/third/s3/bucket/out/second").exists()
    assert (ended / ".launch/job/s3/bucket/checkpoints/step").read_text() == "3"
    assert "did you mean job?" in launch(ended, "--name", "fourth", "--resume", "jobs", code=3)
    elsewhere = ("--set", "checkpoint_config.s3_uri=s3://bucket/more", "--name", "fourth", "--resume", "job")
    assert "job has stored no checkpoints at checkpoint_config.s3_uri s3://bucket/more" in launch(
        ended, *elsewhere, code=3
    )
    assert not (ended / ".launch/fourth").exists()


def test_latest_to_resume_is_a_run_that_has_ended(ended: Path) -> None:
    """Another one, or a shell of `launch exec job.yaml`, may be open in another terminal."""
    killed(ended, "open")
    noted = json.loads((ended / ".launch/job/run.json").read_text())
    running = {"CreationTime": "2100-01-01T00:00:00+00:00", "Process": [os.getpid(), start_time(os.getpid())]}
    (ended / ".launch/open/run.json").write_text(json.dumps(noted | running))
    assert "resumes job: 1 file" in launch(ended, "--name", "second", "--resume", "latest")


def test_clean_removes_the_chosen_runs_only(ended: Path) -> None:
    killed(ended, "old")
    (ended / "run.json").write_text("{}")
    refused = called("clean")
    assert refused.returncode == 3 and "--yes removes these runs" in refused.stderr
    assert called("clean", "..", "--yes").returncode == 3
    assert (ended / "run.json").exists() and (ended / "job.yaml").exists()
    assert data("clean", "--keep", "1", "--dry-run") == ["old"]
    shown = called("clean", "--dry-run").stderr
    assert re.search(
        r"^job  Completed  \d+ s ago  [\d.]+ kB\nold  Stopped  \d+ d.* ago  [\d.]+ kB\n2 runs would", shown, re.M
    )
    assert data("clean", "--keep", "2", "--yes") == []
    assert data("clean", "--older-than", "30d", "--yes") == ["old"]
    assert data("clean", "--yes") == ["job"]
    assert "no local runs" in called("clean", "--yes").stderr
    assert [path.name for path in (ended / ".launch").iterdir()] == [".gitignore"]


@pytest.mark.parametrize("command", [("list", "--local"), ("clean", "--yes"), ("logs", "job", "--local")])
def test_runs_of_another_user_are_refused_by_their_folder(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    (tmp_path / ".launch").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "iterdir", denied)
    done = called(*command)
    assert done.returncode == 3
    assert done.stderr == "error: .launch: Permission denied; ask its owner for access, or use another path\n"


def test_clean_removes_a_link_to_a_run_and_not_what_it_names(ended: Path) -> None:
    (ended / "kept").mkdir()
    (ended / "kept/run.json").write_text((ended / ".launch/job/run.json").read_text())
    (ended / ".launch/linked").symlink_to(ended / "kept")
    assert "linked  Stopped  " in called("clean", "linked", "--dry-run").stderr
    assert data("clean", "linked", "--yes") == ["linked"]
    assert (ended / "kept/run.json").exists() and not (ended / ".launch/linked").is_symlink()


def test_latest_is_the_latest_run(ended: Path) -> None:
    killed(ended, "old")
    assert data("status", "latest", "--local") == data("status", "job", "--local")
    assert called("logs", "latest", "--local").stdout == called("logs", "job", "--local").stdout


def test_name_of_a_local_run_alone_shows_it(ended: Path, aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called("logs", "job").stdout.splitlines()[0] == "algo-1 | begins with 0"
    shown = called("status", "job")
    assert "job: Completed" in shown.stdout
    assert shown.stderr == "job is read from ./.launch, since there is no training job 'job' in us-east-1\n"
    assert called("status", "job", "--region", "us-east-1").returncode == 3
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    shown = called("logs", "job", "--follow")
    assert "job is read from ./.launch, since no AWS region is configured\n" in shown.stderr
    assert (shown.returncode, "error" in shown.stderr) == (0, False)
    assert "job: already Completed\n" in called("stop", "job").stderr


def test_local_run_is_compared_with_a_job(ended: Path, aws: StandIn) -> None:
    request = launcher.plan("job.yaml", name="job-2", set={"hyperparameters.lr": 2}).request
    aws.client("sagemaker").create_training_job(**request)
    aws.log("job-2", ["loss=0.125"])
    aws.job("job-2", "Completed")
    file = ended / "plot.svg"
    found = data("compare", "job", "job-2", "--plot", str(file))
    assert found["differences"] == [{"path": "HyperParameters", "values": {"job": None, "job-2": {"lr": "2"}}}]
    losses = [job["Metrics"]["loss"] for job in found["jobs"]]
    assert losses == [{"last": 0.333, "least": 0.333, "most": 1.0}, dict.fromkeys(("last", "least", "most"), 0.125)]
    assert {"job", "job-2"} <= set(re.findall("<!-- (.*?) -->", file.read_text()))
    shown = called("compare", "job", "job-2").stdout
    assert shown.splitlines()[0].split()[:2] == ["job", "Completed"] and "loss:\n  job    last 0.333" in shown
    assert data("compare", "latest", "job-2")["jobs"] == found["jobs"]


def test_spec_is_compared_with_a_local_run(ended: Path, aws: StandIn) -> None:
    assert data("diff", "job.yaml", "job") == []
    changed = data("diff", "job.yaml", "job", "--set", "stopping_condition.max_runtime_in_seconds=2h")
    assert [each["path"] for each in changed] == ["StoppingCondition.MaxRuntimeInSeconds"]


def test_job_in_aws_of_the_name_of_a_local_run_is_shown_with_a_hint(ended: Path, aws: StandIn) -> None:
    request = launcher.plan("job.yaml", name="job").request
    aws.client("sagemaker").create_training_job(**request)
    shown = called("status", "job")
    assert "job: InProgress" in shown.stdout
    assert shown.stderr == "./.launch/job is a local run of this name; --local shows it\n"


def test_process_that_hangs_ends_with_the_test_that_forked_it() -> None:
    hanging = ["-c", f"import time; time.sleep({PATIENCE})"]
    with pytest.raises(subprocess.TimeoutExpired), Forked(LAUNCHER, hanging) as process:
        process.communicate(timeout=0.1)
    assert process.returncode == -signal.SIGKILL
