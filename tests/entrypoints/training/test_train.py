"""train.py: what it learns and writes, and how it stops and resumes, by File and by Pipe."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import launcher
from launcher import bundled
from launcher.bundled import SCRIPTS
from patience import PATIENCE
from sagemaker_channels import Checkpoints, contract
from sagemaker_channels.formats import tar
from torch_ranks import torch_processes
from train_parts import small_cnn
from train_runs import REPOSITORY, assert_same, result, run


def test_training_learns_and_writes_model_and_metrics(
    make_root: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_root("ml")
    run("--epochs", "12")
    weights, metrics = result(root)
    small_cnn(1, 10).load_state_dict(weights)
    assert [each["epoch"] for each in metrics["epochs"]] == list(range(1, 13))
    assert metrics["epochs"][-1]["validation_accuracy"] > 0.6  # of ten classes, from 90 images
    assert metrics["test"]["test_accuracy"] > 0.6
    described = json.loads((root / contract.MODEL_DIR / "model.json").read_text())
    assert described["num_classes"] == 10 and described["epochs"] == 12 and described["image_mode"] == "L"
    assert Checkpoints(root / contract.CHECKPOINT_DIR).latest() == 12 * 6
    log = capsys.readouterr().out
    spec = launcher.load(str(bundled.spec_path("image-classification")))
    for definition in spec.metric_definitions or ():
        name = str(definition.name).replace(":", "_")
        *_, last = re.findall(str(definition.regex), log)
        value = {**metrics["epochs"][-1], **metrics["test"]}[name]
        assert float(last) == pytest.approx(value, abs=1e-4), name
    for channel, count in (("train", 90), ("validation", 30), ("test", 20)):
        assert re.search(rf"^  {channel} +File +{count} ", log, re.MULTILINE), log


@pytest.mark.parametrize(
    ("place", "message", "done"),
    [
        ("train 9", "written: 1 epoch(s) and 48 image(s) are done", 1),  # an epoch has six batches of 16
        ("train 12", "written: 1 epoch(s) and 90 image(s) are done", 1),
        ("test 1", "written: 0 epoch(s) and 90 image(s) are done", 0),  # two of validation
        ("test 7", "written: 3 epoch(s) and 0 image(s) are done", 3),
    ],
)
def test_stopped_training_resumes_with_the_same_result(
    place: str,
    message: str,
    done: int,
    make_root: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = ("--epochs", "3", "--model", "users_model:make")
    undisturbed = make_root("undisturbed")
    run(*model)
    stopped = make_root("stopped")
    monkeypatch.setenv("STOP_AT", place)
    with pytest.raises(SystemExit) as ended:
        run(*model)
    assert ended.value.code == 143
    assert message in capsys.readouterr().out
    assert len(result(stopped)[1]["epochs"]) == done
    assert Checkpoints(stopped / contract.CHECKPOINT_DIR).latest() is not None
    monkeypatch.delenv("STOP_AT")
    run(*model)
    assert "resuming from" in capsys.readouterr().out
    assert_same(stopped, undisturbed)


def test_training_resumes_after_a_whole_epoch(make_root: Callable[..., Path]) -> None:
    undisturbed = make_root("undisturbed")
    run("--epochs", "3")
    interrupted = make_root("interrupted")
    run("--epochs", "2")
    run("--epochs", "3")
    assert_same(interrupted, undisturbed)
    before = result(interrupted)
    run("--epochs", "3")  # nothing is left to do
    assert before[1] == result(interrupted)[1]


@pytest.mark.parametrize(
    ("option", "done"), [("--batch-size=30", 48), ("--num-workers=3", 48), ("--shuffle-block=9", 0), ("--seed=2", 0)]
)
def test_changed_order_restarts_the_epoch_and_a_changed_number_continues_it(
    option: str,
    done: int,
    make_root: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = make_root("ml")
    monkeypatch.setenv("STOP_AT", "train 9")
    with pytest.raises(SystemExit):
        run("--epochs", "2", "--model", "users_model:make")
    monkeypatch.delenv("STOP_AT")
    run("--epochs", "2", "--model", "users_model:make", option)
    assert f"1 epoch(s) and {done} image(s) are done" in capsys.readouterr().out
    assert len(result(root)[1]["epochs"]) == 2  # each image was seen once, or the job would have ended with an error


def test_workers_read_every_image_once(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    run("--epochs", "1", "--num-workers", "2")
    metrics = json.loads((root / contract.OUTPUT_DATA_DIR / "metrics.json").read_text())
    assert {row["channel"]: row["samples"] for row in metrics["channels"]}["train"] == 90


TAR = {"TrainingInputMode": "Pipe", "ContentType": "application/x-tar"}


def feed(root: Path, channel: str, epochs: int, data: bytes) -> threading.Thread:
    """As SageMaker does: the next epoch's FIFO comes after the last one's was read, or left."""

    def work() -> None:
        for epoch in range(epochs):
            fifo = root / contract.DATA_DIR / contract.fifo_name(channel, epoch)
            os.mkfifo(fifo)
            with suppress(BrokenPipeError):
                fifo.write_bytes(data)
            fifo.unlink()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def run_as_a_job(folder: Path, workers: str) -> subprocess.CompletedProcess[str]:
    """Trains for three epochs in a process of its own: which FIFO is an epoch's is a matter of the job."""
    options = ["--image-mode", "L", "--batch-size", "16", "--epochs", "3", "--model", "users_model:make"]
    environ = {"PYTHONPATH": f"{REPOSITORY}/entrypoints:{REPOSITORY}/tests/data"}
    command = [str(SCRIPTS / "train.py"), *options, "--num-workers", workers]
    return torch_processes(*command, cwd=folder, environs=[environ])


def test_epoch_of_a_shuffled_pipe_restarts_after_a_stop(
    make_root: Callable[..., Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = (data / "s3/my-bucket/digits/train-tar/train-000.tar").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    other = io.BytesIO()  # the same samples in another order
    tar.write(other, [{"__key__": name.rpartition(".")[0], "png": members[name]} for name in reversed(members)])
    monkeypatch.setenv(f"{contract.SHUFFLED_CHANNELS_VARIABLE}0", '["train"]')
    root = make_root("ml", train=TAR)
    thread = feed(root, "train", 2, shard)
    monkeypatch.setenv("STOP_AT", "train 8")  # the second epoch's second step
    jobs = [run_as_a_job(root.parent, "1")]
    thread.join(timeout=PATIENCE)
    monkeypatch.setenv("STOP_AT", "test 1")  # the second epoch is trained, and not yet tested
    thread = feed(root, "train", 1, other.getvalue())
    jobs.append(run_as_a_job(root.parent, "1"))
    thread.join(timeout=PATIENCE)
    monkeypatch.delenv("STOP_AT")
    feed(root, "train", 1, shard)
    jobs.append(run_as_a_job(root.parent, "1"))
    assert [job.returncode for job in jobs] == [143, 143, 0], jobs
    log = "".join(job.stdout for job in jobs)
    assert "checkpoints: 1 epoch(s) and 0 image(s) are done" in log
    assert "checkpoints: 1 epoch(s) and 90 image(s) are done" in log
    epochs = result(root)[1]["epochs"]
    assert [epoch["train_loss"] > 0 for epoch in epochs] == [True] * 3


def test_stopped_pipe_training_resumes_from_fifo_0_of_the_next_job(
    make_root: Callable[..., Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = (data / "s3/my-bucket/digits/train-tar/train-000.tar").read_bytes()
    whole = make_root("whole", train=TAR)
    threads = [feed(whole, "train", 3, shard)]
    assert run_as_a_job(tmp_path, "2").returncode == 0
    root = make_root("ml", train=TAR)
    threads.append(feed(root, "train", 2, shard))
    monkeypatch.setenv("STOP_AT", "train 8")  # the second epoch's second step
    assert run_as_a_job(tmp_path, "2").returncode == 143
    threads[-1].join(timeout=PATIENCE)
    monkeypatch.delenv("STOP_AT")
    threads.append(feed(root, "train", 2, shard))  # the second epoch's and the third's
    assert run_as_a_job(tmp_path, "2").returncode == 0
    for thread in threads:
        thread.join(timeout=PATIENCE)
        assert not thread.is_alive()
    assert_same(root, whole)
