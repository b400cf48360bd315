"""Statements of policies: whom and what they name, what they surely deny, and what they may allow.

A Deny counts only if it surely applies: it names everyone, the role or its account, the action and the resource, and has no
condition. An Allow counts if it may apply. What a condition, a NotPrincipal or a variable in a resource decides is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

Statement = Mapping[str, Any]


def statements(policy: str | Mapping[str, Any] | None) -> list[Statement]:
    """Return the statements of a policy, as JSON or parsed; none if there is no policy."""
    document = json.loads(policy) if isinstance(policy, str) else policy or {}
    return as_list(document.get("Statement"))


def as_list(value: Any) -> list[Any]:
    """Return a policy's value as a list: policies may write a single value without one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def principals(statement: Statement, kind: str = "AWS") -> list[str]:
    """Return the principals of a kind that a statement names; `*` is everyone."""
    principal = statement.get("Principal")
    return [str(each) for each in as_list(principal.get(kind) if isinstance(principal, dict) else principal)]


def fits(statement: Statement, member: str, name: str) -> bool:
    """Return whether a statement's Action or Resource matches a name, or its NotAction or NotResource does not.

    It does not if a variable decides. IAM's wildcards are only * and ?.
    """
    flags = re.DOTALL | (re.IGNORECASE if member == "Action" else 0)

    def matches(pattern: str) -> bool:
        return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name, flags) is not None

    included, excluded = ([str(each) for each in as_list(statement.get(key))] for key in (member, f"Not{member}"))
    if excluded:
        return not any("${" in each or matches(each) for each in excluded)
    return any("${" not in each and matches(each) for each in included)


def surely_denies(statement: Statement, action: str, resource: str, role: str) -> bool:
    """Return whether a statement of a resource's policy denies a role's ARN an action under all circumstances."""
    if statement.get("Effect") != "Deny" or "Condition" in statement or "NotPrincipal" in statement:
        return False
    _, partition, _, _, account, _ = role.split(":", 5)
    ours = {"*", role, account, f"arn:{partition}:iam::{account}:root"}
    return (
        bool(ours & {*principals(statement)})
        and fits(statement, "Action", action)
        and fits(statement, "Resource", resource)
    )


def may_allow(statement: Statement, action: str, resource: str, role: str) -> bool:
    """Return whether a statement allows a role's ARN an action, or may: what cannot be judged counts as allowing."""
    account = role.split(":")[4]
    named = principals(statement) if "Principal" in statement else ["*"]
    is_named = any(each in ("*", role, account) or each.endswith((f":{account}:root", "*")) for each in named)
    is_open = "${" in json.dumps([statement.get("Resource"), statement.get("NotResource")])
    allows = statement.get("Effect") == "Allow" and is_named and fits(statement, "Action", action)
    return allows and (is_open or fits(statement, "Resource", resource))


def may_name(known: Iterable[Statement], role: str) -> bool:
    """Return whether any statement of a resource's policy allows something to the role of this name, or to everyone."""
    for statement in known:
        principal = statement.get("Principal", "*")
        named = principal.values() if isinstance(principal, dict) else [principal]
        names = [str(name) for each in named for name in as_list(each)]
        if statement.get("Effect") == "Allow" and any(name == "*" or is_role(name, role) for name in names):
            return True
    return False


def is_role(principal: str, role: str) -> bool:
    """Return whether a principal is the role, one of its sessions, or an ID that may be its own; role IDs begin with AROA."""
    return role in principal.split("/") or principal.startswith("AROA")
