"""The job's name: as written, or the base name with the time and chance, so that no two submissions share one."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone

from launcher.spec import JobSpec

MAX_LENGTH = 63  # TrainingJobName in the service model
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def job_name(spec: JobSpec, now: datetime | None = None) -> str:
    """A job's name is never free again at AWS, so a base name alone would serve once."""
    if spec.training_job_name is not None:
        return spec.training_job_name
    moment = (now or datetime.now(timezone.utc)).strftime("%Y%m%d-%H%M%S")
    ending = f"-{moment}-{''.join(secrets.choice(_ALPHABET) for _ in range(4))}"
    return (spec.base_name if spec.base_name is not None else "job")[: MAX_LENGTH - len(ending)].rstrip("-") + ending
