"""Commands that start ranks: two hosts of one job on this machine, a worker that fails, a stop that reaches the script."""

from __future__ import annotations

import json
import os
import shutil
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

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


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
        [sys.executable, str(channel / contract.BOOT_FILE), *arguments],
        env={"PATH": PATH, "HOME": str(root)} | environ,
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


# all_reduce over gloo, and the placement of sagemaker_channels; rank 1 fails where --fail says so.
TOGETHER = """
import os, sys, torch, torch.distributed as dist
from sagemaker_channels import load_environment
from sagemaker_channels.epoch.placement import placement_of
place = placement_of(load_environment())
dist.init_process_group("gloo", rank=place.rank, world_size=place.world_size)
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("sum", total.item(), place.rank, place.world_size, place.local_rank, os.environ["SM_CURRENT_HOST"], flush=True)
if sys.argv[1:] == ["--fail", "1"] and dist.get_rank() == 1:
    raise ValueError("rank one's own reason")
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads abort one exit in some ten
"""
# By launcher: its command on two hosts without GPUs.
LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc-per-node", "1", "--max-restarts=0", "-m", "train"],
    "accelerate": (
        "accelerate launch --multi_gpu --num_processes $SM_HOST_COUNT --num_machines $SM_HOST_COUNT --machine_rank $NODE_RANK"
        " --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT train.py"
    ),
    "deepspeed": (
        "deepspeed --no_ssh --hostfile $LAUNCHER_HOSTFILE --node_rank $NODE_RANK --master_addr $MASTER_ADDR"
        " --master_port $MASTER_PORT train.py"
    ),
    "mpirun": "mpirun python train.py",
}


def two_hosts(folder: Path, launcher: str, hyperparameters: dict[str, str]) -> list[tuple[int, str, str]]:
    """Run TOGETHER on algo-1 and algo-2 to the end: exit code, stdout and stderr of each."""
    if shutil.which(launcher, path=PATH) is None:
        pytest.skip(f"{launcher} is not installed")
    hosts = ["algo-1", "algo-2"]
    environ = {contract.MASTER_ADDR_VARIABLE: "127.0.0.1", contract.MASTER_PORT_VARIABLE: free_port()}
    processes = []
    for host in hosts:
        resources = {"current_host": host, "hosts": hosts, "network_interface_name": "lo"}
        files = {"resourceconfig": resources, "hyperparameters": hyperparameters}
        processes.append(
            start(folder / host, TOGETHER, "--command", json.dumps(LAUNCHERS[launcher]), environ=environ, **files)
        )
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=PATIENCE)
        results.append((process.returncode, output, errors))
    return results


def sums(results: list[tuple[int, str, str]]) -> list[str]:
    return sorted(line for _, output, _ in results for line in output.splitlines() if line.startswith("sum"))


CONNECTED = [f"sum 3.0 {rank} 2 0 algo-{rank + 1}" for rank in (0, 1)]


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
def test_launcher_connects_two_hosts(launcher: str, tmp_path: Path) -> None:
    results = two_hosts(tmp_path, launcher, {})
    assert sums(results) == CONNECTED, results
    assert [(code, failure(tmp_path / f"algo-{number}")) for number, (code, _, _) in enumerate(results, 1)] == [
        (0, None)
    ] * 2


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_failure_of_a_connected_worker_precedes_the_launchers_summary(launcher: str, tmp_path: Path) -> None:
    """accelerate's summary is torchrun's; a local run of two hosts shows that torchrun ends well."""
    results = two_hosts(tmp_path, launcher, {"fail": "1"})
    assert sums(results) == CONNECTED, results
    number = 1 if launcher == "mpirun" else 2  # which alone has the lines of all ranks
    exit_code, _, errors = results[number - 1]
    text = str(failure(tmp_path / f"algo-{number}"))
    assert exit_code in (1, 134), errors  # gloo may abort after an exception, which mpirun passes on
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


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("python train.py && true", 128 + 15),  # the shell's own if it is ended
        ("torchrun train.py", 1),  # torchrun's own if it was stopped
        ("mpirun -np 1 python train.py", 1),
    ],
)
def test_sigterm_reaches_the_script_once(command: str, exit_code: int, tmp_path: Path) -> None:
    if shutil.which(command.split()[0], path=PATH) is None:
        pytest.skip(f"{command.split()[0]} is not installed")
    arguments = ("--command", json.dumps(command))
    process = start(tmp_path, STOPS, *arguments, environ={contract.MASTER_PORT_VARIABLE: free_port()})
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=PATIENCE)
    finally:
        process.send_signal(signal.SIGQUIT)  # where something went wrong
    assert process.returncode == exit_code
    assert (tmp_path / "code" / "stopped").read_text() == "once "
    assert exit_code == 0 or str(failure(tmp_path)).startswith(f"{command} was stopped by SIGTERM")
