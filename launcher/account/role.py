"""The job's role: whether it exists, SageMaker may assume it, and it may do what the job needs; and what the caller may do.

IAM simulates what a role may do. It knows neither the policies of buckets, keys and repositories, which can allow what the role's
own policies do not, nor the context that conditions depend on. So a refusal counts only if no condition is open (IAM lists the
context keys it lacked) and the resource's own policy, if there is one, does not name the role. Everything else is not reported.

The caller needs CreateTrainingJob, AddTags if there are tags, and iam:PassRole on the job's role; AWS would refuse the job only
after the code has been uploaded. What a condition of a policy decides, or a service control policy (SCP), is not reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from launcher.account.check import Subject
from launcher.account.needs import ARN, ROLE, Context, Need, described_role, needs, own_role
from launcher.aws.session import Account, AwsError
from launcher.aws.threads import concurrently
from launcher.errors import Problem, RefusedError, SpecPath, first_names, nearest
from launcher.spec.names import place_of_name

_TAG = "s3:ExistingObjectTag/"
Statement = Mapping[str, Any]
_SERVICE = "sagemaker.amazonaws.com"
_PASSED: Context = (("iam:PassedToService", "string", (_SERVICE,)),)
_UNSURE = ("Condition", "NotPrincipal")  # in a Deny: it may not apply
_ASSUMED_ROLE = re.compile(r"arn:[^:]+:sts::\d{12}:assumed-role/([^/]+)/")


class Verdict(NamedTuple):
    """IAM's decision on one action on one resource."""

    decision: str  # allowed, implicitDeny or explicitDeny
    missing: tuple[str, ...] = ()  # context keys of conditions that are unknown

    @property
    def is_denied(self) -> bool:
        return self.decision != "allowed" and not self.missing


_UNKNOWN = Verdict("implicitDeny", ("?",))


def permissions(subject: Subject) -> Iterator[Problem]:
    """Do the role's policies allow what the job needs?"""
    parts = own_role(subject)
    if parts is None or described_role(subject, parts["name"]) is None:
        return  # reported by `role`
    role, wanted = parts["name"], list(dict.fromkeys(needs(subject)))
    verdicts = _simulated(subject, wanted)

    def look(_: SpecPath, need: Need) -> list[Need]:
        return [need] if _is_denied(subject, role, need, verdicts[need]) else []

    suspects = [(need.path, need) for need in wanted if verdicts[need].decision != "allowed"]
    denied: dict[tuple[SpecPath, str, str], list[str]] = {}
    for need in subject.each(suspects, look):
        code = "role-denied" if need.is_vital else "role-lacks"
        denied.setdefault((need.path, code, need.shown), []).append(need.action)
    for (path, code, resource), actions in denied.items():
        missing = first_names(sorted(actions), 5)
        message = f"the role {role!r} is not allowed {missing} on {resource}; allow it in the role's policies"
        yield Problem(path, message, code)


def _simulated(subject: Subject, wanted: Sequence[Need]) -> dict[Need, Verdict]:
    """Return IAM's verdict on each need; actions on the same resource share a question. Raises AwsError."""
    role, together = str(subject.draft.get("RoleArn")), dict[tuple[str, Context], list[str]]()
    for need in wanted:
        together.setdefault((need.resource, need.context), []).append(need.action)
    found = dict(concurrently(lambda about: simulate(subject, role, together[about], *about), list(together)))
    return {need: found[need.resource, need.context].result()[need.action] for need in wanted}


def _is_denied(subject: Subject, role: str, need: Need, verdict: Verdict) -> bool:
    """Return whether the need is still denied with the tags of the object, and the resource's own policy. Raises AwsError."""
    # AmazonSageMakerFullAccess lets the role read what has a tag. An object that does not exist is not reported.
    if verdict.missing and all(name.startswith(_TAG) for name in verdict.missing):
        bucket, _, key = need.resource.split(":", 5)[-1].partition("/")
        answer = subject.ask("s3", "get_object_tagging", Bucket=bucket, Key=key)
        tags = {tag["Key"]: tag["Value"] for tag in answer.get("TagSet", ())}
        context = tuple((name, "string", (tags.get(name.removeprefix(_TAG), ""),)) for name in verdict.missing)
        arn = str(subject.draft.get("RoleArn"))
        verdict = simulate(subject, arn, [need.action], need.resource, context)[need.action]
    if not verdict.is_denied:
        return False
    return verdict.decision == "explicitDeny" or not _may_be_granted(subject, role, need)


def _may_be_granted(subject: Subject, role: str, need: Need) -> bool:
    """Return whether the resource's policy, or a grant of its key, may allow what the role's policies do not. Raises AwsError."""
    service, _, _ = need.action.partition(":")
    name = need.resource.split(":", 5)[-1]
    try:
        if service in ("s3", "s3express"):
            bucket = name.removeprefix("bucket/" if service == "s3express" else "").partition("/")[0]
            policy = subject.ask("s3", "get_bucket_policy", Bucket=bucket)["Policy"]
        elif service == "kms":
            policy = subject.ask("kms", "get_key_policy", KeyId=need.resource, PolicyName="default")["Policy"]
            if is_granted(subject, need.resource, role):
                return True
        elif service == "ecr" and need.resource != "*":
            registry, repository = need.resource.split(":")[4], name.removeprefix("repository/")
            answer = subject.ask("ecr", "get_repository_policy", registryId=registry, repositoryName=repository)
            policy = answer["policyText"]
        else:
            return False
    except AwsError as error:
        if not error.is_missing:
            raise
        return "Policy" not in error.code  # other checks report a missing resource
    return may_name(statements(policy), role)


def is_granted(subject: Subject, key: str, role: str) -> bool:
    """Return whether a grant of a KMS key is for the role of this name. Raises AwsError."""
    grants = subject.ask("kms", "list_grants", KeyId=key).get("Grants", ())
    return any(is_role(str(grant.get("GranteePrincipal", "")), role) for grant in grants)


def statements(policy: str | Mapping[str, Any] | None) -> list[Statement]:
    """Return the statements of a policy, as JSON or parsed; none if there is no policy."""
    document = json.loads(policy) if isinstance(policy, str) else policy or {}
    return as_list(document.get("Statement"))


def as_list(value: Any) -> list[Any]:
    """Return a policy's value as a list: policies may write a single value without one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def may_name(known: Iterable[Statement], role: str) -> bool:
    """Return whether any statement of a resource's policy allows something to the role of this name, or to everyone."""
    allowing = (name for each in known if each.get("Effect") == "Allow" for name in principals(each))
    return any(name == "*" or is_role(name, role) for name in allowing)


def principals(statement: Statement) -> list[str]:
    """Return whom a statement of a resource's policy names, whatever their kind; `*` is everyone."""
    principal = statement.get("Principal", "*")
    named = principal.values() if isinstance(principal, dict) else [principal]
    return [str(name) for each in named for name in as_list(each)]


def is_role(principal: str, role: str) -> bool:
    """Return whether a principal is the role, one of its sessions, or an ID that may be its own; role IDs begin with AROA."""
    return role in principal.split("/") or principal.startswith("AROA")


def simulate(
    subject: Subject, principal: str, actions: Sequence[str], resource: str, context: Context = ()
) -> dict[str, Verdict]:
    """Return IAM's verdict on whether a role or user may do each action on a resource. Raises AwsError."""
    question: dict[str, Any] = {"ActionNames": list(actions), "ResourceArns": [resource]}
    if context:
        question["ContextEntries"] = [
            {"ContextKeyName": name, "ContextKeyValues": list(values), "ContextKeyType": kind}
            for name, kind, values in context
        ]
    answer = subject.ask("iam", "simulate_principal_policy", PolicySourceArn=principal, **question)
    found = {result["EvalActionName"].lower(): _verdict(result) for result in answer.get("EvaluationResults", ())}
    return {action: found.get(action.lower(), _UNKNOWN) for action in actions}


def _verdict(result: Mapping[str, Any]) -> Verdict:
    """Return the verdict of an EvaluationResult, which has a part for the resource unless that is "*"."""
    parts = [result, *result.get("ResourceSpecificResults", ())]
    missing = [name for part in parts for name in part.get("MissingContextValues", ())]
    if result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        missing.append("organization")  # IAM does not simulate the conditions of its policies (SCPs)
    return Verdict(result["EvalDecision"], tuple(dict.fromkeys(missing)))


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
