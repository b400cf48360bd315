"""The exceptions in the lines of a failed job, by what they show about its cause.

A training's last exception usually explains its failure. But torchrun and SageMaker's toolkit print one of their own below it,
which only reports that there was one; and when one rank dies, the other ranks fail as well, often later. So there are three
kinds of exceptions: the script's own, possible echoes of another process's death, and those of a program that starts scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_AHEAD = (  # prefixes that launchers print: `[rank0]: `, `[1,mpirank:0,algo-1]<stderr>:`, `(worker pid=7) `, ErrorMessage
    r"(?:\[[^\]\n]{1,40}\](?:<\w+>)?:?\s?|\([\w.()]{1,40} pid=\d+[^)]*\)\s|algo-\d+\S*\s\|\s|ErrorMessage \":?\s*)*"
)
_NAME = r"(?:\w+\.)*(?:[A-Z]\w*|_\w+)?(?:Error|Exception|Exit|Fault|Interrupt)"
_LINE = re.compile(rf"^{_AHEAD}(?P<text>(?P<name>{_NAME})(?: ?\([^)]{{1,40}}\))?(?::\s?(?P<detail>.*))?)$")
_INDENTED = re.compile(rf"^{_AHEAD}\s*(?P<text>(?P<name>{_NAME}):\s(?P<detail>\S.*))$")
_ANY_NAME = re.compile(  # at the end of a traceback: `zipfile.BadZipFile: ...`
    rf"^{_AHEAD}(?P<text>(?P<name>(?:\w+\.)+\w+|[A-Z]\w+)(?::\s(?P<detail>.*))?)$"
)
_TRACEBACK = re.compile(rf"^{_AHEAD}\s*(?:\w+ *: )?Traceback \(most recent call last\)")
_DIRECT = "The above exception was the direct cause of"
_LAUNCHERS = (  # they report that there was an exception, but not which
    *("AlgorithmError", "CalledProcessError", "CapacityError", "ChildFailedError", "ExecuteUserScriptError"),
    *("ImportModuleError", "InstallModuleError", "InstallRequirementsError", "InternalServerError"),
    *("ProcessExitedException", "ProcessRaisedException", "SignalException", "SystemExit", "UnexpectedStatusException"),
)
# In AWS's message, in the middle of a line, up to what the toolkit and SageMaker append.
_IN_REASON = re.compile(
    rf"(?<![\w.'/])(?!(?:{'|'.join(_LAUNCHERS)}|ClientError):)(?P<text>(?P<name>{_NAME}): ?(?P<detail>.{{1,600}}?))"
    r"(?=\"?\s*(?:\n|, exit code:|Command \"|exit code:|$))"
)
_ECHO = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|NCCL error|nccl\w+Error|gloo/|Connection (closed|reset) by peer"
    r"|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError$|collective operation timeout"
    r"|Rendezvous\w+Error|client socket has|KeyboardInterrupt|CancelledError|DataLoader worker .*exited unexpectedly\s*$"
)
_WARNING = re.compile(
    r"\b(WARN(ING)?|INFO|DEBUG)\b|Warning\b|^\s*[WI]\d{4} \d\d:|(?i:\bretry(ing)?\b|\bretried\b|\battempt \d)"
)
# In the log of every successful job on such instances (aws/deep-learning-containers#3964; NCCL's own notices).
_BENIGN = re.compile(
    r"dmi/id/product_name|libnccl-(net|tuner|profiler)\S*\.so|Failed to open libib\w+|Only EFA provider is supported"
    r"|No device found|Failed to find nccl\w+ symbol|Sending process \d+ closing signal"
)


class Raised(NamedTuple):
    """A printed exception."""

    name: str  # without its module
    text: str  # its line, and the next one if it ends in a colon; later ones may be another process's
    cause: Raised | None = None  # the exception after `from` in `raise ... from`

    @property
    def is_of_launcher(self) -> bool:
        """Whether a program that starts scripts raised it, to report that something has failed."""
        return self.name in _LAUNCHERS

    @property
    def is_echo(self) -> bool:
        """Whether it may be only the effect of another process's death."""
        return bool(_ECHO.search(self.text))


def raised_in(lines: Sequence[str]) -> list[Raised]:
    """Return the exceptions in a log, in their order."""
    found: list[Raised] = []
    in_traceback = is_direct_cause = False
    for number, line in enumerate(lines):
        is_direct_cause = is_direct_cause or _DIRECT in line
        if _TRACEBACK.match(line):
            in_traceback = True
            continue
        match = _LINE.match(line) or _INDENTED.match(line) or (_ANY_NAME.match(line) if in_traceback else None)
        if match is None:
            continue
        cause = found[-1] if found and is_direct_cause else None
        in_traceback = is_direct_cause = False
        name, text = match["name"].rpartition(".")[2], match["text"].strip().rstrip('"')
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if text.endswith(":") and following and not _WARNING.search(following) and not _TRACEBACK.match(following):
            text = f"{text} {following}"
        found.append(Raised(name, text, cause))
    return found


def raised_in_reason(reason: str) -> list[Raised]:
    """Return the exceptions in AWS's FailureReason, without SageMaker's own name for the kind of failure."""
    return [
        Raised(match["name"].rpartition(".")[2], match["text"].strip().rstrip('"'))
        for match in _IN_REASON.finditer(reason)
    ]


def without_warnings(lines: Sequence[str]) -> list[str]:
    """Return the lines that are neither warnings nor information."""
    return [line for line in lines if not _WARNING.search(line) and not _BENIGN.search(line)]


def without_benign(lines: Sequence[str]) -> list[str]:
    """Return the lines without those that every successful job's log has."""
    return [line for line in lines if not _BENIGN.search(line)]
