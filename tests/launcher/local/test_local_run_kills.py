"""Jobs in every mode that are killed and restarted with other numbers; `tests/killed_jobs.py` runs many more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from killed_jobs import MIXED, Trial
from local_jobs import assert_nothing_is_left, begun, namespaces, processes_of, write_job
from patience import wait_for


@pytest.mark.parametrize(("seed", "channels"), [(20, ["pipe"]), (18, MIXED)], ids=["pipe", "other modes"])
def test_killed_job_reads_each_sample_once_and_leaves_nothing(
    tmp_path: Path, fuse: None, seed: int, channels: list[str]
) -> None:
    """The seeds kill a launcher after two steps, and stop a job whose checkpoints are in S3; workers replace threads."""
    namespaces()
    Trial(tmp_path, seed, channels).run(1)


def test_temporary_folder_and_fifos_of_a_killed_run_are_removed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespaces()
    temporary = here / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    channels = "channels: {pipe: {s3_uri: s3://bucket/train/, input_mode: Pipe}}\n"
    write_job(here, "import time\nprint('ready', flush=True)\ntime.sleep(600)", channels)
    with begun(here) as run:
        assert run.stdout is not None
        assert any("ready" in line for line in run.stdout)
        assert (here / ".launch/job/algo-1/ml/input/data/pipe_0").is_fifo()
        run.kill()
    assert wait_for(lambda: not list(temporary.iterdir()))
    assert wait_for(lambda: not processes_of(here))
    assert_nothing_is_left(here)
