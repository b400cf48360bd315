"""Scripts, alone and on ranks as torchrun starts them, forked from a process that has torch.

test_launchers.py and test_train_ranks.py run the real torchrun.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from forked import TORCH, Forked
from patience import PATIENCE


def torch_ranks(
    count: int, *command: str, cwd: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script with its arguments on the ranks of one host; if one fails, the others are killed.

    The output has rank 0's lines first; the return code is that of the rank that failed first.
    """
    port = free_port()
    sizes = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    shared = {**(environ or {}), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **sizes}
    return torch_processes(
        *command, cwd=cwd, environs=[{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    )


def free_port() -> int:
    """Return a port of this machine that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def torch_processes(
    *command: str, cwd: Path, environs: Sequence[Mapping[str, str]]
) -> subprocess.CompletedProcess[str]:
    """Run a script in one process for each of `environs`, which are added to this process's variables."""
    with ExitStack() as stack:
        outputs = [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in environs] for _ in range(2)]
        processes = [
            Forked(
                TORCH,
                command,
                cwd=cwd,
                environ={**os.environ, **environ},
                streams=(subprocess.DEVNULL, stdout.fileno(), stderr.fileno()),
            )
            for environ, stdout, stderr in zip(environs, *outputs, strict=True)
        ]
        code = _first_failure(processes)
        stdout, stderr = ("".join(file.read() for file in files if not file.seek(0)) for files in outputs)
    return subprocess.CompletedProcess(command, code, stdout, stderr)


def _first_failure(processes: Sequence[Forked]) -> int:
    """Wait for all; if one fails, kill the others. Return the exit code of the one that failed first."""
    left, code = [*processes], 0
    while left:
        ended = select.select(left, [], [], PATIENCE)[0]
        if not ended:
            for process in left:
                process.kill()
            raise TimeoutError(f"the ranks of {left[0].args} hang")
        for process in ended:
            left.remove(process)
            if code := process.wait():
                for other in left:
                    other.kill()
                    other.wait(PATIENCE)
                return code
    return code
