"""The rules: what botocore's model limits (`aws_model`) and what fields mean to each other (the tables below).

A new rule is one function and one row of a subject's `RULES`; a new subject is one file beside this one and one name here.
"""

from __future__ import annotations

from launcher.aws_model import Violation, violations
from launcher.checks import channels, code, file_systems, job, resources
from launcher.checks.rule import Draft, Rule
from launcher.errors import Problem
from launcher.request import build_request, spec_path
from launcher.spec import JobSpec

RULES: tuple[Rule, ...] = (*job.RULES, *code.RULES, *resources.RULES, *channels.RULES, *file_systems.RULES)


def check_spec(spec: JobSpec, job_name: str | None = None) -> list[Problem]:
    """Every problem of a spec that can be known offline: the service model's limits first, then the rules'."""
    request = build_request(spec, job_name or spec.training_job_name or spec.base_name or "name")
    problems = []
    for violation in violations(request):
        if not _said_better(violation):
            path = spec_path(violation.path, request, spec)
            problems.append(Problem(path, violation.message, violation.code, location=spec.locate(path)))
    draft = Draft(spec, request)
    for rule in RULES:
        for path, message in rule.find(draft):
            problems.append(Problem(path, message, rule.code, rule.severity, spec.locate(path)))
    return problems


def _said_better(violation: Violation) -> bool:
    """Whether a rule of ours says the same with the reason and the remedy."""
    return violation.path == ("InputDataConfig",) and violation.code == "aws-max"
