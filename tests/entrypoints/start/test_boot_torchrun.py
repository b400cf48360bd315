"""boot.py under torchrun: two hosts of one job on this machine, a worker that fails, a stop that reaches the script."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.code.archive import read_code
from patience import PATIENCE
from sagemaker_channels import contract


def start(root: Path, script: str, *arguments: str, environ: dict[str, str], **files: Any) -> subprocess.Popen[str]:
    """One host: a root as SageMaker makes it, whose code is train.py, and the container's first program."""
    source, channel = root / "source", root / contract.DATA_DIR / contract.CODE_CHANNEL
    for folder in (source, channel, root / contract.CONFIG_DIR):
        folder.mkdir(parents=True)
    (source / "train.py").write_text(script)
    archive = read_code(source)
    (channel / contract.BOOT_FILE).write_bytes(archive.boot())
    with (channel / contract.CODE_ARCHIVE).open("wb") as file:
        archive.write_tar_gz(file)
    for name, content in files.items():
        (root / contract.CONFIG_DIR / f"{name}.json").write_text(json.dumps(content))
    return subprocess.Popen(
        [sys.executable, str(channel / contract.BOOT_FILE), "train.py", *arguments],
        env={"PATH": os.environ["PATH"]} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def failure(root: Path) -> str | None:
    path = root / contract.FAILURE_FILE
    return path.read_text() if path.exists() else None


# all_reduce over gloo; rank 1 fails where --fail says so.
TOGETHER = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), os.environ["GROUP_RANK"], os.environ["SM_CURRENT_HOST_RANK"])
if sys.argv[1:] == ["--fail", "1"] and dist.get_rank() == 1:
    raise ValueError("rank one's own reason")
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads abort one exit in some ten
"""


def two_hosts(folder: Path, hyperparameters: dict[str, str]) -> list[tuple[int, str, str]]:
    """Runs TOGETHER on algo-1 and algo-2 to the end: exit code, stdout and stderr of each."""
    hosts = ["algo-1", "algo-2"]
    environ = {contract.MASTER_ADDR_VARIABLE: "127.0.0.1", contract.MASTER_PORT_VARIABLE: free_port()}
    processes = []
    for host in hosts:
        resources = {"current_host": host, "hosts": hosts, "network_interface_name": "lo"}
        files = {"resourceconfig": resources, "hyperparameters": hyperparameters}
        processes.append(start(folder / host, TOGETHER, "--launcher", "torchrun", environ=environ, **files))
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=PATIENCE)
        results.append((process.returncode, output, errors))
    return results


def test_torchrun_connects_two_hosts(tmp_path: Path) -> None:
    for rank, (exit_code, output, errors) in enumerate(two_hosts(tmp_path, {})):
        assert (exit_code, output) == (0, f"sum 3.0 of 2 {rank} {rank}\n"), errors
        assert failure(tmp_path / f"algo-{rank + 1}") is None


def test_failure_of_a_worker_precedes_torchruns_summary(tmp_path: Path) -> None:
    _, (exit_code, _, _) = two_hosts(tmp_path, {"fail": "1"})
    text = str(failure(tmp_path / "algo-2"))
    assert exit_code == 1
    assert text.startswith("ValueError: rank one's own reason\n\nTraceback (most recent call last):\n")
    assert len(text) <= contract.FAILURE_LIMIT and "elastic" not in text


STOPS = """
import signal, sys, time
def stop(number, frame):
    open("stopped", "a").write("once ")
    time.sleep(0.3)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("launcher", "exit_code"), [("python", 0), ("torchrun", 1)])
def test_sigterm_reaches_the_script_once(launcher: str, exit_code: int, tmp_path: Path) -> None:
    process = start(tmp_path, STOPS, "--launcher", launcher, environ={contract.MASTER_PORT_VARIABLE: free_port()})
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=PATIENCE)
    finally:
        process.send_signal(signal.SIGQUIT)  # where something went wrong
    assert process.returncode == exit_code  # torchrun's own if it was stopped
    assert (tmp_path / "code" / "stopped").read_text() == "once "
    assert exit_code == 0 or str(failure(tmp_path)).startswith("train.py was stopped by SIGTERM\n\n")
