"""The job's name: as written, or the base name with the time and chance, so that no two submissions share one.

A name that is made here is a `MadeName`, so that a plan can tell it from one that was given in the spec's place (`--name`):
what is wrong with the first is the spec's, what is wrong with the second is not.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timezone

from launcher.errors import Location, SpecPath
from launcher.spec.job import JobSpec

MAX_LENGTH = 63  # TrainingJobName in the service model
MAX_BASE = MAX_LENGTH - len("-20260102-030405-a1b2")  # of the base name, as much as a job's name has room for
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class MadeName(str):
    """A job's name that was made from its spec."""

    __slots__ = ()


def job_name(spec: JobSpec, now: datetime | None = None) -> MadeName:
    """A job's name is never free again at AWS, so a base name alone would serve once."""
    if spec.training_job_name is not None:
        return MadeName(spec.training_job_name)
    moment = (now or datetime.now(timezone.utc)).strftime("%Y%m%d-%H%M%S")
    ending = f"-{moment}-{''.join(secrets.choice(_ALPHABET) for _ in range(4))}"
    return MadeName(beginning(spec.base_name if spec.base_name is not None else "job") + ending)


def place_of_name(name: str, spec: JobSpec) -> tuple[SpecPath, Location | None]:
    """Return where a job's name was given, in the spec or by `--name`: the place in the spec, empty for `--name`."""
    path: SpecPath = ("training_job_name",)
    if (spec.request or {}).get("TrainingJobName") == name:
        path = ("request", "TrainingJobName")
    elif spec.training_job_name != name:
        return (), Location("--name", 1, 1, name)
    return path, spec.locate(path)


def beginning(base_name: str) -> str:
    """What a job's name takes over of its base name."""
    return base_name[:MAX_BASE].rstrip("-")
