"""Whether the policies of the VPC's endpoints for S3 let the job's role through to its buckets.

An endpoint's policy is one more that must allow each request. Conditions and variables in it are not judged: a statement with one
counts as allowing. Source: AWS PrivateLink guide, "Control access to VPC endpoints using endpoint policies".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.iam.bucket_policies import fits, surely_denies
from launcher.account.iam.needs import Need, s3_needs
from launcher.account.iam.role import as_list, own_role
from launcher.account.network.s3_route import s3_endpoints
from launcher.errors import SpecPath


def _ask(subject: Subject) -> Iterator[Finding]:
    parts = own_role(subject)
    if parts is None or not subject.draft.get("VpcConfig"):
        return
    role, needs = (
        str(subject.draft.get("RoleArn")),
        [each for each in s3_needs(subject, parts["partition"]) if each.is_vital],
    )
    for endpoint in s3_endpoints(subject):
        statements = as_list(json.loads(endpoint.get("PolicyDocument") or "{}").get("Statement"))
        closed: dict[SpecPath, list[Need]] = {}
        for need in needs if statements else ():
            if not _allows(statements, need, role):
                closed.setdefault(need.path, []).append(need)
        for path, denied in closed.items():
            actions, shown = sorted({each.action for each in denied}), denied[0].shown
            message = (
                f"the policy of the endpoint {endpoint['VpcEndpointId']}, through which the job reaches S3, does not allow"
                f" {joined(actions)} on {shown}; allow it there"
            )
            yield path, "endpoint-policy-closed", message


def _allows(statements: list[Mapping[str, Any]], need: Need, role: str) -> bool:
    if any(surely_denies(each, need.action, need.resource, role) for each in statements):
        return False
    return any(_may_allow(each, need, role) for each in statements)


def _may_allow(statement: Mapping[str, Any], need: Need, role: str) -> bool:
    """Return whether a statement allows the need, or may: what cannot be judged counts as allowing."""
    if statement.get("Effect") != "Allow":
        return False
    principal = statement.get("Principal", "*")
    named = [
        str(each) for each in (as_list(principal.get("AWS")) if isinstance(principal, dict) else as_list(principal))
    ]
    account = role.split(":")[4]
    if not any(each in ("*", role, account) or each.endswith((f":{account}:root", "*")) for each in named):
        return False
    actions = as_list(statement.get("Action")), as_list(statement.get("NotAction"))
    resources = as_list(statement.get("Resource")), as_list(statement.get("NotResource"))
    is_open = "${" in json.dumps(resources)
    return fits(actions, need.action.lower(), fold=True) and (is_open or fits(resources, need.resource, fold=False))


CHECK = Check("endpoint policies", _ask)
