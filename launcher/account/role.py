"""The job's role: whether it exists under this ARN and lets SageMaker assume it; and whether the caller may pass it to a job.

The caller needs CreateTrainingJob, AddTags if there are tags, and iam:PassRole on the job's role; AWS would refuse the job only
after the code has been uploaded. What a condition of a policy decides, or a service control policy (SCP), is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from launcher.account.check import Subject
from launcher.account.needs import ARN, ROLE, Context, described_role, own_role
from launcher.account.permissions import Statement, as_list, simulate, statements
from launcher.aws.account import Account
from launcher.errors import Problem, RefusedError, SpecPath, first_names, nearest
from launcher.spec.names import place_of_name

_SERVICE = "sagemaker.amazonaws.com"
_PASSED: Context = (("iam:PassedToService", "string", (_SERVICE,)),)
_UNSURE = ("Condition", "NotPrincipal")  # in a Deny: it may not apply
_ASSUMED_ROLE = re.compile(r"arn:[^:]+:sts::\d{12}:assumed-role/([^/]+)/")


def role(subject: Subject) -> Iterator[Problem]:
    """Does the role exist, and may SageMaker assume it?"""
    arn = subject.draft.get("RoleArn") or ""
    parts = ARN.fullmatch(arn)
    if parts is None:
        return  # reported by the service model's pattern
    account, name, own = parts["account"], parts["name"], subject.own_account
    if account != own:
        where = f"is in account {account}, but you are in {own}, and roles cannot cross accounts"
        yield Problem(ROLE, f"{where}; name one in {own}", "role-other-account")
        return
    known = described_role(subject, name)
    if known is None:
        roles = subject.try_to_ask("iam", "list_roles", MaxItems=1000).get("Roles", ())
        arns = {role["RoleName"]: role["Arn"] for role in roles}
        meant = nearest(name, arns)
        hint = f"; did you mean {arns[meant]!r}?" if meant else "; create it, or name another"
        yield Problem(ROLE, f"{name!r} does not exist in account {account}{hint}", "role-missing")
        return
    if known.get("Arn", arn) != arn:
        wrong = f"{arn!r} does not exist, since the role has another path; write {known['Arn']!r}"
        yield Problem(ROLE, wrong, "role-missing")
    trust = statements(known.get("AssumeRolePolicyDocument"))
    if not may_assume(trust):
        allowing = [each.get("Principal") for each in trust if each.get("Effect") == "Allow"]
        named = [names for each in allowing if isinstance(each, dict) for names in each.values()]
        trusted = first_names(str(name) for names in named for name in as_list(names)) or "no one"
        remedy = f"allow sts:AssumeRole for the service {_SERVICE} in its trust policy"
        yield Problem(ROLE, f"{name!r} lets {trusted} assume it, not SageMaker; {remedy}", "role-trust")


def may_assume(trust: list[Statement]) -> bool:
    """Return whether a trust policy may let SageMaker assume the role; a condition counts as met, but not that of a Deny."""
    about = [each for each in trust if _lets_assume(each)]
    denies = any(each.get("Effect") == "Deny" and each.keys().isdisjoint(_UNSURE) for each in about)
    return not denies and any(each.get("Effect") == "Allow" for each in about)


def roles_for_sagemaker(account: Account) -> list[str]:
    """Return the ARNs of the account's roles that SageMaker may assume, those named for it first. Raises RefusedError."""
    found = list[str]()
    for page in account.pages("iam", "list_roles"):
        named = ((each["Arn"], statements(each.get("AssumeRolePolicyDocument"))) for each in page["Roles"])
        found += [arn for arn, trust in named if may_assume(trust)]
    return sorted(found, key=lambda arn: ("sagemaker" not in arn.lower(), arn))


def _lets_assume(statement: Statement) -> bool:
    """Return whether a statement is about assuming the role, and names SageMaker or everyone."""
    principal = statement.get("Principal", "*")
    named = [*as_list(principal.get("AWS")), *as_list(principal.get("Service"))] if isinstance(principal, dict) else "*"
    is_for_us = any(name == "*" or str(name).partition(".")[0] == "sagemaker" for name in named)
    actions = [str(each).lower() for each in as_list(statement.get("Action"))]
    return is_for_us and any(fnmatchcase("sts:assumerole", each) for each in actions)


def caller(subject: Subject) -> Iterator[Problem]:
    """Are you allowed to create the job, to tag it, and to pass it its role?"""
    role, principal = own_role(subject), _principal(subject)
    if role is None or principal is None:
        return  # a role of another account is reported by `role`
    name, queue = subject.draft.request["TrainingJobName"], subject.draft.spec.queue
    path, _ = place_of_name(name, subject.draft.spec)
    here = f"arn:{role['partition']}:%s:{subject.account.region}:{subject.own_account}:%s"
    job = here % ("sagemaker", f"training-job/{name}")
    wanted: list[tuple[SpecPath, str, str]] = [(path, "sagemaker:CreateTrainingJob", job)]
    if queue is not None:  # Batch creates the training job, by its service-linked role
        arn = str(queue.name) if str(queue.name).startswith("arn:") else here % ("batch", f"job-queue/{queue.name}")
        wanted = [(("queue",), "batch:SubmitServiceJob", arn)]
    elif subject.draft.get("Tags"):
        wanted.append((("tags",), "sagemaker:AddTags", job))
    for place, action, resource in (*wanted, (ROLE, "iam:PassRole", str(subject.draft.get("RoleArn")))):
        context = _PASSED if place == ROLE else ()
        if simulate(subject, principal, [action], resource, context)[action].is_denied:
            wrong = f"your policies do not allow you ({principal}) {action} on {resource}"
            yield Problem(place, f"{wrong}; ask your administrator for it", "caller-denied")


def _principal(subject: Subject) -> str | None:
    """Return the ARN of the calling user or role; None for others, whose policies IAM does not simulate. Raises AwsError."""
    arn = subject.caller["Arn"]
    if assumed := _ASSUMED_ROLE.match(arn):
        return str(subject.ask("iam", "get_role", RoleName=assumed[1])["Role"]["Arn"])  # it may have a path
    if ":user/" in arn:
        return arn
    if not arn.endswith(":root"):  # which may do everything in its account
        subject.could_not_ask((), RefusedError(f"IAM does not simulate the permissions of {arn}"))
    return None
