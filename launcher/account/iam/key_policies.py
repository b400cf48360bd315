"""Whether the policies of the KMS keys let the job's role use them, apart from the role's own policies.

IAM's policies count for a key only if the key's policy admits its account (`arn:aws:iam::ACCOUNT:root`); otherwise the key's
policy, or a grant, must name the role. IAM's simulation does not look at key policies. Source: KMS developer guide, "Default key
policy".
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from launcher.account.check import Check, Finding, Subject
from launcher.account.iam.needs import key_needs
from launcher.account.iam.permissions import is_granted, may_name
from launcher.account.iam.role import as_list, own_role
from launcher.errors import SpecPath


def _keys(subject: Subject) -> Iterator[tuple[SpecPath, tuple[str, str]]]:
    """Yield each key of the caller's account that the role needs, with the role's name."""
    role, known = own_role(subject), set()
    for need in key_needs(subject) if role else ():
        if role and need.resource not in known and need.resource.split(":")[4] == role["account"]:
            known.add(need.resource)
            yield need.path, (need.resource, role["name"])


def _ask(subject: Subject, path: SpecPath, use: tuple[str, str]) -> Iterator[Finding]:
    arn, role = use
    account = arn.split(":")[4]
    policy = json.loads(subject.ask("kms", "get_key_policy", KeyId=arn, PolicyName="default")["Policy"])
    if may_name(policy, role) or any(_admits(each, account) for each in as_list(policy.get("Statement"))):
        return
    if not is_granted(subject, arn, role):
        message = (
            f"the policy of the KMS key {arn} names neither the role {role!r} nor the account's root, so the role cannot use"
            " it; allow the role there, or name another key"
        )
        yield path, "key-policy-closed", message


def _admits(statement: dict[str, object], account: str) -> bool:
    """Return whether a statement lets the policies of the account decide."""
    principal = statement.get("Principal")
    named = as_list(principal.get("AWS")) if isinstance(principal, dict) else as_list(principal)
    return statement.get("Effect") == "Allow" and any(
        each == account or str(each).endswith(f":iam::{account}:root") for each in named
    )


CHECK = Check("key policies", _ask, _keys)
