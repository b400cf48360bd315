"""Why a job failed, and what to do: FailureReason is often no more than `AlgorithmError: , exit code: 1`.

Held against a table (`causes`, `script_causes`), from the particular to the general, are, in this order: AWS's own words; the
exception that ended the script (`tracebacks`); other lines that are no warnings; what may echo another process's death; last the
warnings, of which a good job has many, so that they make a `perhaps` only. It is a guess from words, told as one, below AWS's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.jobs.failures.causes import AWS_CAUSES, Row
from launcher.jobs.failures.script_causes import SCRIPT_CAUSES
from launcher.jobs.failures.tracebacks import Raised, raised_in, raised_in_reason, sober, without_benign

CAUSES = (*AWS_CAUSES, *SCRIPT_CAUSES)
_IN_LINES = tuple(row for row in CAUSES if row.in_lines)
_CERTAIN = tuple(row for row in CAUSES if row.in_warnings)
_ECHOES = ("terminated",)  # which a job is for reasons that its lines tell better
_KILLED = re.compile(r"Root Cause \(first observed failure\):(?:\n.*){1,6}?exitcode *: *(?P<signal>-9|-11|-4)\b")
_EXIT = re.compile(r"exit code:? (?P<code>-?\d+)|ExitCode (?P<code2>-?\d+)", re.IGNORECASE)
# A traceback below its exception, as our boot.py writes it, perhaps cut; or below a sentence of the script's own.
_DETAILS = re.compile(
    r"\n\n(?=Traceback \(most recent call last\)|\.\.\.\n)|(?<![: ])\n(?=Traceback \(most recent call last\))"
)
_ONE_HOST = {"peers": "the processes of the host", "open": "look for the first process that failed"}


@dataclass(frozen=True)
class Cause:
    """What probably went wrong."""

    code: str  # stable: `out-of-memory-gpu`
    cause: str
    remedy: str


class _Facts(dict[str, str]):
    """What a sentence can name; what is not known is told in general words."""

    _GENERAL: Mapping[str, str] = {
        "object": "an object",
        "path": "a path",
        "action": "access",
        "role": "the job's role",
        "image": "the image",
        "system": "the file system",
        "quota": "for this instance type",
        "instance_type": "this instance type",
        "volume": "its",
        "max_runtime": "its default",
        "max_wait": "its default",
        "output": "s3_output_path",
        "package": "the lines tell which",
        "module": "that the script imports",
        "command": "container_entrypoint, or the image's own",
        "refusal": "its reason tells which part",
        "peers": "the hosts",
        "open": "let the job's security groups accept each other on all ports, look for the first host that failed",
    }

    def __missing__(self, name: str) -> str:
        return self._GENERAL.get(name, "it")


def likely_cause(description: Mapping[str, Any], last_lines: Sequence[str] = ()) -> Cause | None:
    """The likely cause of a job's end, from DescribeTrainingJob's answer and its hosts' last lines; None without a guess.

    A job that was stopped by its user or has completed has no cause.
    """
    status = description.get("TrainingJobStatus")
    if status not in ("Failed", "Stopped"):
        return None
    reason = str(description.get("FailureReason") or "")
    secondary = str(description.get("SecondaryStatus") or "")
    lines = [line for event in last_lines for line in event.splitlines()]
    in_reason = [each for each in raised_in_reason(reason) if not each.is_launchers and not each.is_echo]
    exit_code = _EXIT.search(reason)
    # A script's exception ends Python with 1; other codes are the system's word. What SageMaker itself says of a failure
    # that is not the algorithm's is true as a whole; of what the script wrote there, only its last exception counts.
    words = [exit_code[0]] if exit_code and status == "Failed" else []
    if not in_reason or "AlgorithmError" not in reason:
        words.append(f"{secondary}\n{reason}")
    cause = _of_texts(description, CAUSES, words, lines)
    if cause is not None and cause.code not in _ECHOES:
        return cause
    if status != "Failed":
        return _of_texts(description, AWS_CAUSES, [secondary])
    raised = [each for each in raised_in(lines) if not each.is_launchers]
    own = [each for each in raised if not each.is_echo]
    if not in_reason and (killed := _KILLED.search("\n".join(lines))):
        # torchrun's own finding: no exception ended that rank, whatever it had logged before.
        return _of_texts(description, _IN_LINES, [f"exitcode : {killed['signal']}"])
    witness = in_reason[-1] if in_reason else own[-1] if own else None
    if in_reason and own and own[-1].name == in_reason[-1].name:
        witness = own[-1]  # the same at its full length
    if witness is not None:
        return _of_exception(description, witness) or _script_error(description, witness)
    return (
        _of_texts(description, _CERTAIN, ["\n".join(without_benign(lines))])
        or _of_texts(description, _IN_LINES, ["\n".join(sober(lines))])
        or (_of_exception(description, raised[-1]) if raised else None)
        or (_script_error(description, raised[-1]) if raised else None)
        or _perhaps(_of_texts(description, _IN_LINES, ["\n".join(without_benign(lines))]))
        or cause
        or _script_error(description, None)
    )


def _of_exception(description: Mapping[str, Any], raised: Raised) -> Cause | None:
    """By an exception's own words, then by what it was raised from."""
    found = _of_texts(description, _IN_LINES, [raised.text])
    return found or (_of_exception(description, raised.cause) if raised.cause else None)


def _of_texts(
    description: Mapping[str, Any], rows: Sequence[Row], texts: Sequence[str], lines: Sequence[str] = ()
) -> Cause | None:
    """The first row that fits the first text that any fits; `lines` may name what the text does not."""
    for text in texts:
        for row in rows:
            if (found := row.pattern.search(text)) and _is_of_mode(row, found, description):
                if row.in_lines and not any(found.groupdict().values()):
                    found = row.pattern.search("\n".join(sober(lines))) or found
                return _cause(row, found, description)
    return None


def _is_of_mode(row: Row, found: re.Match[str], description: Mapping[str, Any]) -> bool:
    """Whether the channel that a row has found arrives in the mode that the row is about."""
    if row.input_mode is None:
        return True
    job_mode = (description.get("AlgorithmSpecification") or {}).get("TrainingInputMode")
    channels = description.get("InputDataConfig") or ()
    modes = {channel.get("ChannelName"): channel.get("InputMode") or job_mode for channel in channels}
    return any(modes.get(name) == row.input_mode for name in (found["channel"], found["channel2"]) if name)


def headline(reason: str) -> str:
    """A FailureReason in one line, without the traceback that follows what it says: the job's log has it."""
    return " ".join(_DETAILS.split(reason.strip())[0].split())


def _perhaps(cause: Cause | None) -> Cause | None:
    """What only a warning speaks for."""
    return Cause(cause.code, f"perhaps {cause.cause} (only a warning says so)", cause.remedy) if cause else None


def _cause(row: Row, found: re.Match[str], description: Mapping[str, Any]) -> Cause:
    facts = _Facts(_facts_of(description))
    # Alternatives of a pattern number their groups: `object`, `object2`.
    facts.update({name.rstrip("2"): value.strip() for name, value in found.groupdict().items() if value})
    return Cause(row.code, row.cause.format_map(facts), row.remedy.format_map(facts))


def _facts_of(description: Mapping[str, Any]) -> dict[str, str]:
    resources, stopping = description.get("ResourceConfig") or {}, description.get("StoppingCondition") or {}
    known = {
        "role": description.get("RoleArn"),
        "image": (description.get("AlgorithmSpecification") or {}).get("TrainingImage"),
        "instance_type": resources.get("InstanceType"),
        "volume": resources.get("VolumeSizeInGB"),
        "max_runtime": stopping.get("MaxRuntimeInSeconds"),
        "max_wait": stopping.get("MaxWaitTimeInSeconds"),
        "output": (description.get("OutputDataConfig") or {}).get("S3OutputPath"),
        **(_ONE_HOST if resources.get("InstanceCount") == 1 else {}),
    }
    return {name: str(value) for name, value in known.items() if value}


def _script_error(description: Mapping[str, Any], raised: Raised | None) -> Cause | None:
    """The general case: the script failed; name the exception that ended it."""
    reason = str(description.get("FailureReason") or "")
    exit_code = _EXIT.search(reason)
    code = (exit_code["code"] or exit_code["code2"]) if exit_code else ""
    if raised is None and not code and "AlgorithmError" not in reason:
        return None
    ended = f"the training script ended with exit code {code}" if code else "the training script failed"
    said = f": {raised.text[:300]}" if raised else ", and said nothing of why in its last lines"
    remedy = (
        "the job's lines have the traceback; `launch job.yaml --local --sample 10` runs the same code on this machine"
    )
    return Cause("script-failed", f"{ended}{said}", remedy)
