"""The likely cause of a failure and its remedy, since FailureReason is often only `AlgorithmError: , exit code: 1`.

The rows of causes.yaml are searched for in this order: AWS's own message; the first exception that ended a process
(`tracebacks`); other lines that are not warnings; lines that may echo another process's death; last the warnings, which
successful jobs have as well, so they are reported with `perhaps`. The result is a guess, and shown as one, below AWS's message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from launcher.jobs import tracebacks
from launcher.jobs.lines import Line, host_names, last_of_each_host, searchable
from launcher.jobs.tracebacks import Raised
from launcher.tables import read_table

SCRIPT_FAILED = "script-failed"  # the code if no row matches
_OF_PEERS = ("nccl", "collective-timeout")  # the process that reports them is not the one that caused them
_ECHOES = ("terminated", *_OF_PEERS)  # causes that may follow from another one, which the lines show
_SEARCHED_CHARACTERS = 256_000  # of lines in which every row is searched, which takes some 2 microseconds a character
_EXIT = re.compile(r"exit code:? (?P<code>-?\d+)(?:\s+\S*sh: .*)?|ExitCode (?P<code2>-?\d+)", re.IGNORECASE)
# A traceback, perhaps cut, below its exception as our boot.py writes it, or below a sentence of the script.
_DETAILS = re.compile(
    r"\n\n(?=Traceback \(most recent call last\)|\.\.\.\n|  File \")|(?<![: ])\n(?=Traceback \(most recent call last\))"
)
_REMEDY = "the job's lines have the traceback; `launch job.yaml --local --sample 10` runs the same code on this machine"


class Row(NamedTuple):
    """One row of causes.yaml, which describes its members."""

    code: str
    pattern: str
    cause: str
    remedy: str
    in_lines: bool = True
    in_warnings: bool = False
    input_mode: str | None = None
    cause_here: str = ""
    remedy_here: str = ""


@cache
def rows() -> tuple[Row, ...]:
    """Return the known causes, the specific ones first."""
    table = read_table(__file__, "causes")["causes"]
    patterns = ([row["pattern"]] if isinstance(row["pattern"], str) else row["pattern"] for row in table)
    return tuple(Row(**{**row, "pattern": "|".join(each)}) for row, each in zip(table, patterns, strict=True))


def _in_lines() -> list[Row]:
    return [row for row in rows() if row.in_lines]


class Cause(NamedTuple):
    code: str  # stable: `out-of-memory-gpu`
    cause: str
    remedy: str
    host: str = ""  # where it was, if that is known
    rank: str = ""

    def as_data(self) -> dict[str, Any]:
        place = ({"Host": self.host} if self.host else {}) | ({"Rank": int(self.rank)} if self.rank else {})
        return {"Code": self.code, "Cause": self.cause, "Remedy": self.remedy, **place}


class _Facts(dict[str, str]):
    """The facts that a sentence can name, with general words for unknown ones."""

    def __missing__(self, name: str) -> str:
        return str(read_table(__file__, "causes")["general"].get(name, "it"))


def likely_cause(description: Mapping[str, Any], last_lines: Sequence[Line] = ()) -> Cause | None:
    """Return the likely cause of a job's end, or None if none is known. `last_lines` are those of all hosts, oldest first.

    `description` is that of DescribeTrainingJob; a local run without an image adds `Python`, the program that ran the script.
    A job that completed, or that its user stopped, has no cause.
    """
    status = description.get("TrainingJobStatus")
    if status not in ("Failed", "Stopped"):
        return None
    job, reason = _Job(description), str(description.get("FailureReason") or "")
    secondary = str(description.get("SecondaryStatus") or "")
    lines = [line._replace(message=searchable(line.message)) for line in last_lines]
    shown = last_of_each_host(
        [line for line in lines if not tracebacks.BENIGN.search(line.message)], _SEARCHED_CHARACTERS
    )
    errors = [line for line in shown if not tracebacks.is_warning(line.message)]
    in_reason = tracebacks.raised_in_reason(reason)
    exit_code = _EXIT.search(reason)
    # A script's exception ends Python with 1; other exit codes come from the system. SageMaker's own message on a failure
    # outside the algorithm is reliable as a whole; of a message of the script, only its last exception is.
    words = [exit_code[0]] if exit_code and status == "Failed" else []
    if not in_reason or "AlgorithmError" not in reason:
        words.append(f"{secondary}\n{reason}")
    cause = job.in_texts(rows(), words, errors)
    if cause is not None and cause.code not in _ECHOES:
        return cause
    if status != "Failed":
        return job.in_texts(rows(), [secondary])
    if (root := _root_cause(in_reason, tracebacks.raised_in(lines))) is not None:
        return job.of_exception(root)
    found = job.in_log([row for row in rows() if row.in_warnings], shown) or job.in_log(_in_lines(), errors)
    if found is None and (hint := job.in_log(_in_lines(), shown)):
        found = hint._replace(cause=f"perhaps {hint.cause} (only a warning suggests it)")
    return found or cause or job.script_error(None)


def _root_cause(in_reason: Sequence[Raised], raised: Sequence[Raised]) -> Raised | None:
    """Return the first exception that ended a process.

    FailureReason has that of one host, which is the right one unless another process has failed before.
    """
    own, ended = [each for each in raised if not each.is_echo], tracebacks.that_ended(raised)
    if not in_reason:
        return ended[0] if ended else own[-1] if own else None
    same = [each for each in own if each.name == in_reason[-1].name]
    if not same:
        return in_reason[-1]
    last = same[-1]  # the same exception, not shortened
    before = [each for each in ended if each.line < last.line and (each.host, each.rank) != (last.host, last.rank)]
    return before[0] if before else last


class _Job:
    """A job that ended, in whose texts the rows are searched."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        resources, stopping = description.get("ResourceConfig") or {}, description.get("StoppingCondition") or {}
        algorithm = description.get("AlgorithmSpecification") or {}
        facts = {
            "role": description.get("RoleArn"),
            "image": algorithm.get("TrainingImage"),
            "instance_type": resources.get("InstanceType"),
            "volume": resources.get("VolumeSizeInGB"),
            "max_runtime": stopping.get("MaxRuntimeInSeconds"),
            "max_wait": stopping.get("MaxWaitTimeInSeconds"),
            "output": (description.get("OutputDataConfig") or {}).get("S3OutputPath"),
            "python": description.get("Python"),  # of a local run without an image
            **(read_table(__file__, "causes")["one_host"] if resources.get("InstanceCount") == 1 else {}),
        }
        self._facts = {name: str(value) for name, value in facts.items() if value}
        self._reason = str(description.get("FailureReason") or "")
        self._has_hosts = len(host_names(description)) > 1
        self._modes = {
            channel.get("ChannelName"): channel.get("InputMode") or algorithm.get("TrainingInputMode")
            for channel in description.get("InputDataConfig") or ()
        }

    def _search(self, row: Row, text: str) -> re.Match[str] | None:
        """Search a row, whose channel, if it names one, must have the row's input mode."""
        found = re.search(row.pattern, text, re.IGNORECASE | re.MULTILINE)
        if found and row.input_mode:
            modes = [self._modes.get(name) for name in (found["channel"], found["channel2"]) if name]
            return found if row.input_mode in modes else None
        return found

    def _cause(self, row: Row, found: re.Match[str]) -> Cause:
        facts, is_here = _Facts(self._facts), "python" in self._facts
        # Alternatives of one pattern have numbered groups: `object`, `object2`.
        facts.update({name.rstrip("2"): value.strip() for name, value in found.groupdict().items() if value})
        cause, remedy = row.cause_here * is_here or row.cause, row.remedy_here * is_here or row.remedy
        return Cause(row.code, cause.format_map(facts), remedy.format_map(facts))

    def _placed(self, cause: Cause, host: str, rank: str) -> Cause:
        """Return a cause with its host, if the job has several, and its rank."""
        host = host if self._has_hosts else ""
        place = " on ".join([*([f"rank {rank}"] if rank else []), *([host] if host else [])])
        return cause._replace(cause=f"{place}: {cause.cause}" if place else cause.cause, host=host, rank=rank)

    def in_texts(self, table: Iterable[Row], texts: Sequence[str], lines: Sequence[Line] = ()) -> Cause | None:
        """Return the first row that matches the first matching text; `lines` may name an object that the text does not."""
        for text in texts:
            for row in table:
                if found := self._search(row, text):
                    if row.in_lines and not any(found.groupdict().values()):
                        found = re.search(row.pattern, _joined(lines), re.IGNORECASE | re.MULTILINE) or found
                    return self._cause(row, found)
        return None

    def in_log(self, table: Iterable[Row], lines: Sequence[Line]) -> Cause | None:
        text = _joined(lines)
        for row in table:
            if found := self._search(row, text):
                cause, line = self._cause(row, found), lines[text.count("\n", 0, found.start())]
                is_of_peers = row.code in _OF_PEERS
                return cause if is_of_peers else self._placed(cause, line.host, tracebacks.rank_of(line.message))
        return None

    def of_exception(self, raised: Raised) -> Cause | None:
        """Search an exception's own text, then that of the exception it was raised from; if nothing is known, return its text."""
        chain: Raised | None = raised
        found = None
        while chain is not None and found is None:
            found, chain = self.in_texts(_in_lines(), [chain.text]), chain.cause
        found = found or self.script_error(raised)
        return found and self._placed(found, raised.host, raised.rank)

    def script_error(self, raised: Raised | None) -> Cause | None:
        code = next((found["code"] or found["code2"] for found in _EXIT.finditer(self._reason)), "")
        if raised is None and not code and "AlgorithmError" not in self._reason:
            return None
        ended = f"the training script ended with exit code {code}" if code else "the training script failed"
        why = f": {raised.text[:300]}" if raised else ", and its last lines do not show why"
        return Cause(SCRIPT_FAILED, f"{ended}{why}", _REMEDY)


def _joined(lines: Sequence[Line]) -> str:
    return "\n".join(line.message for line in lines)


def explained(code: str) -> str | None:
    """Return what `launch --explain` prints of a code of these tables, with general words for a job's facts, or None."""
    facts = _Facts(object="...")
    found = [row for row in rows() if row.code == code]
    known = [(row.cause, row.remedy) for row in found]
    known += [(row.cause_here or row.cause, row.remedy_here) for row in found if row.remedy_here]
    if code == SCRIPT_FAILED:
        known = [("the training script failed, and no known cause was found", _REMEDY)]
    texts = [f"{cause.format_map(facts)}\n{remedy.format_map(facts)}" for cause, remedy in known]
    return "\n\n".join([f"{code} (likely cause of a failed job)", *texts]) + "\n" if texts else None


def headline(reason: str) -> str:
    """Return a FailureReason in one line, without its traceback, which is in the job's log."""
    return " ".join(_DETAILS.split(reason.strip())[0].split())
