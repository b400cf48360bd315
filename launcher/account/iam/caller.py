"""What the caller needs to create the job: CreateTrainingJob, AddTags if there are tags, and iam:PassRole on the job's role.

AWS would refuse the job only after the code has been uploaded. Keys of conditions that the request decides are part of the
question; a denial that depends on others is not reported. IAM's simulation does not evaluate conditions of service control
policies (SCPs), so their denial is a warning. Session policies are not simulated at all.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon SageMaker AI" and "... for AWS IAM".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.account.check import Check, Finding, Subject
from launcher.account.iam.permissions import ORGANIZATION, Context, simulate
from launcher.account.iam.role import ROLE, own_role
from launcher.account.quota.machines import alternatives
from launcher.errors import RefusedError, SpecPath
from launcher.spec.names import place_of_name

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


def _ask(subject: Subject) -> Iterator[Finding]:
    role = own_role(subject)
    principal = _principal(subject)
    if role is None or principal is None:
        return  # a role of another account is reported by `role`
    name = subject.draft.request["TrainingJobName"]
    path, _ = place_of_name(name, subject.draft.spec)
    job = f"arn:{role['partition']}:sagemaker:{subject.account.region}:{subject.own_account}:training-job/{name}"
    passed: Context = (("iam:PassedToService", "string", ("sagemaker.amazonaws.com",)),)
    wanted: list[tuple[SpecPath, str, str, Context]] = [
        (path, "sagemaker:CreateTrainingJob", job, _context(subject)),
        (ROLE, "iam:PassRole", str(subject.draft.get("RoleArn")), passed),
    ]
    if subject.draft.get("Tags"):
        wanted.append((("tags",), "sagemaker:AddTags", job, _context(subject)))
    for place, action, resource, context in wanted:
        verdict = simulate(subject, principal, ([action], [resource]), context)[action, resource]
        if verdict.is_denied:
            message = (
                f"your policies do not allow you ({principal}) {action} on {resource}; ask your administrator for it"
            )
            yield place, "caller-denied", message
        elif verdict.decision != "allowed" and verdict.missing == (ORGANIZATION,):
            message = (
                f"a service control policy of your organization denies you ({principal}) {action} on {resource}, unless one"
                " of its conditions exempts this job; ask the organization's administrator"
            )
            yield place, "caller-denied-by-organization", message


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
    found: dict[str, tuple[str, tuple[str, ...]]] = {"aws:RequestedRegion": ("string", (subject.account.region,))}
    for name, kind, member in _KEYS:
        value = subject.draft.get(member)
        if value not in (None, "", []):
            values = value if isinstance(value, list) else [str(value).lower() if kind == "boolean" else value]
            found[name] = (kind, tuple(map(str, values)))
    types = {each.instance_type for choice in alternatives(subject.draft) for each in choice}
    if types:
        found["sagemaker:InstanceTypes"] = ("stringList", tuple(sorted(types)))
    tags = {str(tag["Key"]): str(tag["Value"]) for tag in subject.draft.get("Tags") or ()}
    if tags:
        found["aws:TagKeys"] = ("stringList", tuple(tags))
    found |= {f"aws:RequestTag/{key}": ("string", (value,)) for key, value in tags.items()}
    return tuple((name, kind, values) for name, (kind, values) in found.items())


CHECK = Check("caller", _ask)
