"""The job's name: `training_job_name`, or `base_name` with the time and random characters, so that it is unique.

A name made here is a `MadeName`, which distinguishes it from one given by `--name`: a problem of the former is reported at
the spec's key, a problem of the latter at the option.
"""

from __future__ import annotations

import re
from datetime import datetime

from launcher.errors import Location, SpecPath
from launcher.spec.job import JobSpec

MAX_LENGTH = 63  # TrainingJobName in the service model
MAX_BASE = MAX_LENGTH - len("-20260102-030405-a1b2")  # characters of the base name that fit into a job's name
# What is appended to a base name: here; by SDK v2 (2026-01-31-23-59-59-123) and AWS's examples for boto3, which have no
# milliseconds; by SDK v3 (20260131235959); by time.time().
_MADE = re.compile(r"-(\d{8}-\d{6}(-[0-9a-z]{4})?|\d{4}(-\d\d){5}(-\d{3})?|20\d{12}|1\d{9})$")


class MadeName(str):
    """A job's name made from its spec."""

    __slots__ = ()


def job_name(spec: JobSpec, now: datetime, unique: str) -> MadeName:
    """Return the name for a new job; a base name gets the time `now` and four characters that no other job of this second has."""
    if spec.training_job_name is not None:
        return MadeName(spec.training_job_name)
    base = beginning("job" if spec.base_name is None else spec.base_name)
    return MadeName(f"{base}-{now.strftime('%Y%m%d-%H%M%S')}-{unique}")


def place_of_name(name: str, spec: JobSpec) -> tuple[SpecPath, Location | None]:
    """Return where a job's name was given, in the spec or by `--name`: the place in the spec, empty for `--name`."""
    path: SpecPath = ("training_job_name",)
    if (spec.request or {}).get("TrainingJobName") == name:
        path = ("request", "TrainingJobName")
    elif spec.training_job_name != name:
        return (), Location("--name", 1, 1, name)
    return path, spec.locate(path)


def base_of(name: str) -> str:
    """Return a job's name without the time that a launcher or an SDK has appended to it."""
    return _MADE.sub("", name)


def beginning(base_name: str) -> str:
    """Return the part of a base name that fits into a job's name."""
    return base_name[:MAX_BASE].rstrip("-")
