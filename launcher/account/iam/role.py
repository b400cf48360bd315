"""The job's role: whether it exists under this ARN and lets SageMaker assume it. `permissions` covers what it may do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from launcher.account.check import Check, Finding, Subject, joined
from launcher.errors import SpecPath, nearest

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
    return (subject.find("iam", "get_role", RoleName=name) or {}).get("Role")


def as_list(value: Any) -> list[Any]:
    """Return a policy's value as a list: policies may write a single value without one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _ask(subject: Subject) -> Iterator[Finding]:
    arn = subject.draft.get("RoleArn") or ""
    parts = _ARN.fullmatch(arn)
    if parts is None:
        return  # reported by the service model's pattern
    account, name, own = parts["account"], parts["name"], subject.own_account
    if account != own:
        where = f"is in account {account}, but you are in {own}, and roles cannot cross accounts"
        yield ROLE, "role-other-account", f"{where}; name one in {own}"
        return
    known = described_role(subject, name)
    if known is None:
        roles = subject.try_to_ask("iam", "list_roles", MaxItems=1000).get("Roles", ())
        arns = {role["RoleName"]: role["Arn"] for role in roles}
        meant = nearest(name, arns)
        hint = f"; did you mean {arns[meant]!r}?" if meant else "; create it, or name another"
        yield ROLE, "role-missing", f"{name!r} does not exist in account {account}{hint}"
        return
    if known.get("Arn", arn) != arn:
        yield ROLE, "role-missing", f"{arn!r} does not exist, since the role has another path; write {known['Arn']!r}"
    trust = _document(known.get("AssumeRolePolicyDocument"))
    if not may_assume(trust):
        remedy = f"allow sts:AssumeRole for the service {_SERVICE} in its trust policy"
        trusted = joined(_trusted(trust)) or "no one"
        yield ROLE, "role-trust", f"{name!r} lets {trusted} assume it, not SageMaker; {remedy}"
    elif not may_assume(trust, account):
        message = (
            f"{name!r} lets SageMaker assume it only for another account, by a condition on aws:SourceAccount or aws:SourceArn in"
            f" its trust policy; write {account} there"
        )
        yield ROLE, "role-trust", message


def may_assume(trust: Mapping[str, Any], account: str = "") -> bool:
    """Return whether a trust policy may let SageMaker assume the role, or for this account only if one is given.

    Conditions that cannot be judged here count as met.
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
    """Return whether a condition requires a source in other accounts, all of them written out."""
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
    services = [str(service).partition(".")[0] for service in as_list(principal.get("Service"))]
    return "*" in as_list(principal.get("AWS")) or any(service in ("sagemaker", "*") for service in services)


def _trusted(trust: Mapping[str, Any]) -> list[str]:
    principals = [one.get("Principal") for one in as_list(trust.get("Statement")) if one.get("Effect") == "Allow"]
    named = [names for each in principals if isinstance(each, dict) for names in each.values()]
    return [str(name) for names in named for name in as_list(names)]


def _document(policy: Any) -> Mapping[str, Any]:
    """Return a policy that botocore has parsed already, or has left as IAM sends it."""
    if isinstance(policy, str):
        policy = json.loads(unquote(policy))
    return policy if isinstance(policy, dict) else {}


CHECK = Check("role", _ask)
