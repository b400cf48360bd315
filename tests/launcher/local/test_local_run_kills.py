"""Jobs in every mode that are killed and restarted with other numbers; `tests/killed_jobs.py` runs many more of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from killed_jobs import MIXED, Trial
from local_jobs import command, launch, namespaces, processes_of, write_job
from patience import wait_for


@pytest.mark.parametrize(("seed", "channels"), [(0, ["pipe"]), (1, MIXED)], ids=["pipe", "other modes"])
def test_killed_job_reads_each_sample_once_and_leaves_nothing(
    tmp_path: Path, fuse: None, seed: int, channels: list[str]
) -> None:
    namespaces()
    Trial(tmp_path, seed, channels).run(1)


def test_temporary_folder_and_fifos_of_a_killed_run_are_removed_by_the_next(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces()
    temporary = here / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    channels = "channels: {pipe: {s3_uri: s3://bucket/train/, input_mode: Pipe}}\n"
    write_job(here, "import time\nprint('ready', flush=True)\ntime.sleep(600)", channels)
    with subprocess.Popen(command(), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        assert run.stdout is not None
        assert any(b"ready" in line for line in run.stdout)
        write_job(here, "", "channels: null\n")
        [folder] = temporary.iterdir()
        launched = subprocess.run(command("--name", "second"), cwd=here, check=False)
        assert (launched.returncode, list(temporary.iterdir())) == (0, [folder])
        run.kill()
    assert wait_for(lambda: not processes_of(here))
    assert list(temporary.iterdir()) == [folder]
    assert (here / ".launch/job/algo-1/ml/input/data/pipe_0").is_fifo()
    launch(here, "--name", "third")  # asserts that there is no FIFO
    assert list(temporary.iterdir()) == []


def test_nested_folders_of_a_killed_run_do_not_end_the_next(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, killed = here / "tmp", here / "killed"
    monkeypatch.setenv("TMPDIR", str(temporary))
    (temporary / "launch-killed").mkdir(parents=True)
    (temporary / "launch-killed/.lock").write_text(str(killed))
    script = "for _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    killed.mkdir()
    subprocess.run([sys.executable, "-c", f"import os\n{script}"], cwd=killed, check=True)
    write_job(here, "", "channels: null\n")
    try:
        assert "Traceback" not in launch(here, "--no-namespaces")
        assert list(temporary.iterdir()) == []
    finally:
        subprocess.run(["rm", "-rf", killed], check=True)  # as Python cannot
