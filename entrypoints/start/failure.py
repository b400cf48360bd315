"""Says in 1,024 characters why a training failed: that many of `output/failure` become the job's FailureReason.

What people look for is the exception, so it comes first, whole traceback or not; then as much of the traceback's end as
fits. The end of stderr is all there is to work with, and under torchrun its last traceback is torchrun's own, which
only says that a worker failed: the one that counts is the root cause's, whose rank torchrun names and whose lines torch
marks with `[rank1]:` once the process group exists.
"""

from __future__ import annotations

import re
import signal
from itertools import takewhile
from pathlib import Path

from entrypoints import contract

TRACEBACK = "Traceback (most recent call last):"
UNCAUGHT = (
    1  # Python's exit code after an exception; with others than these two a traceback in stderr is not the reason
)
ABORTED = (
    128 + signal.SIGABRT
)  # so may end whoever leaves a process group by an exception: gloo's threads are not joined
ABORT_LINE = re.compile(r"$|terminate called |  what\(\):")  # what libstdc++ says of an abort
EXCEPTION = re.compile(
    r"[A-Za-z_][\w.<>]*(:|$)"
)  # `ValueError: ...`, `torch.OutOfMemoryError: ...`, `KeyboardInterrupt`
RANK_MARK = re.compile(r"^\[rank(\d+)\]: ?")
ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?\brank\s*: (?P<rank>\d+).*?\bexitcode\s*: (?P<code>-?\d+)", re.DOTALL
)


def failure_text(program: str, exit_code: int, stderr: str) -> str:
    """The reason why `program` ended with `exit_code`, from the end of its stderr; at most 1,024 characters.

    The exception's line, an empty line, the end of its traceback; without a traceback, how the program ended and the
    last lines that it wrote.
    """
    lines = re.split(r"\r\n?|\n", stderr)  # a progress bar returns, and a traceback may follow it
    root = ROOT_CAUSE.search(stderr)
    if root is not None:
        program, exit_code = f"rank {root['rank']} of {program}", shell_code(int(root["code"]))
        lines = _without_torchrun(lines)
        marked = [line for line in lines if line.startswith(f"[rank{root['rank']}]:")]
        lines = marked if any(TRACEBACK in line for line in marked) else lines
    lines = [RANK_MARK.sub("", line) for line in lines]
    found = _last_exception(lines)
    if found is None or not _ended_by_it(exit_code, lines[found[1] + 1 :]):
        return fitted(f"{program} {how_it_ended(exit_code)}", "\n".join(lines))
    start, exception = found
    return fitted(lines[exception], "\n".join(lines[start:]))


def shell_code(exit_code: int) -> int:
    """Python's exit code -n of a process that signal n ended, as shells write it: 128 + n."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def how_it_ended(exit_code: int) -> str:
    """An exit code in words."""
    if exit_code > 128:
        try:
            name = signal.Signals(exit_code - 128).name
        except ValueError:
            return f"ended with exit code {exit_code}"
        memory = "; the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"was ended by {name} (exit code {exit_code}){memory}"
    return f"ended with exit code {exit_code}"


def fitted(headline: str, details: str) -> str:
    """The headline and the end of the details, cut at a line's beginning, within what SageMaker keeps."""
    headline = headline.strip()[: contract.FAILURE_LIMIT]
    room = contract.FAILURE_LIMIT - len(headline) - 2
    details = details.strip("\n")
    if len(details) > room:
        details = "...\n" + details[-max(room - 4, 0) :].partition("\n")[2]
    return f"{headline}\n\n{details}" if details and len(details) <= room else headline


def write_failure(path: Path, text: str) -> None:
    """Writes the reason, unless the script has written its own: it knows better."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")


def _without_torchrun(lines: list[str]) -> list[str]:
    """What the workers wrote: all lines before torchrun's report, which begins with its log line or its traceback."""
    for number, line in enumerate(lines):
        if "torch/distributed/elastic/" in line and " failed (exitcode" in line:
            return lines[:number]
        frames = takewhile(lambda later: later.startswith(" "), lines[number + 1 :])
        if line == TRACEBACK and any("torch/distributed/run.py" in frame for frame in frames):
            return lines[:number]
    return lines


def _ended_by_it(exit_code: int, after: list[str]) -> bool:
    """Whether the exception that was told of last ended the process, which has written so much after it."""
    return exit_code == UNCAUGHT or (exit_code == ABORTED and all(map(ABORT_LINE.match, after)))


def _last_exception(lines: list[str]) -> tuple[int, int] | None:
    """Where the last traceback begins, and the line of its exception.

    A SyntaxError of the script itself has no line `Traceback`: it begins with the place in the file.
    """
    for start in range(len(lines) - 1, -1, -1):
        if lines[start] == TRACEBACK or lines[start].startswith('  File "'):
            for number in range(start + 1, len(lines)):
                if not lines[number].startswith(" ") and EXCEPTION.match(lines[number]):
                    return _beginning(lines, start), number
    return None


def _beginning(lines: list[str], frame: int) -> int:
    """From a frame of a traceback back to its first line."""
    start = frame
    while start > 0 and lines[start].startswith(" "):
        start -= 1
    return start if lines[start] == TRACEBACK else frame
