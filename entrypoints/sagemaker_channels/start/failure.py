"""Why a training failed, in 1,024 characters: so many of `output/failure` become the job's FailureReason.

The exception comes first, then the traceback; of a long one, the script's own frame and as much of its end as fits. The only input
is the end of stderr. Under torchrun and accelerate the last traceback is theirs, which only says that a worker failed. The root
cause is that of the rank which torchrun or mpirun names, whose lines torch marks with `[rank1]:` once the process group exists.
"""

from __future__ import annotations

import re
import signal
import sys
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from sagemaker_channels import contract

_TRACEBACK = "Traceback (most recent call last):"
# With exit codes other than these two a traceback in stderr is not the reason.
_UNCAUGHT = 1  # Python's after an exception
_ABORTED = 128 + signal.SIGABRT  # possible after an exception in a process group: gloo does not join its threads
_ABORT_LINE = re.compile(r"$|terminate called |  what\(\):")  # libstdc++'s lines about an abort
# `ValueError: ...`, `torch.OutOfMemoryError: ...`, `KeyboardInterrupt`.
_EXCEPTION = re.compile(r"[A-Za-z_][\w.<>]*(:|$)")
_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?(?:\n +(?P<code>.+))?', re.MULTILINE
)
# Python's files, those of packages, and those of this package that run a script.
_NOT_OWN = re.compile(r"^<|/(site|dist)-packages/|/lib/python\d|/ml/packages/|/launcher_(code|bundle)/")
# The note of epoch/transformed.py, up to the position, on a transform's exception.
_SAMPLE = re.compile(r"\b(in the transform of a sample of channel [^;\n]+)")
_LAUNCHERS = ("torch/distributed/run.py", "accelerate/commands/launch.py")
_RANK_MARK = re.compile(r"^\[rank(\d+)\]: ?")
_ROOT_CAUSES = (  # of torchrun and of mpirun, which names a rank `[[12,1],3]` or `[prterun-algo-1-12@1,3]`
    re.compile(
        r"Root Cause \(first observed failure\):.*?\brank\s*: (?P<rank>\d+).*?\bexitcode\s*: (?P<code>-?\d+)", re.DOTALL
    ),
    re.compile(r"^ +Process name: \[.*,(?P<rank>\d+)\]\n +Exit code: +(?P<code>\d+)$", re.MULTILINE),
    re.compile(r"noticed that process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on\s+signal (?P<signal>\d+)"),
)


def failure_text(program: str, exit_code: int, stderr: str) -> str:
    """Return why a program failed, in at most 1,024 characters: its exception's line and the end of the traceback.

    `exit_code` is 128 + n if signal n ended it. Without a traceback at the end of `stderr`, the text is how it ended, and its last
    lines.
    """
    lines = re.split(r"\r\n?|\n", stderr)  # A progress bar ends its lines with \r, and a traceback may follow it.
    root = next(filter(None, (cause.search(stderr) for cause in _ROOT_CAUSES)), None)
    if root is not None:
        of_root = root.groupdict()
        program = f"rank {root['rank']} of {program}"
        exit_code = shell_code(int(of_root["code"]) if "code" in of_root else -int(of_root["signal"]))
        lines = _without_launcher(lines)
        marked = [line for line in lines if line.startswith(f"[rank{root['rank']}]:")]
        lines = marked if any(_TRACEBACK in line for line in marked) else lines
    elif exit_code == _UNCAUGHT:
        lines = _without_launcher(lines)
    lines = [_RANK_MARK.sub("", line) for line in lines]
    if found := _last_exception(lines):
        start, exception = found
        if exit_code == _UNCAUGHT or (exit_code == _ABORTED and all(map(_ABORT_LINE.match, lines[exception + 1 :]))):
            details = "\n".join(lines[start:])
            # On Python 3.10 the note is the cause, four lines above the traceback; after "Original" from a DataLoader's worker.
            above = lines[max(0, start - 4) : start]
            cause = [line for line in above if "RuntimeError: in the transform" in line]
            noted = [f" ({note})" for note in _SAMPLE.findall("\n".join([*cause, details]))[-1:]]
            return fit_to_limit("".join([lines[exception], *noted]), details)
    details = "\n".join(lines)
    # What sys.exit("text") has printed, perhaps.
    printed = [line for line in lines if line.strip()][-1:] if exit_code == _UNCAUGHT else []
    before = details.rpartition(printed[0])[0] if printed else details
    return fit_to_limit(": ".join([f"{program} {how_it_ended(exit_code)}", *printed]), before)


def shell_code(exit_code: int) -> int:
    """Return a subprocess's exit code as shells count it: 128 + n if signal n ended it."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def how_it_ended(exit_code: int) -> str:
    if exit_code > 128:
        with suppress(ValueError):
            name = signal.Signals(exit_code - 128).name
            memory = "; the machine may have run out of memory" if name == "SIGKILL" else ""
            return f"was ended by {name} (exit code {exit_code}){memory}"
    return f"ended with exit code {exit_code}"


def fit_to_limit(headline: str, details: str) -> str:
    """Return the headline and the last whole lines of the details that fit into SageMaker's limit."""
    headline = headline.strip()[: contract.FAILURE_LIMIT]
    room = contract.FAILURE_LIMIT - len(headline) - 2
    details = details.strip("\n")
    if len(details) > room:
        own = f"{frame[0]}\n" if (frame := _own_frame(details)) and len(frame[0]) < room // 2 else ""
        end = details[-max(room - 4, 0) :].partition("\n")[2]
        if own not in end:
            end = own + "...\n" + details[-max(room - 4 - len(own), 0) :].partition("\n")[2]
        else:
            end = "...\n" + end
        details = end
    return f"{headline}\n\n{details}" if details and len(details) <= room else headline


def own_frame(reason: str) -> str | None:
    """Return where the script's own code last was in a traceback: `train.py:12, in main: loss.backward()`; None if unknown."""
    frame = _own_frame(reason)
    if frame is None:
        return None
    file = frame["file"].rpartition("/code/")[2].removeprefix(f"{contract.BASE_DIR}/")
    within = f", in {frame['name']}" if frame["name"] and frame["name"] != "<module>" else ""
    return f"{file}:{frame['line']}{within}" + (f": {frame['code'][:120]}" if frame["code"] else "")


def _own_frame(traceback: str) -> re.Match[str] | None:
    frames = [frame for frame in _FRAME.finditer(traceback) if not _NOT_OWN.search(frame["file"])]
    return frames[-1] if frames else None


def write_failure(path: Path, text: str) -> None:
    """Write the reason, unless the script has written its own; if that fails, as on a full disk, print it."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        reason = text.partition("\n\n")[0]
        print(f"boot: {path} cannot be written: {error.strerror}; the reason is: {reason}", file=sys.stderr, flush=True)


def _without_launcher(lines: list[str]) -> list[str]:
    """Return the workers' lines: those before the launcher's report, which begins with its log line or its traceback."""
    for number, line in enumerate(lines):
        if "torch/distributed/elastic/" in line and " failed (exitcode" in line:
            return lines[:number]
        frames = takewhile(lambda later: later.startswith(" "), lines[number + 1 :])
        if line == _TRACEBACK and any(launcher in frame for frame in frames for launcher in _LAUNCHERS):
            return lines[:number]
    return lines


def _last_exception(lines: list[str]) -> tuple[int, int] | None:
    """Return the numbers of the last traceback's first line and of its exception's line.

    A SyntaxError of the script itself has no line `Traceback`: it begins with the position in the file.
    """
    for frame in range(len(lines) - 1, -1, -1):
        if lines[frame] == _TRACEBACK or lines[frame].startswith('  File "'):
            for number in range(frame + 1, len(lines)):
                if not lines[number].startswith(" ") and _EXCEPTION.match(lines[number]):
                    start = frame
                    while start > 0 and lines[start].startswith(" "):
                        start -= 1
                    return (start if lines[start] == _TRACEBACK else frame), number
    return None
