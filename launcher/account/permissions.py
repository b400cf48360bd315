"""What the job's role may do, as simulated by IAM: allowed, denied, or unknown.

A simulation knows neither the policies of buckets, keys and repositories, which can allow what the role's own policies do not,
nor the context that conditions depend on. So a refusal counts only if no condition is open (IAM lists the context keys it
lacked) and the resource's own policy, if there is one, does not name the role. Everything else is not reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from launcher.account.check import Subject
from launcher.account.needs import Context, Need, described_role, needs, own_role
from launcher.aws.account import AwsError
from launcher.aws.threads import concurrently
from launcher.errors import Problem, SpecPath, first_names

_TAG = "s3:ExistingObjectTag/"
Statement = Mapping[str, Any]


class Verdict(NamedTuple):
    """IAM's decision on one action on one resource."""

    decision: str  # allowed, implicitDeny or explicitDeny
    missing: tuple[str, ...] = ()  # context keys of conditions that are unknown

    @property
    def is_denied(self) -> bool:
        return self.decision != "allowed" and not self.missing


_UNKNOWN = Verdict("implicitDeny", ("?",))


def permissions(subject: Subject) -> Iterator[Problem]:
    """Do the role's policies allow what the job needs?"""
    parts = own_role(subject)
    if parts is None or described_role(subject, parts["name"]) is None:
        return  # reported by `role`
    role, wanted = parts["name"], list(dict.fromkeys(needs(subject)))
    verdicts = _simulated(subject, wanted)

    def look(_: SpecPath, need: Need) -> list[Need]:
        return [need] if _is_denied(subject, role, need, verdicts[need]) else []

    suspects = [(need.path, need) for need in wanted if verdicts[need].decision != "allowed"]
    denied: dict[tuple[SpecPath, str, str], list[str]] = {}
    for need in subject.each(suspects, look):
        code = "role-denied" if need.is_vital else "role-lacks"
        denied.setdefault((need.path, code, need.shown), []).append(need.action)
    for (path, code, resource), actions in denied.items():
        missing = first_names(sorted(actions), 5)
        message = f"the role {role!r} is not allowed {missing} on {resource}; allow it in the role's policies"
        yield Problem(path, message, code)


def _simulated(subject: Subject, wanted: Sequence[Need]) -> dict[Need, Verdict]:
    """Return IAM's verdict on each need; actions on the same resource share a question. Raises AwsError."""
    role, together = str(subject.draft.get("RoleArn")), dict[tuple[str, Context], list[str]]()
    for need in wanted:
        together.setdefault((need.resource, need.context), []).append(need.action)
    found = dict(concurrently(lambda about: simulate(subject, role, together[about], *about), list(together)))
    return {need: found[need.resource, need.context].result()[need.action] for need in wanted}


def _is_denied(subject: Subject, role: str, need: Need, verdict: Verdict) -> bool:
    """Return whether the need is still denied with the tags of the object, and the resource's own policy. Raises AwsError."""
    # AmazonSageMakerFullAccess lets the role read what has a tag. An object that does not exist is not reported.
    if verdict.missing and all(name.startswith(_TAG) for name in verdict.missing):
        bucket, _, key = need.resource.split(":", 5)[-1].partition("/")
        answer = subject.ask("s3", "get_object_tagging", Bucket=bucket, Key=key)
        tags = {tag["Key"]: tag["Value"] for tag in answer.get("TagSet", ())}
        context = tuple((name, "string", (tags.get(name.removeprefix(_TAG), ""),)) for name in verdict.missing)
        arn = str(subject.draft.get("RoleArn"))
        verdict = simulate(subject, arn, [need.action], need.resource, context)[need.action]
    if not verdict.is_denied:
        return False
    return verdict.decision == "explicitDeny" or not _may_be_granted(subject, role, need)


def _may_be_granted(subject: Subject, role: str, need: Need) -> bool:
    """Return whether the resource's policy, or a grant of its key, may allow what the role's policies do not. Raises AwsError."""
    service, _, _ = need.action.partition(":")
    name = need.resource.split(":", 5)[-1]
    try:
        if service in ("s3", "s3express"):
            bucket = name.removeprefix("bucket/" if service == "s3express" else "").partition("/")[0]
            policy = subject.ask("s3", "get_bucket_policy", Bucket=bucket)["Policy"]
        elif service == "kms":
            policy = subject.ask("kms", "get_key_policy", KeyId=need.resource, PolicyName="default")["Policy"]
            if is_granted(subject, need.resource, role):
                return True
        elif service == "ecr" and need.resource != "*":
            registry, repository = need.resource.split(":")[4], name.removeprefix("repository/")
            answer = subject.ask("ecr", "get_repository_policy", registryId=registry, repositoryName=repository)
            policy = answer["policyText"]
        else:
            return False
    except AwsError as error:
        if not error.is_missing:
            raise
        return "Policy" not in error.code  # other checks report a missing resource
    return may_name(statements(policy), role)


def is_granted(subject: Subject, key: str, role: str) -> bool:
    """Return whether a grant of a KMS key is for the role of this name. Raises AwsError."""
    grants = subject.ask("kms", "list_grants", KeyId=key).get("Grants", ())
    return any(is_role(str(grant.get("GranteePrincipal", "")), role) for grant in grants)


def statements(policy: str | Mapping[str, Any] | None) -> list[Statement]:
    """Return the statements of a policy, as JSON or parsed; none if there is no policy."""
    document = json.loads(policy) if isinstance(policy, str) else policy or {}
    return as_list(document.get("Statement"))


def as_list(value: Any) -> list[Any]:
    """Return a policy's value as a list: policies may write a single value without one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def may_name(known: Iterable[Statement], role: str) -> bool:
    """Return whether any statement of a resource's policy allows something to the role of this name, or to everyone."""
    allowing = (name for each in known if each.get("Effect") == "Allow" for name in principals(each))
    return any(name == "*" or is_role(name, role) for name in allowing)


def principals(statement: Statement) -> list[str]:
    """Return whom a statement of a resource's policy names, whatever their kind; `*` is everyone."""
    principal = statement.get("Principal", "*")
    named = principal.values() if isinstance(principal, dict) else [principal]
    return [str(name) for each in named for name in as_list(each)]


def is_role(principal: str, role: str) -> bool:
    """Return whether a principal is the role, one of its sessions, or an ID that may be its own; role IDs begin with AROA."""
    return role in principal.split("/") or principal.startswith("AROA")


def simulate(
    subject: Subject, principal: str, actions: Sequence[str], resource: str, context: Context = ()
) -> dict[str, Verdict]:
    """Return IAM's verdict on whether a role or user may do each action on a resource. Raises AwsError."""
    question: dict[str, Any] = {"ActionNames": list(actions), "ResourceArns": [resource]}
    if context:
        question["ContextEntries"] = [
            {"ContextKeyName": name, "ContextKeyValues": list(values), "ContextKeyType": kind}
            for name, kind, values in context
        ]
    answer = subject.ask("iam", "simulate_principal_policy", PolicySourceArn=principal, **question)
    found = {result["EvalActionName"].lower(): _verdict(result) for result in answer.get("EvaluationResults", ())}
    return {action: found.get(action.lower(), _UNKNOWN) for action in actions}


def _verdict(result: Mapping[str, Any]) -> Verdict:
    """Return the verdict of an EvaluationResult, which has a part for the resource unless that is "*"."""
    parts = [result, *result.get("ResourceSpecificResults", ())]
    missing = [name for part in parts for name in part.get("MissingContextValues", ())]
    if result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        missing.append("organization")  # IAM does not simulate the conditions of its policies (SCPs)
    return Verdict(result["EvalDecision"], tuple(dict.fromkeys(missing)))
