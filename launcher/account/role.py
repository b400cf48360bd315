"""The job's role: whether it exists under this ARN, whether SageMaker may assume it, and what it needs for the job.

Source of the needs: developer guide, sagemaker-roles, "CreateTrainingJob API: Execution Role Permissions"; the S3 and KMS developer
guides for what a multipart upload with a key needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from launcher.account.check import Subject, joined
from launcher.account.job import training_image
from launcher.account.keys import OUTPUT_KEY, default_keys, keys_of_data, named_keys, visible_arn
from launcher.account.places import as_folder, channels, code_path, place_of, prefixes_read, uses
from launcher.account.statements import Statement, as_list, fits, principals, statements
from launcher.errors import Problem, SpecPath, nearest
from launcher.s3.uri import S3Location
from sagemaker_channels import contract

ROLE: SpecPath = ("role_arn",)
_ARN = re.compile(r"arn:(?P<partition>[^:]+):iam::(?P<account>\d{12}):role/(?:.*/)?(?P<name>[^/]+)", re.DOTALL)
_SERVICE = "sagemaker.amazonaws.com"
_EQUAL = ("StringEquals", "StringLike", "StringEqualsIgnoreCase", "ArnEquals", "ArnLike")
_PULL = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability")
_CREATE_INTERFACES = ("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission")
_DELETE_INTERFACES = ("ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission")
_DESCRIBE_NETWORK = tuple(
    f"ec2:Describe{what}" for what in ("NetworkInterfaces", "Vpcs", "DhcpOptions", "Subnets", "SecurityGroups")
)
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_CHECKPOINTS: SpecPath = ("checkpoint_config", "s3_uri")
_OUTPUTS = (
    ("output_data_config", "OutputDataConfig", True),
    ("debug_hook_config", "DebugHookConfig", False),
    ("tensor_board_output_config", "TensorBoardOutputConfig", False),
    ("profiler_config", "ProfilerConfig", False),
)  # key in the spec; member of the request; whether the job surely fails if it cannot write there


def own_role(subject: Subject) -> re.Match[str] | None:
    """Return partition, account and name of the job's role if it is in the caller's account. Raises AwsError."""
    parts = _ARN.fullmatch(subject.draft.get("RoleArn") or "")
    return parts if parts and parts["account"] == subject.own_account else None


def described_role(subject: Subject, name: str) -> dict[str, Any] | None:
    """Return IAM's description; None if there is no such role. Raises AwsError."""
    return (subject.find("iam", "get_role", RoleName=name) or {}).get("Role")


def role(subject: Subject) -> Iterator[Problem]:
    """Does the role exist, and may SageMaker assume it?"""
    arn = subject.draft.get("RoleArn") or ""
    parts = _ARN.fullmatch(arn)
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


class Need(NamedTuple):
    """One action on one resource that the role needs."""

    path: SpecPath  # the place in the spec that needs it
    action: str
    resource: str  # its ARN, or "*"
    shown: str  # the resource in messages
    is_vital: bool  # whether the job surely fails without it
    place: S3Location | None = None  # in S3; a real key below it can be looked up if a made-up one is refused


def needs(subject: Subject, partition: str, account: str) -> Iterator[Need]:
    """Yield everything that the role needs; `partition` and `account` are those of the role."""
    region = subject.account.region
    yield from s3_needs(subject, partition)
    for path, place, _ in uses(subject):
        if place.bucket.endswith(contract.DIRECTORY_BUCKET):
            arn = f"arn:{partition}:s3express:{region}:{account}:bucket/{place.bucket}"
            yield Need(path, "s3express:CreateSession", arn, f"the directory bucket {place.bucket}", True)
    yield from key_needs(subject)
    if image := training_image(subject):
        # For images of other accounts, AWS's included, their repository policy decides, which we cannot read.
        is_own = image.account == account
        yield Need(("image",), "ecr:GetAuthorizationToken", "*", "ECR", is_own)
        arn = f"arn:{partition}:ecr:{image.region}:{image.account}:repository/{image.repository}"
        for action in _PULL:
            yield Need(("image",), action, arn, f"the repository {image.repository}", is_own)
    if subject.draft.get("VpcConfig"):
        interfaces = f"arn:{partition}:ec2:{region}:{account}:network-interface/*"
        for action in (*_CREATE_INTERFACES, *_DELETE_INTERFACES):
            yield Need(("vpc_config",), action, interfaces, "network interfaces", action in _CREATE_INTERFACES)
        for action in _DESCRIBE_NETWORK:
            yield Need(("vpc_config",), action, "*", "the network", False)
    stream = f"{_LOG_GROUP}:log-stream:{subject.draft.request['TrainingJobName']}/a"
    for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
        arn = f"arn:{partition}:logs:{region}:{account}:log-group:{stream}"
        yield Need(ROLE, action, arn, f"the log group {_LOG_GROUP}", False)


def s3_needs(subject: Subject, partition: str) -> Iterator[Need]:
    """Yield what the role needs in S3."""
    for path, place in prefixes_read(subject):
        yield from _list_and_read(path, place, partition, may_look_up=True)
    for entry, place in channels(subject, "ManifestFile", "AugmentedManifestFile"):
        yield from _on_object("s3:GetObject", entry.path("s3_uri"), place, partition)
    code = place_of(subject.code_uri)
    if code is not None:
        archive = S3Location(code.bucket, code.key + contract.CODE_ARCHIVE)
        yield from _on_object("s3:GetObject", code_path(subject), archive, partition)
    checkpoints = place_of(subject.draft.get("CheckpointConfig.S3Uri"))
    if checkpoints is not None:
        yield from _list_and_read(_CHECKPOINTS, checkpoints, partition, may_look_up=False)
        for need in _on_object("s3:PutObject", _CHECKPOINTS, _below(checkpoints), partition):
            yield need._replace(shown=f"{checkpoints}*")
    for key, member, is_vital in _OUTPUTS:
        output = place_of(subject.draft.get(f"{member}.S3OutputPath"))
        if output is not None:
            own = S3Location(output.bucket, as_folder(output.key) + subject.draft.request["TrainingJobName"])
            for need in _on_object("s3:PutObject", (key, "s3_output_path"), _below(own), partition):
                yield need._replace(shown=str(output), is_vital=is_vital)


def _list_and_read(path: SpecPath, place: S3Location, partition: str, *, may_look_up: bool) -> Iterator[Need]:
    for need in _on_object("s3:GetObject", path, _below(place), partition):
        yield need._replace(shown=f"{place}*", place=place if may_look_up else None)
        bucket = f"arn:{partition}:s3:::{place.bucket}"
        yield Need(path, "s3:ListBucket", bucket, f"the bucket {place.bucket}", True, place)


def _on_object(action: str, path: SpecPath, place: S3Location, partition: str) -> Iterator[Need]:
    """Yield an action on one key of a bucket; access points and directory buckets have their own ARNs and actions."""
    if not re.match(r"arn:|.*(-s3alias|--x-s3)$", place.bucket):
        yield Need(path, action, f"arn:{partition}:s3:::{place.bucket}/{place.key}", str(place), True)


def _below(place: S3Location) -> S3Location:
    """Return a made-up key that stands for all keys with a prefix: most are folders, with or without the final '/'."""
    return S3Location(place.bucket, f"{as_folder(place.key)}object")


def key_needs(subject: Subject) -> Iterator[Need]:
    """Yield what the role needs of KMS keys: of the data, of the buckets written to, and those that the request names."""
    for path, arn in keys_of_data(subject):
        yield Need(path, "kms:Decrypt", arn, f"the data's key {arn}", True)
    for path, arn in default_keys(subject):
        # A warning only: by the service model SageMaker names S3's own key if the request names none.
        yield Need(path, "kms:GenerateDataKey", arn, f"the bucket's key {arn}", False)
    for path, key in named_keys(subject):
        its = visible_arn(subject, key)  # without one, `keys` reports why
        if its and path == OUTPUT_KEY:
            yield Need(path, "kms:GenerateDataKey", its, its, True)
            yield Need(path, "kms:Decrypt", its, its, False)
        elif its:
            yield Need(path, "kms:CreateGrant", its, its, False)
