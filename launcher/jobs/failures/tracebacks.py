"""The exceptions in the lines of a job that failed, and which of them ended it.

Of all that a training says, its last exception is the best witness. But torchrun and SageMaker's toolkit print one of their own
below it, which only says that there was one; and when one rank dies, the others fail for want of it, often later. So an
exception is told apart by its worth: the script's own, an echo of another process's death, or a launcher's word that tells nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_AHEAD = (  # what launchers put before each line: `[rank0]: `, `[1,mpirank:0,algo-1]<stderr>:`, `(worker pid=7) `, ErrorMessage
    r"(?:\[[^\]\n]{1,40}\](?:<\w+>)?:?\s?|\([\w.()]{1,40} pid=\d+[^)]*\)\s|algo-\d+\S*\s\|\s|ErrorMessage \":?\s*)*"
)
_NAME = r"(?:\w+\.)*(?:[A-Z]\w*|_\w+)?(?:Error|Exception|Exit|Fault|Interrupt)"
_LINE = re.compile(rf"^{_AHEAD}(?P<text>(?P<name>{_NAME})(?: ?\([^)]{{1,40}}\))?(?::\s?(?P<said>.{{0,600}}))?)$")
_INDENTED = re.compile(rf"^{_AHEAD}\s*(?P<text>(?P<name>{_NAME}):\s(?P<said>\S.{{0,600}}))$")
_ANY_NAME = re.compile(  # at a traceback's end: `zipfile.BadZipFile: ...`
    rf"^{_AHEAD}(?P<text>(?P<name>(?:\w+\.)+\w+|[A-Z]\w+)(?::\s(?P<said>.{{0,600}}))?)$"
)
_TRACEBACK = re.compile(rf"^{_AHEAD}\s*(?:\w+ *: )?Traceback \(most recent call last\)")
_DIRECT = "The above exception was the direct cause of"
_LAUNCHERS = (  # they say that there was an exception, not which
    "AlgorithmError",
    "CalledProcessError",
    "CapacityError",
    "ChildFailedError",
    "ExecuteUserScriptError",
    "ImportModuleError",
    "InstallModuleError",
    "InstallRequirementsError",
    "InternalServerError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
    "SystemExit",
    "UnexpectedStatusException",
)
# In AWS's reason, in the middle of a line, up to what the toolkit and SageMaker put behind it.
_IN_REASON = re.compile(
    rf"(?<![\w.'/])(?!(?:{'|'.join(_LAUNCHERS)}|ClientError):)(?P<text>(?P<name>{_NAME}): ?(?P<said>.{{1,600}}?))"
    r"(?=\"?\s*(?:\n|, exit code:|Command \"|exit code:|$))"
)
_ECHO = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|NCCL error|nccl\w+Error|gloo/|Connection (closed|reset) by peer"
    r"|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError$|collective operation timeout"
    r"|Rendezvous\w+Error|client socket has|KeyboardInterrupt|CancelledError|DataLoader worker .*exited unexpectedly\s*$"
)
_WARNING = re.compile(
    r"\b(WARN(ING)?|INFO|DEBUG)\b|\w*Warning\b|^\s*[WI]\d{4} \d\d:|(?i:\bretry(ing)?\b|\bretried\b|\battempt \d)"
)
# They stand in the log of every good job on such instances (aws/deep-learning-containers#3964; NCCL's own notices).
_BENIGN = re.compile(
    r"dmi/id/product_name|libnccl-(net|tuner|profiler)\S*\.so|Failed to open libib\w+|Only EFA provider is supported"
    r"|No device found|Failed to find nccl\w+ symbol|Sending process \d+ closing signal"
)


@dataclass(frozen=True)
class Raised:
    """An exception as it was printed."""

    name: str  # without its module
    text: str  # its line, with the next where that ends in a colon: what else follows may be another process's
    cause: Raised | None = None  # what it was raised from, by `raise ... from`

    @property
    def is_launchers(self) -> bool:
        """Whether it only says that something has failed."""
        return self.name in _LAUNCHERS

    @property
    def is_echo(self) -> bool:
        """Whether it may be no more than another process's death, heard here."""
        return bool(_ECHO.search(self.text))


def raised_in(lines: Sequence[str]) -> list[Raised]:
    """The exceptions in a log, in their order."""
    found: list[tuple[int, Raised]] = []
    in_traceback = False
    for number, line in enumerate(lines):
        if _TRACEBACK.match(line):
            in_traceback = True
            continue
        match = _LINE.match(line) or _INDENTED.match(line) or (_ANY_NAME.match(line) if in_traceback else None)
        if match is None:
            continue
        in_traceback = False
        before = lines[found[-1][0] + 1 : number] if found else ()
        cause = found[-1][1] if any(_DIRECT in each for each in before) else None
        name, text = match["name"].rpartition(".")[2], match["text"].strip().rstrip('"')
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if text.endswith(":") and following and not _WARNING.search(following) and not _TRACEBACK.match(following):
            text = f"{text} {following}"
        found.append((number, Raised(name, text, cause)))
    return [each for _, each in found]


def raised_in_reason(reason: str) -> list[Raised]:
    """The exceptions that AWS's FailureReason holds, without SageMaker's own word for the kind of failure."""
    return [
        Raised(match["name"].rpartition(".")[2], match["text"].strip().rstrip('"'))
        for match in _IN_REASON.finditer(reason)
    ]


def sober(lines: Sequence[str]) -> list[str]:
    """The lines that no program tells as a warning or as news."""
    return [line for line in lines if not _WARNING.search(line) and not _BENIGN.search(line)]


def without_benign(lines: Sequence[str]) -> list[str]:
    """The lines without those that stand in every good job's log."""
    return [line for line in lines if not _BENIGN.search(line)]
