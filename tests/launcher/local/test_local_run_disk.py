"""Local runs on a disk that is too small."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from launcher.code.archive import read_code
from local_jobs import command, launch, namespaces, write_job
from patience import PATIENCE

# A run writes the archive and the unpacked package before the job begins. What a job writes here fits once beside them, not twice.
PACKAGE = sum(file.size + 4096 for file in read_code(None).files) * 3 // 2
WEIGHTS = PACKAGE + 1_000_000
SIZE = PACKAGE + WEIGHTS + 500_000


def launch_on_a_small_disk(
    here: Path, *options: str, folder: str = ".launch", size: int = SIZE
) -> subprocess.CompletedProcess[str]:
    namespaces()
    (here / folder).mkdir()
    script = f'mount -t tmpfs -o size={size} none {folder} && "$@"; code=$?; find .launch -size +1000k >&2; exit $code'
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    words = [*inside, *command("--json", *options)]
    return subprocess.run(words, cwd=here, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_outputs_that_do_not_fit_twice_fail_the_job_and_are_kept(here: Path) -> None:
    write_job(here, f"import os\nopen('/opt/ml/model/weights', 'wb').write(os.urandom({WEIGHTS}))")
    done = launch_on_a_small_disk(here)
    assert done.returncode == 4, done.stderr
    result = json.loads(done.stdout)
    assert result["TrainingJobStatus"] == "Failed"
    assert result["FailureReason"] == ".launch/job: the outputs cannot be packed: No space left on device"
    assert result["Artifacts"] == {}
    assert done.stderr.splitlines()[-1] == ".launch/job/algo-1/ml/model/weights"


def test_file_channels_larger_than_the_volume_are_named(here: Path) -> None:
    namespaces()  # nothing is copied: the files are those below an overlay
    overlay = (
        "resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 1}\n"
        "channels: {train: {s3_uri: s3://bucket/train/, input_mode: File}}"
    )
    write_job(here, "print('trained')", overlay)
    assert "volume has" not in launch(here)
    with (here / "data/s3/bucket/train/0.txt").open("ab") as file:
        file.truncate(2**31)
    (here / ".launch/job").rename(here / ".launch/earlier")
    assert "warning: File channels copy 2.1 GB to each host, and the job's volume has 1 GB; raise" in launch(here)


def test_full_disk_keeps_the_exit_code_and_the_output_on_the_terminal(here: Path) -> None:
    script = (
        "import os\n"
        f"try:\n    open('/opt/ml/model/weights', 'wb').write(bytes({SIZE}))\n"
        "except OSError as error:\n    os.write(1, f'failed: {error}'.encode())\n    os._exit(7)"
    )
    write_job(here, script)
    done = launch_on_a_small_disk(here)
    assert "algo-1 | failed: [Errno 28] No space left on device" in done.stderr
    assert (
        "warning: .launch/job/algo-1.log: cannot be written: No space left on device; free space there" in done.stderr
    )
    assert "algo-1 | boot: /opt/ml/output/failure cannot be written: No space left on device" in done.stderr
    reason = json.loads(done.stdout)["FailureReason"]
    assert reason == "the entrypoint ended with exit code 7 and wrote no failure file"


def test_checkpoints_that_do_not_fit_twice_are_refused_and_leave_nothing(here: Path) -> None:
    file = here / "data/s3/bucket/c/weights"
    file.parent.mkdir()
    file.write_bytes(bytes(WEIGHTS))
    write_job(here, "", "checkpoint_config: {s3_uri: s3://bucket/c/}")
    done = launch_on_a_small_disk(here)
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"] == (
        f"{here}/.launch/job: its disk is full; free space there, or run on another disk"
    )
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_full_disk_of_temporary_files_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(here, "")
    monkeypatch.setenv("TMPDIR", f"{here}/temporary")
    done = launch_on_a_small_disk(here, folder="temporary", size=50_000)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["error"] == (
        f"{here}/temporary: its disk is full; free space there, or name a folder of another disk in TMPDIR"
    )
