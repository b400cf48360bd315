"""train.py: what it learns and leaves, how it is stopped and goes on, what it refuses; by File and by Pipe."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import channel_specs
import launcher
from entrypoints import contract, train
from entrypoints.image_training.model import small_cnn
from entrypoints.records.archives import tar_write
from launcher import demo

REPOSITORY = Path(__file__).parents[3]
SPLIT = (90, 30, 20)
CHANNELS = {  # channel -> its folder in the demo's data
    "train": "s3/my-bucket/digits/train",
    "validation": "s3/my-bucket/digits/validation",
    "test": "s3/my-bucket/digits/test",
    "train_lst": f"efs/{demo.EFS}/digits/lists/train",
    "validation_lst": f"fsx/{demo.FSX}/{demo.FSX_MOUNT_NAME}/digits/lists/validation",
    "test_lst": "s3/my-bucket/digits/lists/test",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("digits") / "data"
    demo.make_demo(directory, SPLIT)
    return directory


@pytest.fixture
def make_root(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Makes another /opt/ml, and makes it this process's; with some channels given in another way."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "data"))  # users_model
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are too small for more

    def make(name: str, **changed: dict[str, str]) -> Path:
        root = tmp_path / name
        (root / contract.CONFIG_DIR).mkdir(parents=True)
        (root / contract.DATA_DIR).mkdir()
        config = {
            channel: {"TrainingInputMode": "File", **changed.get(channel, {})} for channel in {**CHANNELS, **changed}
        }
        (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(config))
        for channel, folder in CHANNELS.items():
            if config[channel]["TrainingInputMode"] == "File":
                (root / contract.DATA_DIR / channel).symlink_to(data / folder)
        monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(root))
        return root

    yield make
    torch.set_num_threads(threads)


def run(*arguments: str) -> None:
    train.main(["--image-mode", "L", "--batch-size", "16", "--learning-rate", "0.005", *arguments])


def refusal(*arguments: str) -> str:
    """The one line with which the script ends."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert isinstance(ended.value.code, str), ended.value.code
    assert "\n" not in ended.value.code and ended.value.code.startswith("train: ")
    return ended.value.code


def own(root: Path, channel: str) -> Path:
    """The channel's folder as a copy that a test may change."""
    folder = root / contract.DATA_DIR / channel
    original = folder.resolve()
    folder.unlink()
    shutil.copytree(original, folder)
    return folder


def result(root: Path) -> tuple[dict[str, torch.Tensor], Any]:
    """The model's weights, and the metrics without what depends on the clock."""
    metrics = json.loads((root / contract.OUTPUT_DATA_DIR / "metrics.json").read_text())
    metrics.pop("channels")
    return torch.load(root / contract.MODEL_DIR / "model.pt", weights_only=True), metrics


def assert_same(root: Path, other: Path) -> None:
    weights, metrics = result(root)
    other_weights, other_metrics = result(other)
    assert metrics == other_metrics
    assert weights.keys() == other_weights.keys()
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)


def test_it_learns_and_leaves_its_results(make_root: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = make_root("ml")
    run("--epochs", "12")
    weights, metrics = result(root)
    small_cnn(1, 10).load_state_dict(weights)
    assert [each["epoch"] for each in metrics["epochs"]] == list(range(1, 13))
    assert metrics["epochs"][-1]["validation_accuracy"] > 0.6  # of ten classes, from 90 images
    assert metrics["test"]["test_accuracy"] > 0.6
    told = json.loads((root / contract.MODEL_DIR / "model.json").read_text())
    assert told["num_classes"] == 10 and told["epochs"] == 12 and told["image_mode"] == "L"
    assert (root / contract.CHECKPOINT_DIR / "checkpoint.pt").is_file()
    log = capsys.readouterr().out
    spec = launcher.load(str(channel_specs.path("image-classification")))
    for definition in spec.metric_definitions or ():
        name = str(definition.name).replace(":", "_")
        *_, last = re.findall(str(definition.regex), log)
        value = {**metrics["epochs"][-1], **metrics["test"]}[name]
        assert float(last) == pytest.approx(value, abs=1e-4), name
    for channel, count in (("train", 90), ("validation", 30), ("test", 20), ("validation_lst", 30)):
        assert re.search(rf"^  {channel} +File +{count} ", log, re.MULTILINE), log


@pytest.mark.parametrize(
    ("place", "told", "done"),
    [
        ("train 9", "stopped in epoch 2, after 3 batch(es)", 1),  # an epoch has six batches
        ("train 12", "stopped in epoch 2, after 6 batch(es)", 1),
        ("test 1", "stopped in epoch 1, after 6 batch(es)", 0),  # two of validation
        ("test 7", "stopped after the last epoch", 3),
    ],
)
def test_it_goes_on_where_it_was_stopped(
    place: str,
    told: str,
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
    assert told in capsys.readouterr().out
    assert len(result(stopped)[1]["epochs"]) == done
    assert os.listdir(stopped / contract.CHECKPOINT_DIR) == ["checkpoint.pt"]  # noqa: PTH208
    monkeypatch.delenv("STOP_AT")
    run(*model)
    assert "resuming from" in capsys.readouterr().out
    assert_same(stopped, undisturbed)


def test_it_goes_on_after_an_epoch(make_root: Callable[..., Path]) -> None:
    undisturbed = make_root("undisturbed")
    run("--epochs", "3")
    interrupted = make_root("interrupted")
    run("--epochs", "2")
    run("--epochs", "3")
    assert_same(interrupted, undisturbed)
    before = result(interrupted)
    run("--epochs", "3")  # nothing is left to do
    assert before[1] == result(interrupted)[1]


def test_another_setting_repeats_the_epoch(
    make_root: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_root("ml")
    monkeypatch.setenv("STOP_AT", "train 9")
    with pytest.raises(SystemExit):
        run("--epochs", "2", "--model", "users_model:make")
    monkeypatch.delenv("STOP_AT")
    run("--epochs", "2", "--model", "users_model:make", "--batch-size", "30")
    assert "1 epoch(s) and 0 batch(es) are done" in capsys.readouterr().out


def test_workers_bring_the_same_images(make_root: Callable[..., Path]) -> None:
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


def run_as_a_job(workers: str) -> int:
    """Trains for three epochs in a process of its own: which FIFO is an epoch's is a matter of the job; its exit code."""
    options = [
        "--image-mode",
        "L",
        "--batch-size",
        "16",
        "--epochs",
        "3",
        "--model",
        "users_model:make",
        "--num-workers",
    ]
    environ = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests/data", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "entrypoints.train", *options, workers]
    return subprocess.run(command, env=environ, timeout=120, check=False).returncode


def test_an_epoch_of_a_pipe_that_sagemaker_shuffles_begins_anew(
    make_root: Callable[..., Path], data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shard = (data / "s3/my-bucket/digits/train-tar/train-000.tar").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    other = io.BytesIO()  # the same samples in another order
    tar_write.write(other, [{"__key__": name.rpartition(".")[0], "png": members[name]} for name in reversed(members)])
    monkeypatch.setenv(f"{contract.SHUFFLED_CHANNELS_VARIABLE}0", '["train"]')
    root = make_root("ml", train=TAR)
    thread = feed(root, "train", 2, shard)
    monkeypatch.setenv("STOP_AT", "train 8")  # the second epoch's second step
    assert run_as_a_job("1") == 143
    thread.join(timeout=10)
    monkeypatch.setenv("STOP_AT", "test 1")  # the second epoch is trained, and not yet tested
    thread = feed(root, "train", 1, other.getvalue())
    assert run_as_a_job("1") == 143
    thread.join(timeout=10)
    monkeypatch.delenv("STOP_AT")
    feed(root, "train", 1, shard)
    assert run_as_a_job("1") == 0
    told = capfd.readouterr().out
    assert "checkpoint.pt: 1 epoch(s) and 0 batch(es) are done" in told
    assert "checkpoint.pt: 1 epoch(s) and 6 batch(es) are done" in told
    epochs = result(root)[1]["epochs"]
    assert [epoch["train_loss"] > 0 for epoch in epochs] == [True] * 3


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_pipe_has_a_fifo_per_epoch_counted_anew_after_a_stop(
    workers: str, make_root: Callable[..., Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = (data / "s3/my-bucket/digits/train-tar/train-000.tar").read_bytes()
    whole = make_root("whole", train=TAR)
    threads = [feed(whole, "train", 3, shard)]
    assert run_as_a_job(workers) == 0
    root = make_root("ml", train=TAR)
    threads.append(feed(root, "train", 2, shard))
    monkeypatch.setenv("STOP_AT", "train 8")  # the second epoch's second step
    assert run_as_a_job(workers) == 143
    threads[-1].join(timeout=10)
    monkeypatch.delenv("STOP_AT")
    threads.append(feed(root, "train", 2, shard))  # the second epoch's and the third's
    assert run_as_a_job(workers) == 0
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert_same(root, whole)


def test_channels_with_the_same_samples_compare_equal(
    make_root: Callable[..., Path], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_root("ml", images={})
    (root / contract.DATA_DIR / "images").symlink_to(data / f"efs/{demo.EFS}/digits/train")
    run("--epochs", "2", "--compare-channel", "images")
    log = capsys.readouterr().out
    assert len(re.findall("images holds the same 90 samples as train", log)) == 1
    assert re.search(r"^  images +File +90 ", log, re.MULTILINE)


def test_channels_with_other_samples_end_the_job(make_root: Callable[..., Path], data: Path) -> None:
    root = make_root("ml", images={})
    (root / contract.DATA_DIR / "images").symlink_to(data / "s3/my-bucket/digits/train")
    file = own(root, "images") / next((data / "s3/my-bucket/digits/train").iterdir()).name
    file.write_bytes(file.read_bytes() + b"\0")
    assert re.search(
        r"'images' \(90 samples, digest \w{16}\) does not hold the same samples as 'train'",
        refusal("--compare-channel", "images"),
    )


def test_an_image_without_a_line(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    lst = own(root, "train_lst") / "train.lst"
    first, *others = lst.read_text().splitlines(keepends=True)
    lst.write_text("".join(others))
    path = first.split("\t")[2].strip()
    assert re.search(rf"'train' and its list 'train_lst': image '{path}' has no line", refusal("--num-workers", "2"))


def test_a_line_without_an_image(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    with (own(root, "train_lst") / "train.lst").open("a") as lst:
        lst.write("9999\t3\tlost.png\n")
    expected = "channel 'train' and its list 'train_lst' differ: 1 line(s) have no image, first 'lost.png'"
    assert expected in refusal()
    run("--epochs", "1", "--lines-without-image", "ignore")


def test_names_that_are_wrong(make_root: Callable[..., Path]) -> None:
    make_root("ml")
    assert "no channel 'trian'" in refusal("--train-channel", "trian")
    assert "no channel 'images'" in refusal("--compare-channel", "images")
    assert "no channel 'train_list'" in refusal("--train-lst", "train_list")
    assert "No module named 'nothing'" in refusal("--model", "nothing:make")
    assert "write package.module:factory" in refusal("--model", "users_model")
    assert "expected a torch.nn.Module, got str" in refusal("--model", "users_model:make_nothing")


def test_a_class_that_training_does_not_know(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    (own(root, "validation_lst") / "validation.lst").write_text("1\t12\tx.png\n")
    assert "'validation_lst' has class 12, but 'train_lst' has none above 9" in refusal()


def test_a_checkpoint_of_another_model(make_root: Callable[..., Path]) -> None:
    make_root("ml")
    run("--epochs", "1")
    assert "checkpoint.pt is a checkpoint of another model (" in refusal("--model", "users_model:make")


def test_hosts_that_would_train_apart(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    hosts = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}
    (root / contract.CONFIG_DIR / contract.RESOURCE_CONFIG_FILE).write_text(json.dumps(hosts))
    assert "2 hosts, and each would train its own model; write launcher: torchrun" in refusal()
