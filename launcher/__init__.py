"""One page of YAML into one CreateTrainingJob request, shown, run here, or sent.

    import launcher

    spec = launcher.load("job.yaml")                  # SpecError names every problem with its line
    request = launcher.plan(spec).request             # what boto3's create_training_job(**request) takes
    request = launcher.plan("job.yaml", name="digits-1").request

`plan` reads the code folder that the spec names, to give the code's place in S3 its digest, and makes up the job's name
where none is given. It needs no AWS account, no region and no network.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from launcher.archive import CodeArchive, read_code
from launcher.errors import LaunchError, Problem, RefusedError, SpecError
from launcher.names import job_name
from launcher.parse import load, parse_spec
from launcher.plan import Plan, make_plan
from launcher.spec import JobSpec

__all__ = ["JobSpec", "LaunchError", "Plan", "Problem", "SpecError", "load", "make_plan", "parse_spec", "plan"]


def plan(
    spec: JobSpec | str | PathLike[str], *, name: str | None = None, ignore: tuple[str, ...] = (), strict: bool = False
) -> Plan:
    """Plan a job from a spec or the path of one.

    `name` is the job's whole name; without it, `training_job_name` is used as it is, or `base_name` with the time and a few
    random characters behind it. `ignore` names codes of warnings to say nothing of, `strict` makes warnings errors.
    Raises SpecError with every problem found, RefusedError where files are missing.
    """
    if not isinstance(spec, JobSpec):
        spec = load(str(spec))
    code: CodeArchive | RefusedError | None = None
    if spec.code is not None:
        folder = spec.code.directory
        try:
            code = read_code(None if folder is None else Path(spec.folder_of(("code", "directory")), folder))
        except RefusedError as error:
            code = error  # one problem among those of the spec
    wanted = job_name(spec) if name is None else name
    return make_plan(spec, job_name=wanted, code=code, ignore=ignore, strict=strict)
