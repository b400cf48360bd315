"""What the job's role needs: actions on resources, of which KMS keys are the least visible.

Source: developer guide, sagemaker-roles, "CreateTrainingJob API: Execution Role Permissions"; the S3 and KMS developer guides for
what a multipart upload with a key needs.

Reading an object needs kms:Decrypt on its key: a role without permission for it is denied even if it may do everything in S3. A key
that is disabled or scheduled for deletion makes the data it encrypted unreadable, whatever the role may do. What you may not see of
them is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from launcher.account.check import Subject
from launcher.account.creation import training_image
from launcher.account.storage import as_folder, channels, checkpoint_path, code_path, place_of, prefixes_read, uses
from launcher.account.stored_objects import first_keys
from launcher.aws.threads import concurrently
from launcher.errors import Problem, SpecPath
from launcher.s3.uri import S3Location
from sagemaker_channels import contract
from sagemaker_channels.start.references import ACTIONS, parts, references_in

ROLE: SpecPath = ("role_arn",)
REMOTE_DEBUG: SpecPath = ("remote_debug_config",)
ARN = re.compile(r"arn:(?P<partition>[^:]+):iam::(?P<account>\d{12}):role/(?:.*/)?(?P<name>[^/]+)", re.DOTALL)
_PULL = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability")
_INTERFACE, _PERMISSION = "ec2:%sNetworkInterface", "ec2:%sNetworkInterfacePermission"
_DESCRIBED = ("NetworkInterfaces", "Vpcs", "DhcpOptions", "Subnets", "SecurityGroups")
# Developer guide, train-remote-debugging.
_CHANNELS = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_OUTPUTS = (
    ("output_data_config", "OutputDataConfig", True),
    ("debug_hook_config", "DebugHookConfig", False),
    ("tensor_board_output_config", "TensorBoardOutputConfig", False),
    ("profiler_config", "ProfilerConfig", False),
)  # key in the spec; member of the request; whether the job surely fails if it cannot write there
MADE_UP = "object"  # the name of an object that stands for all that the job will write or read there
_SPECIAL = re.compile(r"arn:|.*(-s3alias|--x-s3)$")  # access points and directory buckets
OUTPUT_KEY: SpecPath = ("output_data_config", "kms_key_id")
_KMS = ("aws:kms", "aws:kms:dsse")
_UNUSABLE = ("Disabled", "PendingDeletion", "PendingReplicaDeletion", "PendingImport", "Unavailable")  # states of keys


def own_role(subject: Subject) -> re.Match[str] | None:
    """Return partition, account and name of the job's role if it is in the caller's account. Raises AwsError."""
    parts = ARN.fullmatch(subject.draft.get("RoleArn") or "")
    return parts if parts and parts["account"] == subject.own_account else None


def described_role(subject: Subject, name: str) -> dict[str, Any] | None:
    """Return IAM's description; None if there is no such role. Raises AwsError."""
    return (subject.find("iam", "get_role", RoleName=name) or {}).get("Role")


Context = tuple[tuple[str, str, tuple[str, ...]], ...]  # keys of conditions: name, type and values


class Need(NamedTuple):
    """One action on one resource that the role needs."""

    path: SpecPath  # the place in the spec that needs it
    action: str
    resource: str  # its ARN, or "*"
    shown: str  # the resource in messages
    is_vital: bool  # whether the job surely fails without it
    context: Context = ()


def needs(subject: Subject) -> Iterator[Need]:
    region, account, partition = subject.account.region, subject.own_account, _partition(subject)
    yield from s3_needs(subject)
    for path, place, _ in uses(subject):
        if place.bucket.endswith(contract.DIRECTORY_BUCKET):
            arn = f"arn:{partition}:s3express:{region}:{account}:bucket/{place.bucket}"
            yield Need(path, "s3express:CreateSession", arn, f"the directory bucket {place.bucket}", True)
    yield from key_needs(subject)
    # Place, actions, resource, how it is shown, is_vital.
    rows: list[tuple[SpecPath, Iterable[str], str, str, bool]] = []
    if image := training_image(subject):
        # For images of other accounts, AWS's included, their repository policy decides, which we cannot read.
        is_own = image.account == account
        arn = f"arn:{partition}:ecr:{image.region}:{image.account}:repository/{image.repository}"
        rows.append((("image",), ("ecr:GetAuthorizationToken",), "*", "ECR", is_own))
        rows.append((("image",), _PULL, arn, f"the repository {image.repository}", is_own))
    named = ((path, each) for path, value in subject.draft.settings() for each in references_in([value]))
    for path, reference in named:
        service, name, _ = parts(reference)
        # The names of secrets get six characters of AWS's, which a simulation needs in its ARN.
        kind = f"secret:{name}-000000" if service == "secretsmanager" else f"parameter/{name.removeprefix('/')}"
        arn = name if name.startswith("arn:") else f"arn:{partition}:{service}:{region}:{account}:{kind}"
        rows.append((subject.draft.origin.place(path), (ACTIONS[service],), arn, reference, True))
    if subject.draft.get("VpcConfig"):
        path, arn = ("vpc_config",), f"arn:{partition}:ec2:{region}:{account}:network-interface/*"
        rows.append((path, (_INTERFACE % "Create", _PERMISSION % "Create"), arn, "network interfaces", True))
        rows.append((path, (_INTERFACE % "Delete", _PERMISSION % "Delete"), arn, "network interfaces", False))
        rows.append((path, [f"ec2:Describe{what}" for what in _DESCRIBED], "*", "the network", False))
    if subject.draft.get("RemoteDebugConfig.EnableRemoteDebug"):
        shown = "Systems Manager, by which `launch exec` enters the job"
        rows.append((REMOTE_DEBUG, [f"ssmmessages:{what}" for what in _CHANNELS], "*", shown, False))
    arn = f"arn:{partition}:logs:{region}:{account}:log-group:{_LOG_GROUP}:log-stream:{subject.draft.request['TrainingJobName']}/a"
    rows.append((ROLE, ("logs:CreateLogStream", "logs:PutLogEvents"), arn, f"the log group {_LOG_GROUP}", False))
    for path, actions, arn, shown, is_vital in rows:
        yield from (Need(path, action, arn, shown, is_vital) for action in actions)


def s3_needs(subject: Subject) -> Iterator[Need]:
    """Yield what the role needs in S3; access points and directory buckets have ARNs and actions of their own."""
    get, put, job = "s3:GetObject", "s3:PutObject", subject.draft.request["TrainingJobName"]
    folders = [*prefixes_read(subject)]
    rows: list[tuple[SpecPath, str, S3Location, str, bool]] = []  # place, action, object, how it is shown, is_vital
    for path, place in folders:
        found = first_keys(subject.try_to_ask, place)[:1]  # other checks report an empty prefix
        rows += [(path, get, S3Location(place.bucket, key), f"{place}*", True) for key in found]
    for entry, place in channels(subject, "ManifestFile", "AugmentedManifestFile"):
        rows.append((entry.path("s3_uri"), get, place, str(place), True))
    if code := place_of(subject.code_uri):
        archive = S3Location(code.bucket, code.key + contract.CODE_ARCHIVE)
        rows.append((code_path(subject), get, archive, str(archive), True))
    for path, place in checkpoint_path(subject):
        folders.append((path, place))
        rows += [(path, action, _in(place), f"{place}*", True) for action in (get, put)]
    for key, member, is_vital in _OUTPUTS:
        if output := place_of(subject.draft.get(f"{member}.S3OutputPath")):
            own = S3Location(output.bucket, as_folder(output.key) + job)
            rows.append(((key, "s3_output_path"), put, _in(own), str(output), is_vital))
    arn = f"arn:{_partition(subject)}:s3:::"
    for path, action, place, shown, is_vital in rows:
        if not _SPECIAL.match(place.bucket):
            yield Need(path, action, f"{arn}{place.bucket}/{place.key}", shown, is_vital)
    for path, place in folders:
        if not _SPECIAL.match(place.bucket):
            prefix: Context = (("s3:prefix", "string", (as_folder(place.key),)),)
            yield Need(path, "s3:ListBucket", arn + place.bucket, f"the bucket {place.bucket}", True, prefix)


def _in(place: S3Location) -> S3Location:
    return S3Location(place.bucket, as_folder(place.key) + MADE_UP)


def _partition(subject: Subject) -> str:
    return str(subject.draft.get("RoleArn")).split(":")[1]


def key_needs(subject: Subject) -> Iterator[Need]:
    """Yield what the role needs of KMS keys: those of the data, and those that the request names."""
    for path, arn in keys_of_data(subject):
        yield Need(path, "kms:Decrypt", arn, f"the data's key {arn}", True)
    for path, key in named_keys(subject):
        its = visible_arn(subject, key)  # without one, `keys` reports why
        if its and path == OUTPUT_KEY:
            yield Need(path, "kms:GenerateDataKey", its, its, True)
            yield Need(path, "kms:Decrypt", its, its, False)
        elif its:
            yield Need(path, "kms:CreateGrant", its, its, False)


def named_keys(subject: Subject) -> list[tuple[SpecPath, str]]:
    """Return the keys that the request names, each with its path in the spec."""
    named = (
        (OUTPUT_KEY, subject.draft.get("OutputDataConfig.KmsKeyId")),
        (("resource_config", "volume_kms_key_id"), subject.draft.get("ResourceConfig.VolumeKmsKeyId")),
    )
    return [(path, key) for path, key in named if key]


def keys(subject: Subject, path: SpecPath, key: str) -> Iterator[Problem]:
    """Does each KMS key that the spec names exist, and can it encrypt?"""
    here, elsewhere = subject.account.region, re.match(r"arn:[^:]*:kms:([^:]+):", key)
    if elsewhere and elsewhere[1] != here:
        message = f"is in {elsewhere[1]}, but the job runs in {here}; name a key in {here}"
        yield Problem(path, message, "key-region")
        return
    answer = subject.find("kms", "describe_key", KeyId=key)
    if answer is None:
        message = (
            f"this account has no key {key!r} in {here}; `aws kms list-aliases{subject.account.options}` lists its keys"
        )
        yield Problem(path, message, "key-missing")
        return
    if wrong := _unusable(subject, answer):
        yield Problem(path, f"{key!r} {wrong}", "key-disabled")


def _unusable(subject: Subject, answer: dict[str, Any]) -> str | None:
    """Return why the key in DescribeKey's answer cannot be used now, and what to do; None if it can."""
    known = answer["KeyMetadata"]
    if known.get("KeyState") not in _UNUSABLE:
        return None
    verb = "cancel-key-deletion" if "Deletion" in known["KeyState"] else "enable-key"
    return f"is {known['KeyState']}; run aws kms {verb} --key-id {known['KeyId']}{subject.account.options}, or name another"


def keys_of_data(subject: Subject) -> Iterator[tuple[SpecPath, str]]:
    """Yield the ARN of the key of one object below each prefix that is read, if KMS encrypted it."""
    for (path, _), outcome in concurrently(lambda read: _key_of_object(subject, read[1]), prefixes_read(subject)):
        if arn := outcome.result():
            yield path, arn


def _key_of_object(subject: Subject, place: S3Location) -> str | None:
    found = first_keys(subject.try_to_ask, place)
    head = subject.try_to_ask("s3", "head_object", Bucket=place.bucket, Key=found[0]) if found else {}
    return visible_arn(subject, head.get("SSEKMSKeyId")) if head.get("ServerSideEncryption") in _KMS else None


def visible_arn(subject: Subject, key: str | None) -> str | None:
    """Return the ARN of a key; None if there is no such key, or if you may not see it."""
    known = subject.try_to_ask("kms", "describe_key", KeyId=key) if key else {}
    arn: str | None = known.get("KeyMetadata", {}).get("Arn")
    return arn


def data_keys(subject: Subject, path: SpecPath, arn: str) -> Iterator[Problem]:
    """Can the KMS keys of the data decrypt now?"""
    if wrong := _unusable(subject, subject.ask("kms", "describe_key", KeyId=arn)):
        yield Problem(path, f"the KMS key of the data, {arn}, {wrong}", "data-key-disabled")
