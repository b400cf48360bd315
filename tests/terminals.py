"""A program on a terminal of its own, as a user has it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from patience import PATIENCE


class Terminal:
    """A program and its terminal: what is typed into it, and what it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process = process
        self.shown = ""
        self._ours = ours

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the terminal has shown a text so many times."""
        while self.shown.count(text) < times:
            ready, _, _ = select.select([self._ours], [], [], PATIENCE)
            assert ready, self.shown
            self.shown += os.read(self._ours, 65536).decode("utf-8", "replace")

    def close(self) -> None:
        """Close the terminal, as a user closes its window."""
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), self._ours)

    def end(self) -> int:
        """Wait for the program's end; return its exit code."""
        with suppress(OSError):  # the terminal has gone
            while chunk := os.read(self._ours, 65536):
                self.shown += chunk.decode("utf-8", "replace")
        return self.process.wait(PATIENCE)


@contextmanager
def on_terminal(command: Sequence[str], here: Path) -> Iterator[Terminal]:
    """Run a program on a new terminal."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "dumb", "PS1": "$ "}
    program = ["setsid", "--ctty", *command]
    heard = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` ignores it
    with subprocess.Popen(
        program, cwd=here, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, preexec_fn=heard
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
    os.close(ours)
