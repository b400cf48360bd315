"""Processes forked from a server that has imported what they need, since torch takes seconds, and the launcher half of one.

Otherwise they are what `python script.py`, `python -m module` and `python -c code` start, in sessions of their own. Tests of an
interpreter's start, of what a process imports, and of `ps` start a real one.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

from patience import PATIENCE

# torch imports dynamo, which takes long, for the first step of an optimizer.
TORCH = ("torch", "torch.distributed.fsdp", "torch.distributed.checkpoint", "torch._dynamo", "numpy.random")
LAUNCHER = ("launcher.*",)  # all of its modules


class Forked:
    """A forked process, with what tests use of subprocess.Popen."""

    def __init__(
        self,
        imports: Sequence[str],
        command: Sequence[object],
        *,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        streams: tuple[int, int, int] = (DEVNULL, PIPE, PIPE),
    ) -> None:
        """Start `command`, the arguments of `python`, with these variables in place of this process's.

        `streams` are its stdin, stdout and stderr as for Popen: PIPE, DEVNULL, STDOUT or a descriptor.
        """
        self.args = [*map(str, command)]
        self.returncode: int | None = None
        self._reports, report = os.pipe()
        pipes, descriptors = [], list[int]()
        for number, stream in enumerate(streams):
            pipe, descriptor = _stream(number, descriptors[-1] if stream == STDOUT else stream)
            pipes.append(pipe)
            descriptors.append(descriptor)
        self.stdin, self.stdout, self.stderr = pipes
        variables = {**(os.environ if environ is None else environ)}
        os.umask(umask := os.umask(0))
        request = {"command": self.args, "cwd": str(cwd or Path.cwd()), "environ": variables, "umask": umask}
        socket.send_fds(_server(tuple(imports)), [json.dumps(request).encode()], [*descriptors, report])
        for descriptor in (*descriptors, report):
            os.close(descriptor)
        self.pid = int(self._report(PATIENCE))

    def fileno(self) -> int:
        """Return a descriptor that is readable when the process has ended."""
        return self._reports

    def _report(self, seconds: float | None) -> bytes:
        if not select.select([self._reports], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired(self.args, seconds or 0)
        return os.read(self._reports, _REPORT)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = int(self._report(timeout))
            os.close(self._reports)
        return self.returncode

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Close its stdin, wait for its end, and return what it has printed."""
        if self.stdin is not None:
            self.stdin.close()
        printed = dict.fromkeys((1, 2), "")
        streams = {1: self.stdout, 2: self.stderr}

        def read(number: int, stream: Any) -> None:
            with stream:
                printed[number] = stream.read()

        threads = [threading.Thread(target=read, args=each, daemon=True) for each in streams.items() if each[1]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(timeout)
        return printed[1], printed[2]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            self.kill()  # a thread may still read what it prints, and closing would wait for that
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait(PATIENCE)


def next_line(process: Forked) -> Any:
    """The next line that it prints, in JSON."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def printed(process: Forked) -> list[Any]:
    """The lines that it has printed, in JSON, once it has ended."""
    with process:
        out, errors = process.communicate()
    assert process.returncode == 0, errors
    return [json.loads(line) for line in out.splitlines()]


def run(imports: Sequence[str], command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as subprocess.run does."""
    with Forked(imports, command, **options) as process:
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(command, process.wait(), stdout, stderr)


def _stream(number: int, wanted: int) -> tuple[Any, int]:
    """Return this process's end of a stream, if it has one, and the descriptor of the new process's."""
    if wanted == DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if wanted != PIPE:
        return None, os.dup(wanted)
    reader, writer = os.pipe()
    return (os.fdopen(writer, "w"), reader) if number == 0 else (os.fdopen(reader), writer)


_REPORT = 16  # bytes: first the process's number, then its exit code


@functools.cache
def _server(imports: tuple[str, ...]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno()), *imports]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        server = subprocess.Popen(command, env=environ, pass_fds=[theirs.fileno()], start_new_session=True)
    atexit.register(server.wait)
    atexit.register(ours.close)  # which ends it
    return ours


def _serve(requests: socket.socket) -> None:
    """Fork a process for each request; return only in such a process, which is to run what sys.argv names."""
    running: dict[int, tuple[int, int]] = {}  # a process's descriptor -> its number, and where its end is reported
    while True:
        for ready in select.select([requests.fileno(), *running], [], [])[0]:
            if ready != requests.fileno():
                pid, report = running.pop(ready)
                _, status = os.waitpid(pid, 0)
                with suppress(BrokenPipeError):
                    _answer(report, os.waitstatus_to_exitcode(status))
                os.close(report)
                os.close(ready)
                continue
            request, descriptors, *_ = socket.recv_fds(requests, 1 << 20, 4)
            if not request:
                os._exit(0)
            *files, report = descriptors
            if (pid := os.fork()) == 0:
                for other in (requests.detach(), report, *running, *(each for _, each in running.values())):
                    os.close(other)
                _become(json.loads(request), files)
                return
            for file in files:
                os.close(file)
            running[os.pidfd_open(pid)] = pid, report
            _answer(report, pid)


def _answer(report: int, number: int) -> None:
    os.write(report, str(number).encode().ljust(_REPORT))


def _become(request: Any, files: Sequence[int]) -> None:
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - the server's may be files
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    environ = request["environ"]
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # `nohup make test` ignores one
    sys.argv = request["command"]
    of_script = "" if sys.argv[0].startswith("-") else str(Path(sys.argv[0]).resolve().parent)
    sys.path[:1] = [of_script, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]


def _import(name: str) -> None:
    if not name.endswith(".*"):
        importlib.import_module(name)
        return
    package = importlib.import_module(name.removesuffix(".*"))
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _run() -> None:
    """Run what sys.argv names."""
    kind, *words = sys.argv
    if kind == "-c":
        code, *sys.argv[1:] = words
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(kind, run_name="__main__")


def _end(code: int) -> None:
    """End as the interpreter does, but do not take apart what is imported: for torch that takes ten times as long as to fork it."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        _import(_name)
    gc.freeze()  # so that no forked process looks through all of it
    gc.set_threshold(50_000)
    multiprocessing.set_start_method("fork")  # for workers, also since Python 3.14: what they import is here
    _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        _run()
    except SystemExit as _ended:
        if isinstance(_ended.code, str):  # an error, which the interpreter prints
            raise
        _end(int(_ended.code or 0))
    _end(0)
