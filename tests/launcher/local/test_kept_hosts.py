"""`--local --keep` without an engine: the hosts' files after the run. test_containers.py has containers kept as images."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from local_jobs import launch, namespaces, result, write_job

# Writes at each place that a run removes without --keep, then fails if it is alone.
SCRIPT = """
import os, socket, sys, tempfile
for folder in (os.environ["HOME"], tempfile.gettempdir(), os.environ["SM_CHANNEL_TRAIN"], "/opt/ml/checkpoints"):
    open(folder.replace("/opt/ml", os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) + "/note", "w").write("written")
os.mkfifo(tempfile.gettempdir() + "/fifo")
socket.socket(socket.AF_UNIX).bind(tempfile.gettempdir() + "/socket")
os.symlink("nowhere", tempfile.gettempdir() + "/link")
sys.exit(len(os.environ["SM_HOSTS"].split(",")) == 1)
"""


@pytest.mark.parametrize(("count", "options", "code"), [(2, [], 0), (1, ["--no-namespaces"], 4)])
def test_kept_hosts_have_what_the_job_wrote_until_they_are_removed(
    here: Path, count: int, options: list[str], code: int
) -> None:
    if not options:
        namespaces()
    pipe = "pipe: {s3_uri: s3://bucket/train/, input_mode: Pipe}"
    channels = f"channels: {{train: s3://bucket/train/, {pipe}}}\ncheckpoint_config: {{s3_uri: s3://bucket/c/}}\n"
    write_job(here, SCRIPT, channels)
    output = launch(here, "--keep", "--instance-count", str(count), *options, code=code)
    folders = {host: here / ".launch/job" / host for host in ("algo-1", "algo-2")[:count]}
    assert result(here)["Kept"] == {
        "Enter": {host: f"cd {folder}" for host, folder in folders.items()},
        "Remove": [f"rm -rf {' '.join(map(str, folders.values()))}"],
    }
    assert "kept     the hosts as they ended, without channels: their mounts and FIFOs are gone" in output
    assert f"enter    algo-1: cd {folders['algo-1']}\n" in output
    for folder in folders.values():
        assert [file.parent.name for file in sorted(folder.rglob("note"))] == ["checkpoints", "home", "tmp"]
        assert sorted(file.name for file in (folder / "tmp").iterdir()) == ["link", "note"]
        assert (folder / "ml/launcher_bundle/sagemaker_channels").is_dir()
        assert sorted(path.name for path in (folder / "ml/input/data").iterdir()) == ["launcher_code"]
    subprocess.run(output.partition("remove   ")[2].splitlines()[0], shell=True, check=True)
    logs = [f"{host}.log" for host in folders]
    assert sorted(path.name for path in (here / ".launch/job").iterdir()) == [*logs, "result.json", "run.json", "s3"]


def test_host_without_its_temporary_folder_is_kept(here: Path) -> None:
    script = """
import os, shutil, tempfile
open(os.environ["HOME"] + "/note", "w").close()
shutil.rmtree(tempfile.gettempdir())
"""
    write_job(here, script, "channels: null")
    output = launch(here, "--keep", "--no-namespaces")
    assert "warning: --keep: not all temporary files are kept: [Errno 2] No such file or directory" in output
    assert result(here)["Kept"]["Enter"] == {"algo-1": f"cd {here}/.launch/job/algo-1"}
    assert (here / ".launch/job/algo-1/home/note").exists()


def test_only_the_hosts_of_the_last_attempt_are_kept(here: Path) -> None:
    namespaces()
    script = """
import os, signal, sys, tempfile
signal.signal(signal.SIGTERM, lambda *a: sys.exit(1))
open(tempfile.gettempdir() + "/note", "w").close()
if os.environ["SM_CURRENT_HOST"] == "algo-1":
    signal.pause()
"""
    write_job(here, script, "channels: null")
    launch(here, "--keep", "--interrupt-after", "1s", "--rename-hosts")
    assert list(result(here)["Kept"]["Enter"]) == ["algo-2"]
    assert [file.relative_to(here).as_posix() for file in here.rglob("note")] == [".launch/job/algo-2/tmp/note"]
