"""`launch` called in this process, since a process of its own costs half a second.

tests/launcher/commands/test_start_and_end.py shows that a process ends as `main` does; tests of Ctrl-C, terminals, closed output
and local runs start one, too.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from launcher.cli import main


@dataclass(frozen=True)
class Launched:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def launch(*arguments: str, stdin: str = "") -> Launched:
    """Run the command in the current directory, without a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), _standard_input(stdin), pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return Launched(ended.value.code, *printed)  # type: ignore[arg-type]


@contextmanager
def _standard_input(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        yield
    finally:
        sys.stdin = before
