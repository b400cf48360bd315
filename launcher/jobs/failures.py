"""Why a job failed, and what to do: FailureReason is often no more than `AlgorithmError: , exit code: 1`.

What AWS says and the last lines of the hosts are held against a table (`causes`, `script_causes`), from the particular to the
general. It is a guess from words, so it is told as one, below AWS's own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.jobs.causes import AWS_CAUSES, Row
from launcher.jobs.script_causes import SCRIPT_CAUSES

CAUSES = (*AWS_CAUSES, *SCRIPT_CAUSES)
_EXCEPTION = re.compile(r"^(?P<error>(?:[\w]+\.)*\w*(?:Error|Exception|Exit|Fault)\b: ?.{0,300})", re.MULTILINE)
_EXIT = re.compile(r"exit code:? (?P<code>\d+)|ExitCode (?P<code2>\d+)", re.IGNORECASE)


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
    }

    def __missing__(self, name: str) -> str:
        return self._GENERAL.get(name, "it")


def likely_cause(description: Mapping[str, Any], last_lines: Sequence[str] = ()) -> Cause | None:
    """The likely cause of a job's end, from DescribeTrainingJob's answer and its hosts' last lines; None without a guess.

    A job that was stopped by its user or has completed has no cause.
    """
    status = description.get("TrainingJobStatus")
    told = f"{description.get('SecondaryStatus', '')}\n{description.get('FailureReason') or ''}"
    for row in CAUSES:
        if status in ("Failed", "Stopped") and (found := row.pattern.search(told)):
            return _cause(row, found, description)
    if status != "Failed":
        return None
    lines = "\n".join(last_lines)
    for row in CAUSES:
        if row.in_lines and (found := row.pattern.search(lines)):
            return _cause(row, found, description)
    return _script_error(told, lines)


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
    }
    return {name: str(value) for name, value in known.items() if value}


def _script_error(told: str, lines: str) -> Cause | None:
    """The general case: the script failed; name the last exception it showed."""
    errors = [found["error"].strip() for found in _EXCEPTION.finditer(lines)]
    exit_code = _EXIT.search(told)
    code = (exit_code["code"] or exit_code["code2"]) if exit_code else ""
    if not errors and not code and "AlgorithmError" not in told:
        return None
    ended = f"the training script ended with exit code {code}" if code else "the training script failed"
    said = f": {errors[-1]}" if errors else ", and said nothing of why in its last lines"
    remedy = (
        "the job's lines have the traceback; `launch job.yaml --local --sample 10` runs the same code on this machine"
    )
    return Cause("script-failed", f"{ended}{said}", remedy)
