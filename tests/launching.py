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


def launch(*arguments: str, stdin: str = "", stdout: io.TextIOWrapper | None = None) -> Launched:
    """Run the command in the current directory, without a terminal; what it prints is in the result unless `stdout` gets it."""
    printed = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, "utf-8", write_through=True) for stream in printed)
    with (
        redirect_stdout(stdout or out),
        redirect_stderr(err),
        _standard_input(stdin),
        pytest.raises(SystemExit) as ended,
    ):
        main(arguments)
    return Launched(ended.value.code, *(stream.getvalue().decode() for stream in printed))  # type: ignore[arg-type]


@contextmanager
def _standard_input(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        yield
    finally:
        sys.stdin = before
