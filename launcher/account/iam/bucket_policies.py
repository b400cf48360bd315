"""Whether the bucket policies deny the job's role access: an explicit Deny there overrides everything that allows.

A Deny counts only if it surely applies: it names everyone, the role or its account, the action and the resource, and has no
condition. With a condition, a NotPrincipal or a variable in a resource the result is unknown, and unknown is not reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.iam.keys import first_keys
from launcher.account.iam.needs import Need, s3_needs
from launcher.account.iam.role import as_list, own_role
from launcher.account.network.s3_route import s3_endpoints
from launcher.account.network.vpc import vpc_id
from launcher.aws.account import AwsError
from launcher.errors import SpecPath


def _buckets(subject: Subject) -> Iterable[tuple[SpecPath, tuple[str, list[Need]]]]:
    """Return each bucket with what the job surely needs in it, at the first path in the spec that needs something."""
    parts = own_role(subject)
    found: dict[str, list[Need]] = {}
    for need in s3_needs(subject, parts["partition"]) if parts else ():
        if need.is_vital:
            found.setdefault(need.resource.split(":", 5)[-1].partition("/")[0], []).append(need)
    return [(wanted[0].path, (bucket, wanted)) for bucket, wanted in found.items()]


def _ask(subject: Subject, path: SpecPath, needed: tuple[str, list[Need]]) -> Iterator[Finding]:
    bucket, wanted = needed
    answer = subject.find("s3", "get_bucket_policy", Bucket=bucket)
    statements = as_list(json.loads(answer["Policy"]).get("Statement")) if answer else []
    denied: dict[tuple[SpecPath, str, str], list[str]] = {}
    for need in wanted:
        for number, statement in enumerate(statements, 1):
            if _is_denied(subject, statement, need):
                name = statement.get("Sid") or f"number {number}"
                denied.setdefault((need.path, need.shown, str(name)), []).append(need.action)
                break
    for (path, what, name), actions in denied.items():
        message = (
            f"the policy of bucket {bucket!r} denies the role {joined(sorted(set(actions)))} on {what} (statement {name});"
            " exempt the role, for example by a condition on aws:PrincipalArn"
        )
        yield path, "bucket-denies", message
    for number, statement in enumerate(statements, 1):
        admitted = _networks(statement)
        try:
            if not admitted or admitted & _own_networks(subject):
                continue
        except AwsError as error:
            subject.could_not_ask(path, error)
            continue
        open_statement = {key: value for key, value in statement.items() if key != "Condition"}
        for need in wanted:
            if _is_denied(subject, open_statement, need):
                message = (
                    f"the policy of bucket {bucket!r} admits requests only from {joined(sorted(admitted))} (statement"
                    f" {statement.get('Sid') or f'number {number}'}), and the job's come from elsewhere; set vpc_config to"
                    " subnets that use it, or exempt the role"
                )
                yield need.path, "bucket-denies-network", message
                break


_OF_NETWORKS = ("aws:sourcevpce", "aws:sourcevpc")  # keys of conditions, in lower case


def _networks(statement: Mapping[str, Any]) -> set[str]:
    """Return the VPCs or endpoints that a Deny exempts, if nothing else decides whether it applies."""
    conditions = [
        (operator.removesuffix("IfExists"), key.lower(), values)
        for operator, keys in (statement.get("Condition") or {}).items()
        for key, values in keys.items()
    ]
    if len(conditions) != 1 or statement.get("Effect") != "Deny":
        return set()
    operator, key, values = conditions[0]
    named = {str(each) for each in as_list(values)}
    is_plain = not any(char in each for each in named for char in "*?$")
    return named if operator in ("StringNotEquals", "StringNotLike") and key in _OF_NETWORKS and is_plain else set()


def _own_networks(subject: Subject) -> set[str]:
    """Return the job's VPC and the endpoints through which it reaches S3. Raises AwsError."""
    if not subject.draft.get("VpcConfig"):
        return set()
    vpc = vpc_id(subject)
    endpoints = {str(each["VpcEndpointId"]) for each in s3_endpoints(subject)}
    return endpoints | ({vpc} if vpc else set())


def _is_denied(subject: Subject, statement: Mapping[str, Any], need: Need) -> bool:
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


def surely_denies(statement: Mapping[str, Any], action: str, resource: str, role: str) -> bool:
    """Return whether a statement of a resource's policy denies a role's ARN an action under all circumstances."""
    if statement.get("Effect") != "Deny" or "Condition" in statement or "NotPrincipal" in statement:
        return False
    principal = statement.get("Principal")
    named = as_list(principal.get("AWS")) if isinstance(principal, dict) else as_list(principal)
    account = role.split(":")[4]
    if not {"*", role, account, f"arn:{role.split(':')[1]}:iam::{account}:root"} & {str(each) for each in named}:
        return False
    actions = as_list(statement.get("Action")), as_list(statement.get("NotAction"))
    if not fits(actions, action.lower(), fold=True):
        return False
    return fits((as_list(statement.get("Resource")), as_list(statement.get("NotResource"))), resource, fold=False)


def fits(patterns: tuple[list[Any], list[Any]], name: str, *, fold: bool) -> bool:
    """Return whether a name matches the patterns of a statement, or none of those it excludes; not if a variable decides."""
    included, excluded = ([str(each).lower() if fold else str(each) for each in part] for part in patterns)
    if excluded:
        return not any("${" in each or _matches(each, name) for each in excluded)
    return any("${" not in each and _matches(each, name) for each in included)


def _matches(pattern: str, name: str) -> bool:
    """Match IAM's wildcards, which are only * and ?."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name, re.DOTALL) is not None


CHECK = Check("bucket policies", _ask, _buckets)
