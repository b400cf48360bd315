"""The exceptions in the lines of a failed job, by what they show about its cause.

The last exception of a process usually explains its end. But torchrun and SageMaker's toolkit print one of their own below it,
which only reports that there was one; and when one rank dies, the other ranks fail as well, often later. So there are three
kinds of exceptions: the script's own, possible echoes of another process's death, and those of a program that starts scripts.
Lines are sorted by process before they are searched, since those of several hosts and ranks alternate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from launcher.jobs.lines import Line

_AHEAD = (  # prefixes that launchers print: `[rank0]: `, `[1,mpirank:0,algo-1]<stderr>:`, `(worker pid=7) `, ErrorMessage
    r"(?:\[[^\]\n]{1,40}\](?:<\w+>)?:?\s?|\([\w.()]{1,40} pid=\d+[^)]*\)\s|algo-\d+\S*\s\|\s|ErrorMessage \":?\s*)*"
)
_NAME = r"(?:\w+\.)*(?:[A-Z]\w*|_\w+)?(?:Error|Exception|Exit|Fault|Interrupt)"
_LINE = re.compile(rf"^{_AHEAD}(?P<text>(?P<name>{_NAME})(?: ?\([^)]{{1,40}}\))?(?::\s?(?P<detail>.*))?)$")
# At the end of a traceback: `zipfile.BadZipFile: ...`.
_ANY_NAME = re.compile(rf"^{_AHEAD}(?P<text>(?P<name>(?:\w+\.)+\w+|[A-Z]\w+)(?::\s(?P<detail>.*))?)$")
# As torch and mpirun mark a rank's lines.
_RANK = re.compile(r"\[rank(?P<rank>\d{1,6})\]|\[\d+,mpirank:(?P<rank2>\d{1,6}),")
_TRACEBACK = re.compile(rf"^{_AHEAD}\s*(?:\w+ *: )?Traceback \(most recent call last\)")
_ENDING_MILLISECONDS = 300_000  # from the end of a process to that of its host's log
_ROOT_CAUSE = "Root Cause (first observed failure):"  # of torchrun's report; below it, on lines of their own:
_REPORTED = re.compile(r"\brank *: *(?P<rank>\d{1,6})|\bexitcode *: *(?P<code>-?\d+)\b")
_SIGNALS = ("-9", "-11", "-4")  # that the system sends
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
    r"|Rendezvous\w+Error|client socket has|KeyboardInterrupt|CancelledError|BrokenProcessPool|^_queue\.Empty$"
    r"|DataLoader worker .*exited unexpectedly(?:\s*$| with exit code 1\b)"
)
_WARNING = re.compile(
    r"\b(WARN(ING)?|INFO|DEBUG)\b|Warning\b|^\s*[WI]\d{4} \d\d:|(?i:\bretry(ing)?\b|\bretried\b|\battempt \d)"
)
# In the log of every successful job on such instances (aws/deep-learning-containers#3964; NCCL's own notices).
BENIGN = re.compile(
    r"dmi/id/product_name|libnccl-(net|tuner|profiler)\S*\.so|Failed to open libib\w+|Only EFA provider is supported"
    r"|No device found|Failed to find nccl\w+ symbol|Sending process \d+ closing signal"
    r"|^(\[rank\d+\]: ?)?frame #\d+: "  # of C++, below an error
)


class Raised(NamedTuple):
    name: str  # without its module
    text: str  # its line, and the next one if it ends in a colon; later ones may be another process's
    cause: Raised | None = None  # the exception after `from` in `raise ... from`
    line: int = 0  # its number in the log
    host: str = ""
    rank: str = ""  # empty if the line does not name it

    @property
    def is_echo(self) -> bool:
        """Whether it may be only the effect of another process's death."""
        return bool(_ECHO.search(self.text))


def raised_in(lines: Sequence[Line]) -> list[Raised]:
    """Return the exceptions of scripts in the log of all hosts, in their order.

    Those whose host's log continues for long are left out: the training has survived them.
    """
    ends = {line.host: line.timestamp for line in lines}
    processes: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for number, line in enumerate(lines):
        processes.setdefault((line.host, rank_of(line.message)), []).append((number, line.message))
    found = [
        each._replace(host=host, rank=rank or each.rank)
        for (host, rank), own in processes.items()
        for each in _raised_by_process(own)
        if each.name not in _LAUNCHERS and ends[host] - lines[each.line].timestamp < _ENDING_MILLISECONDS
    ]
    return sorted(found, key=lambda each: each.line)


def _raised_by_process(lines: Sequence[tuple[int, str]]) -> list[Raised]:
    found: list[Raised] = []
    in_traceback = is_direct_cause = in_report = False
    reported_rank = ""
    for index, (number, line) in enumerate(lines):
        is_direct_cause = is_direct_cause or _DIRECT in line
        in_report = in_report or _ROOT_CAUSE in line
        if in_report and (said := _REPORTED.search(line)):
            reported_rank = said["rank"] or reported_rank
            in_report = not said["code"]
            if said["code"] in _SIGNALS:  # no exception ended this rank, whatever was logged before
                found.append(Raised("Killed", f"exitcode : {said['code']}", None, number, rank=reported_rank))
            continue
        if _TRACEBACK.match(line):
            in_traceback = True
            continue
        match = _LINE.match(line) or (_ANY_NAME.match(line) if in_traceback else None)
        if match is None:
            continue
        cause = found[-1] if found and is_direct_cause else None
        in_traceback = is_direct_cause = False
        name, text = match["name"].rpartition(".")[2], match["text"].strip().rstrip('"')
        following = lines[index + 1][1].strip() if index + 1 < len(lines) else ""
        if text.endswith(":") and following and not is_warning(following) and not _TRACEBACK.match(following):
            text = f"{text} {following}"
        found.append(Raised(name, text, cause, number))
    return found


def that_ended(raised: Sequence[Raised]) -> list[Raised]:
    """Return the root causes: each is the last exception of its process, and no echo of another process's death.

    If torch has marked some of them with a rank, the others were caught: it marks those that end a process.
    """
    causes = [each for each in {(each.host, each.rank): each for each in raised}.values() if not each.is_echo]
    return sorted([each for each in causes if each.rank] or causes, key=lambda each: each.line)


def rank_of(line: str) -> str:
    """Return the rank that a line begins with, as `[rank5]: ...`, or an empty text."""
    found = _RANK.match(line)
    return found["rank"] or found["rank2"] if found else ""


def raised_in_reason(reason: str) -> list[Raised]:
    """Return the script's exceptions in AWS's FailureReason, without SageMaker's own name for the kind of failure."""
    matches = ((match["name"].rpartition(".")[2], match["text"]) for match in _IN_REASON.finditer(reason))
    found = [Raised(name, text.strip().rstrip('"')) for name, text in matches if name not in _LAUNCHERS]
    return [each for each in found if not each.is_echo]


def is_warning(line: str) -> bool:
    """Return whether a line is a warning or information."""
    return bool(_WARNING.search(line))
