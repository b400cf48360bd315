"""The permissions that the job's role needs: actions, and the resources they are for.

Source: developer guide, sagemaker-roles, "CreateTrainingJob API: Execution Role Permissions"; the S3 and KMS developer guides for
what a multipart upload with a key needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from launcher.account.check import Subject
from launcher.account.iam.keys import OUTPUT_KEY, default_keys, keys_of_data, named_keys, visible_arn
from launcher.account.iam.role import ROLE
from launcher.account.job import training_image
from launcher.account.s3.buckets import directory_buckets
from launcher.account.uses import as_folder, channels, code_path, place_of, prefixes_read
from launcher.errors import SpecPath
from launcher.s3.uri import S3Location
from sagemaker_channels import contract

_PULL = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability")
_CREATE_INTERFACES = ("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission")
_DELETE_INTERFACES = ("ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission")
_DESCRIBE_NETWORK = tuple(
    f"ec2:Describe{what}" for what in ("NetworkInterfaces", "Vpcs", "DhcpOptions", "Subnets", "SecurityGroups")
)
_LOG = ("logs:CreateLogStream", "logs:PutLogEvents")
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_CHECKPOINTS: SpecPath = ("checkpoint_config", "s3_uri")
_OUTPUTS = (
    ("output_data_config", "OutputDataConfig", True),
    ("debug_hook_config", "DebugHookConfig", False),
    ("tensor_board_output_config", "TensorBoardOutputConfig", False),
    ("profiler_config", "ProfilerConfig", False),
)  # key in the spec; member of the request; whether the job surely fails if it cannot write there


class Need(NamedTuple):
    """One action on one resource."""

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
    for bucket, use in directory_buckets(subject).items():
        arn = f"arn:{partition}:s3express:{region}:{account}:bucket/{bucket}"
        yield Need(use.path, "s3express:CreateSession", arn, f"the directory bucket {bucket}", True)
    yield from key_needs(subject)
    yield from _of_image(subject, partition, account)
    if subject.draft.get("VpcConfig"):
        interfaces = f"arn:{partition}:ec2:{region}:{account}:network-interface/*"
        for action in (*_CREATE_INTERFACES, *_DELETE_INTERFACES):
            yield Need(("vpc_config",), action, interfaces, "network interfaces", action in _CREATE_INTERFACES)
        for action in _DESCRIBE_NETWORK:
            yield Need(("vpc_config",), action, "*", "the network", False)
    group = f"arn:{partition}:logs:{region}:{account}:log-group:{_LOG_GROUP}"
    name = subject.draft.request["TrainingJobName"]
    for action in _LOG:
        yield Need(ROLE, action, f"{group}:log-stream:{name}/a", f"the log group {_LOG_GROUP}", False)


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


def _of_image(subject: Subject, partition: str, account: str) -> Iterator[Need]:
    image = training_image(subject)
    if image is None:
        return
    # For images of other accounts, AWS's included, their repository policy decides, which we cannot read.
    is_own = image.account == account
    yield Need(("image",), "ecr:GetAuthorizationToken", "*", "ECR", is_own)
    arn = f"arn:{partition}:ecr:{image.region}:{image.account}:repository/{image.repository}"
    for action in _PULL:
        yield Need(("image",), action, arn, f"the repository {image.repository}", is_own)
