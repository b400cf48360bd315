"""Whether the policies of the buckets shut the job's role out: an explicit Deny there goes before all that allows.

Three-valued like all that is said of permissions. A Deny counts where it surely holds: it names everybody, the role or its
account, the action and the resource, and asks for no circumstances. A condition, a principal that is left out (NotPrincipal) or
a variable in a resource makes it unknown, and unknown is silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.asking import listed
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.iam.encryption import first_keys
from launcher.preflight.iam.needs import Need, s3_needs
from launcher.preflight.iam.role import own_role

_NO_POLICY = ("NoSuchBucketPolicy", "NoSuchBucket")  # of the second `buckets` tells


def buckets_let_the_role_in(subject: Subject) -> Iterator[Found]:
    """Ask for each bucket's policy. Raises AwsError."""
    parts = own_role(subject)
    if parts is None:
        return
    by_bucket: dict[str, list[Need]] = {}
    for need in s3_needs(subject, parts["partition"]):
        if need.is_vital:
            by_bucket.setdefault(need.resource.split(":", 5)[-1].partition("/")[0], []).append(need)
    arn = str(subject.draft.get("RoleArn"))
    for bucket, wanted in by_bucket.items():
        try:
            policy = json.loads(subject.ask("s3", "get_bucket_policy", Bucket=bucket)["Policy"])
            yield from _denied(subject, bucket, policy, wanted, arn)
        except AwsError as error:
            if error.code not in _NO_POLICY:
                subject.could_not_ask(wanted[0].path, error)


def _denied(subject: Subject, bucket: str, policy: Mapping[str, Any], wanted: list[Need], role: str) -> Iterator[Found]:
    statements = _listed(policy.get("Statement"))
    told: dict[tuple[SpecPath, str, str], list[str]] = {}
    for need in wanted:
        for statement in statements:
            if _is_denied(subject, statement, need, role):
                name = statement.get("Sid") or f"number {statements.index(statement) + 1}"
                told.setdefault((need.path, need.told, str(name)), []).append(need.action)
                break
    for (path, what, name), actions in told.items():
        yield (
            path,
            "bucket-denies",
            f"the policy of the bucket {bucket!r} denies the role {listed(sorted(set(actions)))} on {what} (statement {name});"
            " take the role out of it, as by a condition on aws:PrincipalArn",
        )


def _is_denied(subject: Subject, statement: Mapping[str, Any], need: Need, role: str) -> bool:
    """Whether a Deny holds for what is there, or for all that will be: the key of a need may be made up. Raises AwsError."""
    if need.place is not None and need.action != "s3:ListBucket":
        arn = need.resource.partition("/")[0]
        keys = first_keys(subject, need.place)
        return any(surely_denies(statement, need.action, f"{arn}/{key}", role) for key in keys)
    if "/" in need.resource:
        whole = [
            each for each in _listed(statement.get("Resource")) if str(each).endswith("*") or each == need.resource
        ]
        statement = {**statement, "Resource": whole, "NotResource": []}
    return surely_denies(statement, need.action, need.resource, role)


def surely_denies(statement: Mapping[str, Any], action: str, resource: str, role: str) -> bool:
    """Whether a statement of a resource's policy denies the role (an ARN) the action, in all circumstances."""
    if statement.get("Effect") != "Deny" or "Condition" in statement or "NotPrincipal" in statement:
        return False
    principal = statement.get("Principal")
    named = _listed(principal.get("AWS")) if isinstance(principal, dict) else _listed(principal)
    account = role.split(":")[4]
    if not {"*", role, account, f"arn:{role.split(':')[1]}:iam::{account}:root"} & {str(each) for each in named}:
        return False
    actions = _listed(statement.get("Action")), _listed(statement.get("NotAction"))
    if not _fits(actions, action.lower(), fold=True):
        return False
    return _fits((_listed(statement.get("Resource")), _listed(statement.get("NotResource"))), resource, fold=False)


def _fits(patterns: tuple[list[Any], list[Any]], name: str, *, fold: bool) -> bool:
    """Whether a name is of those that a statement has, or not of those that it leaves out; not where a variable decides."""
    these, others = ([str(each).lower() if fold else str(each) for each in part] for part in patterns)
    if others:
        return not any("${" in each or _matches(each, name) for each in others)
    return any("${" not in each and _matches(each, name) for each in these)


def _matches(pattern: str, name: str) -> bool:
    """IAM's wildcards: * and ?, and nothing else."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name, re.DOTALL) is not None


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


CHECK = Check(
    "bucket policies",
    buckets_let_the_role_in,
    {"bucket-denies": ("error", "A bucket's own policy denies the role what the job cannot do without.")},
)
