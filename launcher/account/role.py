"""The job's role: whether it exists under this ARN and lets SageMaker assume it; and whether the caller may pass it to a job.

The caller needs CreateTrainingJob, AddTags if there are tags, and iam:PassRole on the job's role; AWS would refuse the job only
after the code has been uploaded. Keys of conditions that the request decides are part of the question. IAM does not evaluate
conditions of service control policies (SCPs), so their denial is a warning. Session policies are not simulated at all.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon SageMaker AI" and "... for AWS IAM".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from launcher.account.check import Subject, joined
from launcher.account.needs import ARN, ROLE, described_role, own_role
from launcher.account.permissions import ORGANIZATION, Context, simulate
from launcher.account.policies import Statement, as_list, fits, principals, statements
from launcher.account.quota import alternatives
from launcher.errors import Problem, RefusedError, SpecPath, nearest
from launcher.spec.names import place_of_name

_SERVICE = "sagemaker.amazonaws.com"
_EQUAL = ("StringEquals", "StringLike", "StringEqualsIgnoreCase", "ArnEquals", "ArnLike")
_ASSUMED_ROLE = re.compile(r"arn:[^:]+:sts::\d{12}:assumed-role/([^/]+)/")
# Keys of conditions on CreateTrainingJob: name, type, and the request's member that decides them.
_KEYS = (
    ("sagemaker:NetworkIsolation", "boolean", "EnableNetworkIsolation"),
    ("sagemaker:InterContainerTrafficEncryption", "boolean", "EnableInterContainerTrafficEncryption"),
    ("sagemaker:MaxRuntimeInSeconds", "numeric", "StoppingCondition.MaxRuntimeInSeconds"),
    ("sagemaker:VolumeKmsKey", "string", "ResourceConfig.VolumeKmsKeyId"),
    ("sagemaker:OutputKmsKey", "string", "OutputDataConfig.KmsKeyId"),
    ("sagemaker:VpcSubnets", "stringList", "VpcConfig.Subnets"),
    ("sagemaker:VpcSecurityGroupIds", "stringList", "VpcConfig.SecurityGroupIds"),
)


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
        trusted = joined(str(name) for names in named for name in as_list(names)) or "no one"
        remedy = f"allow sts:AssumeRole for the service {_SERVICE} in its trust policy"
        yield Problem(ROLE, f"{name!r} lets {trusted} assume it, not SageMaker; {remedy}", "role-trust")
    elif not may_assume(trust, account):
        message = (
            f"{name!r} lets SageMaker assume it only for another account, by a condition on aws:SourceAccount or aws:SourceArn in"
            f" its trust policy; write {account} there"
        )
        yield Problem(ROLE, message, "role-trust")


def may_assume(trust: list[Statement], account: str = "") -> bool:
    """Return whether a trust policy may let SageMaker assume the role, or for this account only if one is given.

    Conditions that cannot be judged here count as met.
    """
    allowed = False
    for statement in trust:
        applies = "NotAction" in statement or fits(statement, "Action", "sts:AssumeRole")
        if not applies or not _names_sagemaker(statement):
            continue
        if statement.get("Effect") == "Allow":
            allowed = allowed or not account or not _is_for_others(statement, account)
        elif "Condition" not in statement and "NotAction" not in statement and "NotPrincipal" not in statement:
            return False
    return allowed


def _is_for_others(statement: Statement, account: str) -> bool:
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


def _names_sagemaker(statement: Statement) -> bool:
    if not isinstance(statement.get("Principal"), dict):
        return True  # "*", or NotPrincipal
    services = [service.partition(".")[0] for service in principals(statement, "Service")]
    return "*" in principals(statement) or "sagemaker" in services or "*" in services


def caller(subject: Subject) -> Iterator[Problem]:
    """Are you allowed to create the job, to tag it, and to pass it its role?"""
    role = own_role(subject)
    principal = _principal(subject)
    if role is None or principal is None:
        return  # a role of another account is reported by `role`
    name = subject.draft.request["TrainingJobName"]
    path, _ = place_of_name(name, subject.draft.spec)
    job = f"arn:{role['partition']}:sagemaker:{subject.account.region}:{subject.own_account}:training-job/{name}"
    passed: Context = (("iam:PassedToService", "string", ("sagemaker.amazonaws.com",)),)
    creates: tuple[SpecPath, str, str, Context] = (path, "sagemaker:CreateTrainingJob", job, _context(subject))
    if (queue := subject.draft.spec.queue) is not None:  # Batch creates the training job, by its service-linked role
        arn = f"arn:{role['partition']}:batch:{subject.account.region}:{subject.own_account}:job-queue/{queue.name}"
        arn = str(queue.name) if str(queue.name).startswith("arn:") else arn
        creates = (("queue",), "batch:SubmitServiceJob", arn, ())
    wanted: list[tuple[SpecPath, str, str, Context]] = [
        creates,
        (ROLE, "iam:PassRole", str(subject.draft.get("RoleArn")), passed),
    ]
    if subject.draft.get("Tags") and queue is None:
        wanted.append((("tags",), "sagemaker:AddTags", job, _context(subject)))
    for place, action, resource, context in wanted:
        verdict = simulate(subject, principal, [action], [resource], context)[action, resource]
        if verdict.is_denied:
            message = (
                f"your policies do not allow you ({principal}) {action} on {resource}; ask your administrator for it"
            )
            yield Problem(place, message, "caller-denied")
        elif verdict.decision != "allowed" and verdict.missing == (ORGANIZATION,):
            message = (
                f"a service control policy of your organization denies you ({principal}) {action} on {resource}, unless one"
                " of its conditions exempts this job; ask the organization's administrator"
            )
            yield Problem(place, message, "caller-denied-by-organization")


def _principal(subject: Subject) -> str | None:
    """Return the ARN of the calling user or role; None for others, whose policies IAM does not simulate. Raises AwsError."""
    arn = str(subject.ask("sts", "get_caller_identity")["Arn"])
    if assumed := _ASSUMED_ROLE.match(arn):
        return str(subject.ask("iam", "get_role", RoleName=assumed[1])["Role"]["Arn"])  # it may have a path
    if ":user/" in arn:
        return arn
    if not arn.endswith(":root"):  # which may do everything in its account
        subject.could_not_ask((), RefusedError(f"IAM does not simulate the permissions of {arn}"))
    return None


def _context(subject: Subject) -> Context:
    """Return the keys of conditions that the request decides."""
    found: list[tuple[str, str, Any]] = [("aws:RequestedRegion", "string", [subject.account.region])]
    for name, kind, member in _KEYS:
        value = subject.draft.get(member)
        if value not in (None, "", []):
            text = str(value).lower() if kind == "boolean" else value
            found.append((name, kind, value if isinstance(value, list) else [text]))
    types = {each.instance_type for choice in alternatives(subject.draft) for each in choice}
    tags = {str(tag["Key"]): str(tag["Value"]) for tag in subject.draft.get("Tags") or ()}
    found += [("sagemaker:InstanceTypes", "stringList", sorted(types)), ("aws:TagKeys", "stringList", [*tags])]
    found += [(f"aws:RequestTag/{key}", "string", [value]) for key, value in tags.items()]
    return tuple((name, kind, tuple(map(str, values))) for name, kind, values in found if values)
