"""The policies of buckets, S3 endpoints and KMS keys: whether they let the job's role through, whatever its own policies allow.

A Deny counts only if it surely applies: it names everyone, the role or its account, the action and the resource, and has no
condition, except one on the network of the request. An Allow counts if it may apply. What another condition, a NotPrincipal or a
variable in a resource decides is unknown.

IAM's policies count for a key only if the key's policy admits its account (`arn:aws:iam::ACCOUNT:root`); otherwise the key's
policy, or a grant, must name the role (KMS developer guide, "Default key policy"). An endpoint's policy is one more that must allow
each request (AWS PrivateLink guide, "Control access to VPC endpoints using endpoint policies").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from launcher.account.check import Subject
from launcher.account.needs import MADE_UP, Need, key_needs, own_role, s3_needs
from launcher.account.role import Statement, as_list, is_granted, may_name, principals, statements
from launcher.account.vpc import s3_endpoints, vpc_id
from launcher.errors import Problem, SpecPath, first_names

_OF_NETWORKS = ("aws:sourcevpce", "aws:sourcevpc")  # keys of conditions, in lower case


def _fits(statement: Statement, member: str, name: str) -> bool:
    """Return whether a statement's Action or Resource matches a name, or its NotAction or NotResource does not.

    It does not if a variable decides. IAM's wildcards are only * and ?.
    """
    fold = str.lower if member == "Action" else str
    included, excluded = (
        [fold(str(each)).replace("[", "[[]") for each in as_list(statement.get(key))]
        for key in (member, f"Not{member}")
    )
    if excluded:
        return not any("${" in each or fnmatchcase(fold(name), each) for each in excluded)
    return any("${" not in each and fnmatchcase(fold(name), each) for each in included)


def _surely_names(statement: Statement, role: str) -> bool:
    """Return whether a statement names everyone, the role's account, or the role itself by its ARN."""
    _, partition, _, _, account, _ = role.split(":", 5)
    return not {"*", role, account, f"arn:{partition}:iam::{account}:root"}.isdisjoint(principals(statement))


def surely_denies(statement: Statement, action: str, resource: str, role: str) -> bool:
    """Return whether a statement of a resource's policy denies a role's ARN an action under all circumstances.

    A made-up key stands for others that the job will use, so of its resources only those that end with a wildcard count.
    """
    if statement.get("Effect") != "Deny" or "Condition" in statement or "NotPrincipal" in statement:
        return False
    if not _surely_names(statement, role) or not _fits(statement, "Action", action):
        return False
    if resource.endswith(f"/{MADE_UP}"):
        statement = {"Resource": [each for each in as_list(statement.get("Resource")) if str(each).endswith("*")]}
    return _fits(statement, "Resource", resource)


def _may_allow(statement: Statement, action: str, resource: str, role: str) -> bool:
    """Return whether a statement allows a role's ARN an action, or may: what cannot be judged counts as allowing."""
    is_named = may_name([statement], role.rpartition("/")[2]) or _surely_names(statement, role)
    is_open = "${" in json.dumps([statement.get("Resource"), statement.get("NotResource")])
    allows = statement.get("Effect") == "Allow" and is_named and _fits(statement, "Action", action)
    return allows and (is_open or _fits(statement, "Resource", resource))


def in_buckets(subject: Subject) -> Iterable[tuple[SpecPath, tuple[str, list[Need]]]]:
    """Return each bucket with what a role of the caller's account surely needs in it, at the first path that needs something."""
    found: dict[str, list[Need]] = {}
    for need in [each for each in s3_needs(subject) if each.is_vital] if own_role(subject) else ():
        found.setdefault(need.resource.split(":", 5)[-1].partition("/")[0], []).append(need)
    return [(wanted[0].path, (bucket, wanted)) for bucket, wanted in found.items()]


def bucket_policies(subject: Subject, path: SpecPath, needed: tuple[str, list[Need]]) -> Iterator[Problem]:
    """Do the bucket policies leave the job's role the access it needs?"""
    (bucket, wanted), role = needed, str(subject.draft.get("RoleArn"))
    policy = statements((subject.find("s3", "get_bucket_policy", Bucket=bucket) or {}).get("Policy"))
    for number, each in enumerate(policy, 1):
        name, networks = str(each.get("Sid") or f"number {number}"), _networks(each)
        always = {key: value for key, value in each.items() if key != "Condition"} if networks else each
        denied = _by_path(need for need in wanted if surely_denies(always, need.action, need.resource, role))
        if denied and networks and networks & _own_networks(subject):
            continue
        for place, needs in denied.items():
            code, but = "bucket-denies", ""
            remedy = "exempt the role, for example by a condition on aws:PrincipalArn"
            if networks:
                code, but = "bucket-denies-network", f" unless it comes from {first_names(sorted(networks))}"
                remedy = "set vpc_config to subnets that use it, or exempt the role"
            wrong = f"the policy of bucket {bucket!r} (statement {name}) denies the role {_shown(needs)}{but}"
            yield Problem(place, f"{wrong}; {remedy}", code)


def _by_path(denied: Iterable[Need]) -> dict[SpecPath, list[Need]]:
    found: dict[SpecPath, list[Need]] = {}
    for need in denied:
        found.setdefault(need.path, []).append(need)
    return found


def _shown(needs: Sequence[Need]) -> str:
    return f"{first_names(sorted({each.action for each in needs}))} on {needs[0].shown}"


def _networks(statement: Statement) -> set[str]:
    """Return the VPCs or endpoints that a Deny exempts, if nothing else decides whether it applies."""
    conditions = [
        (operator.removesuffix("IfExists"), key.lower(), {str(each) for each in as_list(values)})
        for operator, keys in (statement.get("Condition") or {}).items()
        for key, values in keys.items()
    ]
    if len(conditions) != 1:
        return set()
    operator, key, named = conditions[0]
    is_negated = operator in ("StringNotEquals", "StringNotLike")
    return named if is_negated and key in _OF_NETWORKS and {*"*?$"}.isdisjoint("".join(named)) else set()


def _own_networks(subject: Subject) -> set[str]:
    """Return the job's VPC and the endpoints through which it reaches S3. Raises AwsError."""
    vpc = vpc_id(subject) if subject.draft.get("VpcConfig") else None
    return {vpc, *(str(each["VpcEndpointId"]) for each in s3_endpoints(subject))} if vpc else set()


def endpoint_policies(subject: Subject) -> Iterator[Problem]:
    """Do the policies of the S3 endpoints let the job's role through to its buckets?"""
    role, needs = str(subject.draft.get("RoleArn")), [each for _, (_, wanted) in in_buckets(subject) for each in wanted]
    for endpoint in s3_endpoints(subject) if needs and subject.draft.get("VpcConfig") else ():
        known = statements(endpoint.get("PolicyDocument"))

        def is_closed(need: Need, known: Sequence[Statement] = known) -> bool:
            asked = need.action, need.resource, role
            return not any(_may_allow(each, *asked) for each in known) or any(
                surely_denies(each, *asked) for each in known
            )

        for path, denied in _by_path(filter(is_closed, needs if known else ())).items():
            message = (
                f"the policy of the endpoint {endpoint['VpcEndpointId']}, through which the job reaches S3, does not allow"
                f" {_shown(denied)}; allow it there"
            )
            yield Problem(path, message, "endpoint-policy-closed")


def own_keys(subject: Subject) -> Iterable[tuple[SpecPath, tuple[str, str]]]:
    """Return each key of the caller's account that the role needs, with the role's name, at the first path that needs it."""
    role, found = own_role(subject), dict[tuple[str, str], SpecPath]()
    for need in key_needs(subject) if role else ():
        if role and need.resource.split(":")[4] == role["account"]:
            found.setdefault((need.resource, role["name"]), need.path)
    return [(path, use) for use, path in found.items()]


def key_policies(subject: Subject, path: SpecPath, use: tuple[str, str]) -> Iterator[Problem]:
    """Do the policies of the KMS keys let the job's role use them?"""
    arn, role = use
    known = statements(subject.ask("kms", "get_key_policy", KeyId=arn, PolicyName="default")["Policy"])
    account = arn.split(":")[4]
    allowing = [name for each in known if each.get("Effect") == "Allow" for name in principals(each)]
    is_open = any(name == account or name.endswith(f":iam::{account}:root") for name in allowing)
    if not is_open and not may_name(known, role) and not is_granted(subject, arn, role):
        message = (
            f"the policy of the KMS key {arn} names neither the role {role!r} nor the account's root, so the role cannot use"
            " it; allow the role there, or name another key"
        )
        yield Problem(path, message, "key-policy-closed")
