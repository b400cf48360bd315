"""The output of local runs: lines, progress bars, failures, metrics and JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.rules.examples import laid_over_base
from local_jobs import command, launch, namespaces, result, write_job
from patience import PATIENCE

REGEXES = ("loss=([0-9", "loss=([0-9]+)?", "loss")


def test_progress_bar_is_logged_in_its_last_state_only(here: Path) -> None:
    script = """
import sys
for percent in range(0, 101, 10):
    print(f"\\r{percent}%", end="", flush=True)
print()
for size in range(300):  # longer than a line that is kept
    sys.stdout.write("\\r" + str(size) * 5000)
print("\\rno line break", end="")
"""
    write_job(here, script)
    assert re.findall(r"algo-1 \| (.*)", launch(here)) == ["100%", "no line break"]
    assert (here / ".launch/job/algo-1.log").read_text() == "100%\nno line break\n"


def test_stdout_lines_are_not_joined_to_a_progress_bar_on_stderr(here: Path) -> None:
    script = """
import sys
for epoch in range(40):
    sys.stderr.write("\\r50%\\r100%")
    sys.stderr.flush()
    sys.stderr.write("\\n")
    print("epoch", epoch, flush=True)
"""
    write_job(here, script)
    lines = re.findall(r"algo-1 \| (.*)", launch(here))
    assert [line for line in lines if line != "100%"] == [f"epoch {epoch}" for epoch in range(40)]
    assert lines.count("100%") == 40
    assert sorted((here / ".launch/job/algo-1.log").read_text().splitlines()) == sorted(lines)


def test_terminal_shows_all_states_of_a_progress_bar_and_all_lines(here: Path) -> None:
    script = """
import os, time
print("first")
print("\\r10%\\r50%", end="", flush=True)
while not os.path.exists("GO"):
    time.sleep(0.01)
print("\\r100%")
for number in range(20_000): print("line", number)
"""
    write_job(here, script.replace("GO", str(here / "go")))
    ours, theirs = pty.openpty()
    shown = b""
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command(), cwd=here, stdin=theirs, stdout=theirs, stderr=theirs, env=environ):
        os.close(theirs)
        with suppress(OSError):  # the terminal has gone
            while chunk := os.read(ours, 65536):
                shown += chunk
                if b"50%" in shown:
                    (here / "go").touch()
    os.close(ours)
    said = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    lines = re.findall(r"algo-1 \| ([^\r]*)\r\n", said)
    assert lines == ["first", "100%", *(f"line {number}" for number in range(20_000))]


def test_failure_file_becomes_the_failure_reason(here: Path) -> None:
    write_job(here, "raise ValueError('no such column: label')")
    output = launch(here, code=4)
    assert result(here)["TrainingJobStatus"] == "Failed"
    assert result(here)["FailureReason"].startswith("ValueError: no such column: label")
    assert "no such column" in output
    assert not (here / ".launch/job/s3/bucket/out/job/output/model.tar.gz").exists()


def test_run_of_a_script_that_writes_no_model_does_not_miss_it(here: Path) -> None:
    text = "code: {entry_point: entrypoints/read_channels.py}\nchannels: {train: s3://bucket/train/}\n"
    (here / "job.yaml").write_text(laid_over_base(text))
    output = launch(here, "--no-namespaces")
    assert "job: Completed" in output
    assert "  model      none" not in output


def test_records_of_waits_are_shown_as_sentences(here: Path) -> None:
    record = "waits channel=train mode=File rank=0 workers=0 threads=0 cores=2 steps=100 step_s=0.03 own_share=0.59"
    notable, other = (f"{record} wait_share={share} source_share={share}" for share in (0.41, 0.01))
    write_job(here, f"print({notable!r})\nprint({other!r})\nprint('waits for nothing')")
    shown = re.findall(r"algo-1 \| (.*)", launch(here))
    assert shown == [
        "waits: 41 % of each step waits for channel train (the disk); more workers would remove about 40 %",
        "waits: 1 % of each step waits for channel train",
        "waits for nothing",
    ]
    raw = [notable, other, "waits for nothing"]
    assert (here / ".launch/job/algo-1.log").read_text().splitlines() == raw
    shutil.rmtree(here / ".launch")
    assert re.findall(r"algo-1 \| (.*)", launch(here, "--verbose")) == raw


def test_controls_of_a_job_are_not_printed(here: Path) -> None:
    script = """
evil = "\\x1b]0;title\\x07\\x1b[2J\\x9b2J"
print(f"waits channel={evil} mode=File rank=0 workers=0 threads=0 cores=2 steps=9 step_s=1 wait_share=1 own_share=0")
raise ValueError(f"bad {evil}label")
"""
    write_job(here, script)
    output = launch(here, code=4)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]|title", output)
    assert re.search(r"  reason     ValueError: bad label\n", output)
    assert re.search(r"  waits      ", output)


@pytest.mark.parametrize("link", ["output/failure", "output", "output/data"])
def test_links_out_of_the_jobs_folder_are_not_followed(here: Path, link: str) -> None:
    """In a container, a link names a file of the container, but outside it one of this machine."""
    for name in ("secret/failure", "secret/data/secret"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("a secret")
    target = here / "secret" / link.removeprefix("output").removeprefix("/")
    script = f"""
import os, shutil
path = os.path.join(os.path.dirname(os.environ["SM_MODEL_DIR"]), {link!r})
shutil.rmtree(path, ignore_errors=True)
os.symlink({str(target)!r}, path)
os.kill(os.getppid(), 9)
"""
    write_job(here, script)
    output = launch(here, "--no-namespaces", code=4)
    assert "a secret" not in output + str(result(here))
    assert "output" not in result(here)["Artifacts"]


def test_huge_failure_file_is_cut_and_fifos_of_the_job_are_removed(here: Path) -> None:
    script = """
import os, socket
for folder in (os.environ["SM_MODEL_DIR"], os.environ["SM_OUTPUT_DATA_DIR"]):
    os.chdir(folder)
    os.mkfifo("fifo")
    socket.socket(socket.AF_UNIX).bind("socket")
    open("kept", "w").close()
with open("../failure", "w") as file:
    file.write("a reason")
    file.truncate(1 << 40)
os.kill(os.getppid(), 9)
"""
    write_job(here, script)
    launch(here, "--no-namespaces", code=4)
    assert result(here)["FailureReason"].startswith("a reason")
    assert [path.name for path in (here / ".launch/job/algo-1/ml/model").iterdir()] == ["kept"]
    with tarfile.open(result(here)["Artifacts"]["output"]) as tar:
        assert tar.getnames() == ["kept"]


def test_failure_is_printed_once_with_its_likely_cause(here: Path) -> None:
    write_job(here, "import no_such_module_of_ours")
    output = launch(here, code=4)
    assert output.count("Traceback (most recent call last)") == 1
    assert (
        "  reason     ModuleNotFoundError: No module named 'no_such_module_of_ours'\n  at         train.py:1: import"
        in output
    )
    blamed = f"{sys.executable}, which ran the script here, has no module no_such_module_of_ours"
    assert f"  likely     {blamed}; no image ran, and the job's may have it [missing-module]\n" in output
    assert "  remedy     install its package here, or run the job's image (--local docker)" in output
    assert "Traceback" in result(here)["FailureReason"]
    assert result(here)["LikelyCause"]["Code"] == "missing-module"


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_pipe_opened_as_a_folder_gets_a_hint(options: list[str], here: Path) -> None:
    if not options:
        namespaces()
    overlay = "channels: {train: {s3_uri: s3://bucket/train/, input_mode: Pipe, content_type: text/csv}}"
    write_job(here, "import os\nos.listdir(os.environ['SM_CHANNEL_TRAIN'])", overlay)
    output = launch(here, *options, code=4)
    assert (
        "  likely     the channel train is a Pipe: it has no folder /opt/ml/input/data/train [pipe-as-folder]\n"
        in output
    )
    assert "read /opt/ml/input/data/train_0 as one stream" in output


def test_temporary_files_of_a_failed_job_are_removed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(here / "tmp"))
    # torchrun's own folder, torchelastic_*, and one of the script's.
    script = "import tempfile\nprint('made', tempfile.mkdtemp())\nraise ValueError"
    write_job(here, script, command="torchrun train.py")
    assert f"algo-1 | made {here}/tmp/launch-" in launch(here, code=4)
    assert list((here / "tmp").iterdir()) == []


def test_one_failed_host_ends_the_others(here: Path) -> None:
    script = "import os, sys, time\nif os.environ['SM_CURRENT_HOST'] == 'algo-2': sys.exit(7)\ntime.sleep(600)"
    overlay = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}"
    write_job(here, script, overlay)
    launch(here, code=4)
    assert "exit code 7" in result(here)["FailureReason"] or "7" in result(here)["FailureReason"]


def test_job_does_not_inherit_the_users_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "hush")
    write_job(here, "import os\nprint(sorted(os.environ))", "environment: {SAID: 'yes'}")
    output = launch(here)
    assert "'SAID'" in output
    assert "MY_SECRET_TOKEN" not in output


def test_json_option_prints_only_json_to_stdout(here: Path) -> None:
    write_job(here, "print('hello')")
    done = subprocess.run(command("--json"), cwd=here, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert json.loads(done.stdout)["TrainingJobStatus"] == "Completed"
    assert "algo-1 | hello" in done.stderr


def test_malformed_metric_does_not_stop_the_job(here: Path) -> None:
    """One is not a regex, one finds no number, one has no group."""
    metrics = ", ".join(f"{{name: {name}, regex: '{regex}'}}" for name, regex in zip("abc", REGEXES, strict=True))
    write_job(here, "print('loss=\\n' * 100_000)", f"metric_definitions: [{metrics}]")
    launch(here)
    assert result(here)["Metrics"] == {}


def test_closed_stdout_does_not_stop_the_job(here: Path) -> None:
    write_job(here, "for _ in range(100_000): print('line')")
    words = " ".join(command())
    subprocess.run(["bash", "-c", f"{words} | head -1"], cwd=here, check=True, capture_output=True, timeout=PATIENCE)
    assert result(here)["TrainingJobStatus"] == "Completed"


def test_end_of_a_run_reports_what_its_loops_waited_for(here: Path) -> None:
    script = """
import time
from sagemaker_channels import timed
def slow():
    for number in range(20):
        time.sleep(0.02)
        yield number
for number in timed(slow(), "train"):
    pass
"""
    write_job(here, script)
    assert re.search(r"\n  waits      \d+ % of each step waits for channel train\n", launch(here))
    assert result(here)["Waits"]["train"]["Share"] > 0.5
    with tarfile.open(result(here)["Artifacts"]["output"]) as outputs:
        assert outputs.getnames() == ["waits-algo-1-0.jsonl"]


@pytest.mark.parametrize("compression", ["GZIP", "NONE"])
def test_outputs_of_all_hosts_are_merged_whatever_they_are(here: Path, compression: str) -> None:
    script = """
import os, pathlib, socket
model, host = pathlib.Path(os.environ["SM_MODEL_DIR"]), os.environ["SM_CURRENT_HOST"]
(model / host).write_text(host)
(model / "both").write_text(host)
board = model.parent / "output/tensorboard"
board.mkdir()
(board / f"events.{host}").touch()
(model / "folder").mkdir()
(model / "folder" / host).write_text(host)
(model / "outside").symlink_to("OUTSIDE")
(model / "latest").symlink_to(host)
(model / "itself").symlink_to("itself")
os.chdir(model)
socket.socket(socket.AF_UNIX).bind("socket")
"""
    outside = here / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    output = f"output_data_config: {{s3_output_path: s3://bucket/out/, compression_type: {compression}}}\n"
    resources = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n"
    board = "tensor_board_output_config: {s3_output_path: s3://bucket/boards/}\n"
    write_job(here, script.replace("OUTSIDE", str(outside)), output + resources + board)
    launch(here)
    boards = here / ".launch/job/s3/bucket/boards/job/tensorboard-output"
    assert sorted(path.name for path in boards.iterdir()) == ["events.algo-1", "events.algo-2"]
    place = here / ".launch/job/s3/bucket/out/job/output"
    files = ["algo-1", "algo-2", "both", "folder/algo-1", "folder/algo-2", "latest"]
    if compression == "GZIP":
        with tarfile.open(place / "model.tar.gz") as tar:
            assert sorted(tar.getnames()) == sorted([*files, "folder", "itself", "outside"])
    else:
        found = {str(path.relative_to(place / "model")): path for path in place.rglob("*") if path.is_file()}
        assert sorted(found) == files
        assert found["latest"].read_text() == found["both"].read_text() == "algo-2"


def test_fifos_in_place_of_our_folders_are_removed(here: Path) -> None:
    """Removing a FIFO like a folder would wait for its writer for ever."""
    namespaces()
    script = """
import os, shutil
for folder in ("/opt/ml/launcher_bundle", "/opt/ml/input/data/launcher_code", os.environ["HOME"], "/opt/ml/input/data/train"):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.exists(folder):
        os.mkfifo(folder)
"""
    write_job(
        here, script, "channels: {train: {s3_uri: s3://bucket/train/, s3_data_distribution_type: ShardedByS3Key}}"
    )
    launch(here)
    assert sorted(path.name for path in (here / ".launch/job/algo-1").iterdir()) == ["hosts", "ml"]


def test_folders_that_the_job_has_locked_are_open_to_their_owner_again(here: Path) -> None:
    script = """
import os
os.chdir(os.environ["SM_MODEL_DIR"])
os.makedirs("locked/deep")
open("locked/deep/file", "w").close()
for path in ("locked/deep/file", "locked/deep", "locked"):
    os.chmod(path, 0)
"""
    write_job(here, script, "channels: null")
    launch(here, "--no-namespaces")
    folder = here / ".launch/job/algo-1/ml/model/locked"
    modes = [path.stat().st_mode & 0o700 for path in (folder, folder / "deep", folder / "deep/file")]
    assert modes == [0o700, 0o700, 0o600]
