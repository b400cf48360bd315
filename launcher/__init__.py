"""Train on Amazon SageMaker from one page of YAML: the Python API of the command `launch`.

    import launcher

    plan = launcher.plan("job.yaml", name="digits-1", set={"hyperparameters.epochs": 3})
    plan.request                      # what boto3's create_training_job(**request) takes, once its code is uploaded
    launcher.check(plan).problems     # asks AWS whether the job can run, and changes nothing
    job = launcher.submit(plan)       # uploads the code and creates the job
    launcher.follow(job).status       # shows the job's log until it has ended

`launcher.api` documents each function. Names are imported when they are first used, so that importing this package is fast.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

TYPE_CHECKING = False  # known to mypy; importing typing takes 10 ms, during which `launch` could not handle Ctrl-C
if TYPE_CHECKING:
    from launcher.account.results import Report
    from launcher.api import check, follow, plan, run_local, status, submit, upload_code
    from launcher.errors import (
        AccountError,
        LaunchError,
        Problem,
        RefusedError,
        SpecError,
        StoppedError,
        TrainingFailedError,
    )
    from launcher.jobs.outcome import Outcome
    from launcher.jobs.submission import Submitted
    from launcher.local.workspace import LocalOptions
    from launcher.parsing.parser import load, parse_spec
    from launcher.planning import Plan, make_plan
    from launcher.spec.job import JobSpec
    from launcher.sweeps import sweep

_MODULE_OF = {
    **dict.fromkeys(("check", "follow", "plan", "run_local", "status", "submit", "upload_code"), "launcher.api"),
    **dict.fromkeys(("AccountError", "LaunchError", "Problem", "RefusedError", "SpecError"), "launcher.errors"),
    **dict.fromkeys(("StoppedError", "TrainingFailedError"), "launcher.errors"),
    **dict.fromkeys(("load", "parse_spec"), "launcher.parsing.parser"),
    **dict.fromkeys(("Plan", "make_plan"), "launcher.planning"),
    "JobSpec": "launcher.spec.job",
    "LocalOptions": "launcher.local.workspace",
    "Outcome": "launcher.jobs.outcome",
    "Report": "launcher.account.results",
    "Submitted": "launcher.jobs.submission",
    "sweep": "launcher.sweeps",
}
__all__ = ["check", "follow", "load", "make_plan", "parse_spec", "plan", "run_local", "status", "submit", "sweep"]
__all__ += ["upload_code"]
__all__ += ["JobSpec", "LocalOptions", "Outcome", "Plan", "Report", "Submitted"]
__all__ += [
    "AccountError",
    "LaunchError",
    "Problem",
    "RefusedError",
    "SpecError",
    "StoppedError",
    "TrainingFailedError",
]


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
