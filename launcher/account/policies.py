"""Policies: what their statements surely deny and may allow, and whether those of buckets, keys and endpoints let the role through.

A Deny counts only if it surely applies: it names everyone, the role or its account, the action and the resource, and has no
condition. An Allow counts if it may apply. What a condition, a NotPrincipal or a variable in a resource decides is unknown.

IAM's policies count for a key only if the key's policy admits its account (`arn:aws:iam::ACCOUNT:root`); otherwise the key's
policy, or a grant, must name the role (KMS developer guide, "Default key policy"). An endpoint's policy is one more that must allow
each request (AWS PrivateLink guide, "Control access to VPC endpoints using endpoint policies").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from launcher.account.check import Subject, joined
from launcher.account.listing import first_keys
from launcher.account.needs import Need, key_needs, own_role, s3_needs
from launcher.account.network import vpc_id
from launcher.account.s3_route import s3_endpoints
from launcher.aws.account import AwsError
from launcher.errors import Problem, SpecPath

_OF_NETWORKS = ("aws:sourcevpce", "aws:sourcevpc")  # keys of conditions, in lower case
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


def _vital_needs(subject: Subject) -> list[Need]:
    """Return what the role surely needs in S3, if it is in the caller's account. Raises AwsError."""
    return [each for each in s3_needs(subject) if each.is_vital] if own_role(subject) else []


def in_buckets(subject: Subject) -> Iterable[tuple[SpecPath, tuple[str, list[Need]]]]:
    """Return each bucket with what the job surely needs in it, at the first path in the spec that needs something."""
    found: dict[str, list[Need]] = {}
    for need in _vital_needs(subject):
        found.setdefault(need.resource.split(":", 5)[-1].partition("/")[0], []).append(need)
    return [(wanted[0].path, (bucket, wanted)) for bucket, wanted in found.items()]


def bucket_policies(subject: Subject, path: SpecPath, needed: tuple[str, list[Need]]) -> Iterator[Problem]:
    """Do the bucket policies leave the job's role the access it needs?"""
    bucket, wanted = needed
    known = statements((subject.find("s3", "get_bucket_policy", Bucket=bucket) or {}).get("Policy"))
    names = [str(each.get("Sid") or f"number {number}") for number, each in enumerate(known, 1)]
    denied: dict[tuple[SpecPath, str, str], list[str]] = {}
    for need in wanted:
        name = next((name for name, each in zip(names, known, strict=True) if _is_denied(subject, each, need)), None)
        if name is not None:
            denied.setdefault((need.path, need.shown, name), []).append(need.action)
    for (place, what, name), actions in denied.items():
        message = (
            f"the policy of bucket {bucket!r} denies the role {joined(sorted(set(actions)))} on {what} (statement {name});"
            " exempt the role, for example by a condition on aws:PrincipalArn"
        )
        yield Problem(place, message, "bucket-denies")
    for name, statement in zip(names, known, strict=True):
        admitted = _networks(statement)
        try:
            if not admitted or admitted & _own_networks(subject):
                continue
        except AwsError as error:
            subject.could_not_ask(path, error)
            continue
        unconditional = {key: value for key, value in statement.items() if key != "Condition"}
        for need in [each for each in wanted if _is_denied(subject, unconditional, each)][:1]:
            message = (
                f"the policy of bucket {bucket!r} admits requests only from {joined(sorted(admitted))} (statement {name}), and"
                " the job's come from elsewhere; set vpc_config to subnets that use it, or exempt the role"
            )
            yield Problem(need.path, message, "bucket-denies-network")


def _networks(statement: Statement) -> set[str]:
    """Return the VPCs or endpoints that a Deny exempts, if nothing else decides whether it applies."""
    conditions = [
        (operator.removesuffix("IfExists"), key.lower(), {str(each) for each in as_list(values)})
        for operator, keys in (statement.get("Condition") or {}).items()
        for key, values in keys.items()
    ]
    if len(conditions) != 1 or statement.get("Effect") != "Deny":
        return set()
    operator, key, named = conditions[0]
    is_plain = not any(char in each for each in named for char in "*?$")
    return named if operator in ("StringNotEquals", "StringNotLike") and key in _OF_NETWORKS and is_plain else set()


def _own_networks(subject: Subject) -> set[str]:
    """Return the job's VPC and the endpoints through which it reaches S3. Raises AwsError."""
    if not subject.draft.get("VpcConfig"):
        return set()
    vpc = vpc_id(subject)
    endpoints = {str(each["VpcEndpointId"]) for each in s3_endpoints(subject)}
    return endpoints | ({vpc} if vpc else set())


def _is_denied(subject: Subject, statement: Statement, need: Need) -> bool:
    """Return whether a Deny applies to existing objects, or to all to come: a need's key may be made up. Raises AwsError."""
    role = str(subject.draft.get("RoleArn"))
    if need.place is not None and need.action != "s3:ListBucket":
        arn = need.resource.partition("/")[0]
        keys = first_keys(subject.ask, need.place)
        return any(surely_denies(statement, need.action, f"{arn}/{key}", role) for key in keys)
    if "/" in need.resource:
        named = as_list(statement.get("Resource"))
        whole = [each for each in named if str(each).endswith("*") or each == need.resource]
        statement = {**statement, "Resource": whole, "NotResource": []}
    return surely_denies(statement, need.action, need.resource, role)


def endpoint_policies(subject: Subject) -> Iterator[Problem]:
    """Do the policies of the S3 endpoints let the job's role through to its buckets?"""
    role, needs = str(subject.draft.get("RoleArn")), _vital_needs(subject)
    for endpoint in s3_endpoints(subject) if needs and subject.draft.get("VpcConfig") else ():
        known = statements(endpoint.get("PolicyDocument"))
        closed: dict[SpecPath, list[Need]] = {}
        for need in needs if known else ():
            asked = need.action, need.resource, role
            if any(surely_denies(each, *asked) for each in known) or not any(may_allow(each, *asked) for each in known):
                closed.setdefault(need.path, []).append(need)
        for path, denied in closed.items():
            message = (
                f"the policy of the endpoint {endpoint['VpcEndpointId']}, through which the job reaches S3, does not allow"
                f" {joined(sorted({each.action for each in denied}))} on {denied[0].shown}; allow it there"
            )
            yield Problem(path, message, "endpoint-policy-closed")


def own_keys(subject: Subject) -> Iterator[tuple[SpecPath, tuple[str, str]]]:
    """Yield each key of the caller's account that the role needs, with the role's name."""
    role, known = own_role(subject), set[str]()
    for need in key_needs(subject) if role else ():
        if role and need.resource not in known and need.resource.split(":")[4] == role["account"]:
            known.add(need.resource)
            yield need.path, (need.resource, role["name"])


def key_policies(subject: Subject, path: SpecPath, use: tuple[str, str]) -> Iterator[Problem]:
    """Do the policies of the KMS keys let the job's role use them?"""
    arn, role = use
    known = statements(subject.ask("kms", "get_key_policy", KeyId=arn, PolicyName="default")["Policy"])
    root = f":iam::{arn.split(':')[4]}:root"
    allowing = [name for each in known if each.get("Effect") == "Allow" for name in principals(each)]
    is_open = any(name.endswith(root) or name == arn.split(":")[4] for name in allowing)
    if not is_open and not may_name(known, role) and not is_granted(subject, arn, role):
        message = (
            f"the policy of the KMS key {arn} names neither the role {role!r} nor the account's root, so the role cannot use"
            " it; allow the role there, or name another key"
        )
        yield Problem(path, message, "key-policy-closed")


def is_granted(subject: Subject, key: str, role: str) -> bool:
    """Return whether a grant of a key is for the role. Raises AwsError."""
    grants = subject.ask("kms", "list_grants", KeyId=key).get("Grants", ())
    return any(is_role(str(grant.get("GranteePrincipal", "")), role) for grant in grants)
