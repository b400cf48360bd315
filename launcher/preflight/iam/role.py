"""The job's role: whether it exists, under this very ARN, and lets SageMaker assume it. `permissions` asks what it may do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.nearest import nearest
from launcher.preflight.asking import listed, own_account
from launcher.preflight.check import Check, Found, Subject

ROLE: SpecPath = ("role_arn",)
_ARN = re.compile(r"arn:(?P<partition>[^:]+):iam::(?P<account>\d{12}):role/(?:.*/)?(?P<name>[^/]+)", re.DOTALL)
_SERVICE = "sagemaker.amazonaws.com"
_ASSUME = "sts:assumerole"
_ALIKE = ("StringEquals", "StringLike", "StringEqualsIgnoreCase", "ArnEquals", "ArnLike")


def own_role(subject: Subject) -> re.Match[str] | None:
    """Partition, account and name of the job's role where it is of the caller's account. Raises AwsError."""
    parts = _ARN.fullmatch(subject.draft.get("RoleArn") or "")
    return parts if parts and parts["account"] == own_account(subject) else None


def described_role(subject: Subject, name: str) -> dict[str, Any] | None:
    """IAM's description; None where there is no such role. Raises AwsError."""
    try:
        known: dict[str, Any] = subject.ask("iam", "get_role", RoleName=name)["Role"]
    except AwsError as error:
        if error.code == "NoSuchEntity":
            return None
        raise
    return known


def role_is_ready(subject: Subject) -> Iterator[Found]:
    """Ask IAM about the role and its trust policy. Raises AwsError."""
    arn = subject.draft.get("RoleArn") or ""
    parts = _ARN.fullmatch(arn)
    if parts is None:
        return  # the service model's pattern has told
    if own_role(subject) is None:
        own = own_account(subject)
        yield (
            ROLE,
            "role-other-account",
            f"is of account {parts['account']}, but you are in {own}, and roles cannot be passed across; name one of {own}",
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
        yield ROLE, "role-missing", f"{arn!r} does not exist, as the role has another path; write {known['Arn']!r}"
    trust = _document(known.get("AssumeRolePolicyDocument"))
    if not may_assume(trust, parts["account"]) and may_assume(trust):
        yield (
            ROLE,
            "role-trust",
            f"{parts['name']!r} lets SageMaker assume it for another account only, by a condition on aws:SourceAccount or"
            f" aws:SourceArn in its trust policy; write {parts['account']} there",
        )
    elif not may_assume(trust):
        trusted = listed(_trusted(trust)) or "nobody"
        yield (
            ROLE,
            "role-trust",
            f"{parts['name']!r} lets {trusted} assume it, not SageMaker; allow sts:AssumeRole for the service {_SERVICE} in its"
            " trust policy",
        )


def may_assume(trust: Mapping[str, Any], account: str = "") -> bool:
    """Whether a trust policy may let SageMaker assume the role, for the account where one is given.

    Other conditions, which cannot be judged here, are taken to hold.
    """
    allowed = False
    for statement in _listed(trust.get("Statement")):
        actions = [str(action).lower() for action in _listed(statement.get("Action"))]
        fits = "NotAction" in statement or any(fnmatchcase(_ASSUME, action) for action in actions)
        if not fits or not _names_sagemaker(statement):
            continue
        if statement.get("Effect") == "Allow":
            allowed = allowed or not account or not _is_for_others(statement, account)
        elif "Condition" not in statement and "NotAction" not in statement and "NotPrincipal" not in statement:
            return False
    return allowed


def _is_for_others(statement: Mapping[str, Any], account: str) -> bool:
    """Whether a condition asks for a source of other accounts, all of them written out."""
    for operator, asked in (statement.get("Condition") or {}).items():
        if operator.rpartition(":")[2].removesuffix("IfExists") not in _ALIKE or not isinstance(asked, dict):
            continue
        for name, values in asked.items():
            said = [str(value) for value in _listed(values)]
            if name.lower() == "aws:sourcearn":
                said = [(value.split(":") + [""] * 5)[4] for value in said]
            elif name.lower() != "aws:sourceaccount":
                continue
            if said and all(re.fullmatch(r"\d{12}", value) and value != account for value in said):
                return True
    return False


def _names_sagemaker(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal")
    if not isinstance(principal, dict):
        return True  # "*", or NotPrincipal
    services = [str(service) for service in _listed(principal.get("Service"))]
    return "*" in _listed(principal.get("AWS")) or any(
        service.partition(".")[0] in ("sagemaker", "*") for service in services
    )


def _trusted(trust: Mapping[str, Any]) -> list[str]:
    principals = [one.get("Principal") for one in _listed(trust.get("Statement")) if one.get("Effect") == "Allow"]
    return [
        str(name) for each in principals if isinstance(each, dict) for names in each.values() for name in _listed(names)
    ]


def _document(policy: Any) -> Mapping[str, Any]:
    """A policy, which botocore has read already or has left as IAM sends it."""
    if isinstance(policy, str):
        policy = json.loads(unquote(policy))
    return policy if isinstance(policy, dict) else {}


def _hint(subject: Subject, name: str) -> str:
    """The ARN of the role that is probably meant, if roles may be listed."""
    try:
        roles = subject.ask("iam", "list_roles", MaxItems=1000).get("Roles", ())
    except AwsError:
        return ""
    arns = {role["RoleName"]: role["Arn"] for role in roles}
    found = nearest(name, arns)
    return f"; did you mean {arns[found]!r}?" if found else "; make it, or name another"


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


CHECK = Check(
    "role",
    role_is_ready,
    {
        "role-other-account": ("error", "A role is passed to SageMaker in its own account only."),
        "role-missing": ("error", "There is no role of this ARN."),
        "role-trust": ("error", "The role's trust policy does not let sagemaker.amazonaws.com assume it."),
    },
)
