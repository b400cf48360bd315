"""What the job's role has to be allowed: the actions, and the resources that they are for.

Source: developer guide, sagemaker-roles, "CreateTrainingJob API: Execution Role Permissions"; S3 and KMS developer guides for
what a multipart upload with a key needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from entrypoints import contract
from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.check import Subject
from launcher.preflight.iam.encryption import key_of_bucket, keys_of_data
from launcher.preflight.iam.keys import described_key, named_keys
from launcher.preflight.iam.role import ROLE
from launcher.preflight.image import ecr_image
from launcher.preflight.s3.directory_buckets import directory_buckets
from launcher.preflight.uses import channels, code_place, connectors, place_of
from launcher.s3.uri import Place

_PULL = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability")
_MAKE = ("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission")
_TIDY = ("ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission")
_SEE = tuple(
    f"ec2:Describe{what}" for what in ("NetworkInterfaces", "Vpcs", "DhcpOptions", "Subnets", "SecurityGroups")
)
_LOG = ("logs:CreateLogStream", "logs:PutLogEvents")
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_OUTPUT_KEY: SpecPath = ("output_data_config", "kms_key_id")
_SOME_KEY = "object"  # stands for the keys below a prefix


class Need(NamedTuple):
    """One action on one resource."""

    path: SpecPath  # what in the spec needs it
    action: str
    resource: str  # its ARN, or "*"
    told: str  # the resource as people write it
    is_vital: bool  # whether the job surely fails without
    place: Place | None = None  # in S3, of which a real key can be looked up where a made-up one is refused


def needs(subject: Subject, partition: str, account: str) -> Iterator[Need]:
    """Everything that the role needs; `partition` and `account` are its own."""
    region = subject.account.region
    yield from s3_needs(subject, partition)
    for bucket, use in directory_buckets(subject).items():
        arn = f"arn:{partition}:s3express:{region}:{account}:bucket/{bucket}"
        yield Need(use.path, "s3express:CreateSession", arn, f"the directory bucket {bucket}", True)
    yield from _of_keys(subject)
    yield from _of_image(subject, partition, account)
    if subject.draft.get("VpcConfig"):
        interfaces = f"arn:{partition}:ec2:{region}:{account}:network-interface/*"
        for action in (*_MAKE, *_TIDY):
            yield Need(("vpc_config",), action, interfaces, "network interfaces", action in _MAKE)
        for action in _SEE:
            yield Need(("vpc_config",), action, "*", "the network", False)
    stream = f"arn:{partition}:logs:{region}:{account}:log-group:{_LOG_GROUP}:log-stream:{subject.request['TrainingJobName']}/a"
    for action in _LOG:
        yield Need(ROLE, action, stream, f"the log group {_LOG_GROUP}", False)


def prefixes_read(subject: Subject) -> list[tuple[SpecPath, Place]]:
    """The prefixes that are read, by SageMaker or by the script."""
    reads: list[tuple[SpecPath, Place]] = [
        (entry.path("s3_uri"), place) for entry, place in channels(subject, "S3Prefix")
    ]
    return reads + [(("channels", name, "s3_uri"), place) for name, place in connectors(subject)]


def s3_needs(subject: Subject, partition: str) -> Iterator[Need]:
    """What the role needs of S3."""
    for path, place in prefixes_read(subject):
        yield from _list_and_read(path, place, partition, looked_up=True)
    for kind in ("ManifestFile", "AugmentedManifestFile"):
        for entry, place in channels(subject, kind):
            yield from _on_object("s3:GetObject", entry.path("s3_uri"), place, partition)
    code = place_of(subject.plan.code_uri or "")
    if code is not None:
        archive = Place(code.bucket, code.key + contract.CODE_ARCHIVE)
        yield from _on_object("s3:GetObject", code_place(subject), archive, partition)
    checkpoints = place_of(subject.draft.get("CheckpointConfig.S3Uri") or "")
    if checkpoints is not None:
        yield from _list_and_read(("checkpoint_config", "s3_uri"), checkpoints, partition, looked_up=False)
        for need in _on_object("s3:PutObject", ("checkpoint_config", "s3_uri"), _below(checkpoints), partition):
            yield need._replace(told=f"{checkpoints}*")
    for key, member, is_vital in (
        ("output_data_config", "OutputDataConfig", True),
        ("debug_hook_config", "DebugHookConfig", False),
        ("tensor_board_output_config", "TensorBoardOutputConfig", False),
        ("profiler_config", "ProfilerConfig", False),
    ):
        output = place_of(subject.draft.get(f"{member}.S3OutputPath") or "")
        if output is not None:
            below = _below(Place(output.bucket, _folder(output.key) + subject.request["TrainingJobName"]))
            for need in _on_object("s3:PutObject", (key, "s3_output_path"), below, partition):
                yield need._replace(told=str(output), is_vital=is_vital)


def _list_and_read(path: SpecPath, place: Place, partition: str, *, looked_up: bool) -> Iterator[Need]:
    for need in _on_object("s3:GetObject", path, _below(place), partition):
        yield need._replace(told=f"{place}*", place=place if looked_up else None)
        bucket = f"arn:{partition}:s3:::{place.bucket}"
        yield Need(path, "s3:ListBucket", bucket, f"the bucket {place.bucket}", True, place)


def _on_object(action: str, path: SpecPath, place: Place, partition: str) -> Iterator[Need]:
    """An action on one key of a bucket; access points and directory buckets have ARNs and actions of their own."""
    if not re.match(r"arn:|.*(-s3alias|--x-s3)$", place.bucket):
        yield Need(path, action, f"arn:{partition}:s3:::{place.bucket}/{place.key}", str(place), True)


def _below(place: Place) -> Place:
    """A key that stands for those that begin with a prefix: prefixes are mostly folders, with or without their '/'."""
    return Place(place.bucket, _folder(place.key) + _SOME_KEY)


def _folder(key: str) -> str:
    return key if not key or key.endswith("/") else f"{key}/"


def _of_keys(subject: Subject) -> Iterator[Need]:
    for path, arn in keys_of_data(subject, prefixes_read(subject)):
        yield Need(path, "kms:Decrypt", arn, f"the data's key {arn}", True)
    named = dict(named_keys(subject))
    for path, its in buckets_keys(subject, named):
        # A warning: the service model says that SageMaker names S3's own key where the request names none.
        yield Need(path, "kms:GenerateDataKey", its, f"the bucket's key {its}", False)
    for path, key in named.items():
        try:
            arn = described_key(subject, key)["Arn"]
        except AwsError:
            continue  # the check of the keys tells
        if path == _OUTPUT_KEY:
            yield Need(path, "kms:GenerateDataKey", arn, arn, True)
            yield Need(path, "kms:Decrypt", arn, arn, False)
        else:
            yield Need(path, "kms:CreateGrant", arn, arn, False)


def buckets_keys(subject: Subject, named: Mapping[SpecPath, str]) -> Iterator[tuple[SpecPath, str]]:
    """The keys with which buckets encrypt what the job writes and names no key for; `named` are those of the spec."""
    output: SpecPath = ("output_data_config", "s3_output_path")
    written = [(output, subject.draft.get("OutputDataConfig.S3OutputPath"))] if _OUTPUT_KEY not in named else []
    written.append((("checkpoint_config", "s3_uri"), subject.draft.get("CheckpointConfig.S3Uri")))
    for path, uri in written:
        place = place_of(uri or "")
        its = key_of_bucket(subject, place.bucket) if place is not None else None
        if its is not None:
            yield path, its


def _of_image(subject: Subject, partition: str, account: str) -> Iterator[Need]:
    image = ecr_image(subject.draft.image)
    mode = subject.draft.get("AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode")
    if image is None or mode == "Vpc":
        return
    yield Need(("image",), "ecr:GetAuthorizationToken", "*", "ECR", image.account == account)
    arn = f"arn:{partition}:ecr:{image.region}:{image.account}:repository/{image.repository}"
    for action in _PULL:
        # Of other accounts' images, AWS's own among them, it is not known whose word counts.
        yield Need(("image",), action, arn, f"the repository {image.repository}", image.account == account)
