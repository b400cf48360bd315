"""The job's role: whether it exists under this ARN and lets SageMaker assume it. `permissions` covers what it may do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from launcher.aws.account import AwsError
from launcher.errors import SpecPath, nearest
from launcher.preflight.check import Check, Finding, Subject, as_list, joined

ROLE: SpecPath = ("role_arn",)
_ARN = re.compile(r"arn:(?P<partition>[^:]+):iam::(?P<account>\d{12}):role/(?:.*/)?(?P<name>[^/]+)", re.DOTALL)
_SERVICE = "sagemaker.amazonaws.com"
_ASSUME = "sts:assumerole"
_EQUAL = ("StringEquals", "StringLike", "StringEqualsIgnoreCase", "ArnEquals", "ArnLike")


def own_role(subject: Subject) -> re.Match[str] | None:
    """Return partition, account and name of the job's role if it is in the caller's account. Raises AwsError."""
    parts = _ARN.fullmatch(subject.draft.get("RoleArn") or "")
    return parts if parts and parts["account"] == subject.own_account else None


def described_role(subject: Subject, name: str) -> dict[str, Any] | None:
    """Return IAM's description; None if there is no such role. Raises AwsError."""
    try:
        known: dict[str, Any] = subject.ask("iam", "get_role", RoleName=name)["Role"]
    except AwsError as error:
        if error.code == "NoSuchEntity":
            return None
        raise
    return known


def role_is_ready(subject: Subject) -> Iterator[Finding]:
    """Ask IAM about the role and its trust policy. Raises AwsError."""
    arn = subject.draft.get("RoleArn") or ""
    parts = _ARN.fullmatch(arn)
    if parts is None:
        return  # reported by the service model's pattern
    if own_role(subject) is None:
        own = subject.own_account
        yield (
            ROLE,
            "role-other-account",
            f"is in account {parts['account']}, but you are in {own}, and roles cannot cross accounts; name one in {own}",
        )
        return
    known = described_role(subject, parts["name"])
    if known is None:
        yield (
            ROLE,
            "role-missing",
            f"{parts['name']!r} does not exist in account {parts['account']}{_hint(subject, parts['name'])}",
        )
        return
    if known.get("Arn", arn) != arn:
        yield ROLE, "role-missing", f"{arn!r} does not exist, since the role has another path; write {known['Arn']!r}"
    trust = _document(known.get("AssumeRolePolicyDocument"))
    if not may_assume(trust, parts["account"]) and may_assume(trust):
        yield (
            ROLE,
            "role-trust",
            f"{parts['name']!r} lets SageMaker assume it only for another account, by a condition on aws:SourceAccount or"
            f" aws:SourceArn in its trust policy; write {parts['account']} there",
        )
    elif not may_assume(trust):
        trusted = joined(_trusted(trust)) or "no one"
        yield (
            ROLE,
            "role-trust",
            f"{parts['name']!r} lets {trusted} assume it, not SageMaker; allow sts:AssumeRole for the service {_SERVICE} in its"
            " trust policy",
        )


def may_assume(trust: Mapping[str, Any], account: str = "") -> bool:
    """Whether a trust policy may let SageMaker assume the role.

    Conditions that cannot be judged here count as met.

    Args:
        trust: The trust policy.
        account: Only for this account, if given.
    """
    allowed = False
    for statement in as_list(trust.get("Statement")):
        actions = [str(action).lower() for action in as_list(statement.get("Action"))]
        fits = "NotAction" in statement or any(fnmatchcase(_ASSUME, action) for action in actions)
        if not fits or not _names_sagemaker(statement):
            continue
        if statement.get("Effect") == "Allow":
            allowed = allowed or not account or not _is_for_others(statement, account)
        elif "Condition" not in statement and "NotAction" not in statement and "NotPrincipal" not in statement:
            return False
    return allowed


def _is_for_others(statement: Mapping[str, Any], account: str) -> bool:
    """Whether a condition requires a source in other accounts, all of them written out."""
    for operator, keys in (statement.get("Condition") or {}).items():
        if operator.rpartition(":")[2].removesuffix("IfExists") not in _EQUAL or not isinstance(keys, dict):
            continue
        for name, values in keys.items():
            sources = [str(value) for value in as_list(values)]
            if name.lower() == "aws:sourcearn":
                sources = [(value.split(":") + [""] * 5)[4] for value in sources]
            elif name.lower() != "aws:sourceaccount":
                continue
            if sources and all(re.fullmatch(r"\d{12}", value) and value != account for value in sources):
                return True
    return False


def _names_sagemaker(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal")
    if not isinstance(principal, dict):
        return True  # "*", or NotPrincipal
    services = [str(service) for service in as_list(principal.get("Service"))]
    return "*" in as_list(principal.get("AWS")) or any(
        service.partition(".")[0] in ("sagemaker", "*") for service in services
    )


def _trusted(trust: Mapping[str, Any]) -> list[str]:
    principals = [one.get("Principal") for one in as_list(trust.get("Statement")) if one.get("Effect") == "Allow"]
    return [
        str(name) for each in principals if isinstance(each, dict) for names in each.values() for name in as_list(names)
    ]


def _document(policy: Any) -> Mapping[str, Any]:
    """Return a policy that botocore has parsed already, or has left as IAM sends it."""
    if isinstance(policy, str):
        policy = json.loads(unquote(policy))
    return policy if isinstance(policy, dict) else {}


def _hint(subject: Subject, name: str) -> str:
    """Return the ARN of the role that is probably meant, if roles may be listed."""
    try:
        roles = subject.ask("iam", "list_roles", MaxItems=1000).get("Roles", ())
    except AwsError:
        return ""
    arns = {role["RoleName"]: role["Arn"] for role in roles}
    found = nearest(name, arns)
    return f"; did you mean {arns[found]!r}?" if found else "; create it, or name another"


CHECK = Check(
    "role",
    "Does the role exist, and may SageMaker assume it?",
    role_is_ready,
    {
        "role-other-account": ("error", "A role can be passed to SageMaker only in its own account."),
        "role-missing": ("error", "There is no role with this ARN."),
        "role-trust": ("error", "The role's trust policy does not let sagemaker.amazonaws.com assume it."),
    },
)
