"""Scripts, alone and on ranks as torchrun starts them, forked from a process that has torch, since an import takes seconds.

test_boot_torchrun.py and test_train_ranks.py run the real torchrun.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patience import PATIENCE

# torch imports dynamo, which takes long, for the first step of an optimizer.
_IMPORTED = ("torch", "torch.distributed.fsdp", "torch.distributed.checkpoint", "torch._dynamo", "numpy.random")


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
    with tempfile.TemporaryDirectory() as folder:
        merged = [{**os.environ, **environ} for environ in environs]
        code = _ask({"command": command, "cwd": str(cwd), "environs": merged, "output": folder})
        stdout, stderr = (
            "".join((Path(folder) / f"{rank}.{number}").read_text() for rank in range(len(merged))) for number in (1, 2)
        )
    return subprocess.CompletedProcess(command, code, stdout, stderr)


def _ask(request: Any) -> int:
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    if not select.select([server.stdout], [], [], PATIENCE)[0]:
        os.killpg(server.pid, signal.SIGKILL)
        _server.cache_clear()
        raise TimeoutError(f"the ranks of {request['command']} hang")
    return int(server.stdout.readline())


@functools.cache
def _server() -> subprocess.Popen[str]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, __file__], env=environ, text=True, start_new_session=True, **pipes)
    atexit.register(server.communicate)  # which ends it
    return server


def _serve() -> None:
    """Fork the ranks of each request and answer with their code; return only in a rank, which is to run what sys.argv names."""
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        ranks = []
        for rank, environ in enumerate(request["environs"]):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                _become(rank, environ, request)
                return
        code = 0
        for _ in ranks:
            pid, status = os.wait()
            ranks[ranks.index(pid)] = 0
            if status and not code:
                code = os.waitstatus_to_exitcode(status)
                for other in filter(None, ranks):
                    os.kill(other, signal.SIGKILL)
        print(code, flush=True)
    os._exit(0)


def _become(rank: int, environ: dict[str, str], request: Any) -> None:
    for number, name in enumerate((os.devnull, f"{request['output']}/{rank}.1", f"{request['output']}/{rank}.2")):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None
    os.chdir(request["cwd"])
    paths = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = request["command"]
    sys.path[:1] = [str(Path(sys.argv[0]).resolve().parent), *paths]


if __name__ == "__main__":
    for _name in _IMPORTED:
        __import__(_name)
    _serve()
    runpy.run_path(sys.argv[0], run_name="__main__")
