"""Checkpoints of local runs, and the folders that a job may mount or remove."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_jobs import launch, namespaces, result, write_job


def test_metrics_are_reported_and_checkpoints_restored_and_stored(here: Path) -> None:
    restored = here / "data/s3/bucket/checkpoints/epoch-1.pt"
    restored.parent.mkdir()
    restored.write_text("one")
    overlay = (
        "checkpoint_config: {s3_uri: s3://bucket/checkpoints/}\n"
        "metric_definitions: [{name: accuracy, regex: 'accuracy=([0-9.]+)'}]"
    )
    script = """
import os, pathlib
folder = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"), "checkpoints")
print("restored", [(path.name, path.read_text()) for path in folder.iterdir()])
(folder / "epoch-2.pt").write_text("two")
print("accuracy=0.5")
print("accuracy=0.75")
"""
    write_job(here, script, overlay)
    output = launch(here)
    assert "restored [('epoch-1.pt', 'one')]" in output
    assert result(here)["Metrics"] == {"accuracy": 0.75}
    assert (here / ".launch/job/s3/bucket/checkpoints/epoch-2.pt").read_text() == "two"
    assert not (here / "data/s3/bucket/checkpoints/epoch-2.pt").exists()


def test_each_host_has_its_own_checkpoints(here: Path) -> None:
    namespaces()
    stored = here / "data/s3/bucket/checkpoints"
    stored.mkdir()
    for name in ("kept", "removed"):
        (stored / name).write_text(name)
    script = """
import os, pathlib
folder, host = pathlib.Path("/opt/ml/checkpoints"), os.environ["SM_CURRENT_HOST"]
print(sorted(path.name for path in folder.iterdir()))
(folder / host).write_text(host)
if host == "algo-1":
    (folder / "removed").unlink()
(folder / "sub").mkdir()
(folder / "sub/both").write_text(host)
print(sorted(path.name for path in folder.iterdir()), os.path.exists("/etc/hosts"), sorted(os.listdir("/opt/ml")))
"""
    write_job(
        here,
        script,
        "checkpoint_config: {s3_uri: s3://bucket/checkpoints/}\n"
        "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n",
    )
    output = launch(here)
    assert output.count("| ['kept', 'removed']\n") == 2
    assert "algo-1 | ['algo-1', 'kept', 'sub'] True" in output
    assert "algo-2 | ['algo-2', 'kept', 'removed', 'sub'] True" in output
    after = here / ".launch/job/s3/bucket/checkpoints"
    assert sorted(path.name for path in after.iterdir()) == ["algo-1", "algo-2", "kept", "sub"]
    assert (after / "sub/both").read_text() in ("algo-1", "algo-2")
    assert not (here / ".launch/job/algo-1/checkpoints").exists()
    assert not (here / ".launch/job/algo-1/scratch").exists()


def test_code_runs_in_a_mounted_folder(here: Path) -> None:
    """boot moves the launcher's modules out of the code folder, here to another file system."""
    namespaces()
    script = "import os; print(sorted(os.listdir('/opt/ml/code')))"
    write_job(here, script, "checkpoint_config: {s3_uri: s3://bucket/c/, local_path: /opt/ml/code}")
    assert "algo-1 | ['train.py']" in launch(here)


def test_job_may_remove_its_model_folder(here: Path) -> None:
    write_job(here, "import os, shutil\nshutil.rmtree(os.environ['SM_MODEL_DIR'])")
    launch(here)
    assert result(here)["TrainingJobStatus"] == "Completed"


@pytest.mark.parametrize("place", ["/opt/ml/../../x", "/opt/ml/model", "/checkpoints", "relative"])
def test_unusable_local_path_of_checkpoints_is_refused(here: Path, place: str) -> None:
    write_job(here, "print(1)", f"checkpoint_config: {{s3_uri: s3://bucket/c/, local_path: {place}}}")
    assert "local_path" in launch(here, code=3)
    assert not (here / ".launch/job").exists()


def test_checkpoint_that_is_also_a_folder_is_refused(here: Path) -> None:
    for key in ("c/cd/x", "cd"):  # of the prefix `c`, these are the files `cd/x` and `cd`
        file = here / "data/s3/bucket" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    write_job(here, "print(1)", "checkpoint_config: {s3_uri: s3://bucket/c}")
    assert "s3://bucket/cd: this key is an object and also a folder (it holds c/cd/x)" in launch(here, code=3)
    assert not (here / ".launch/job").exists()
