"""An account with data in S3 for the tests of the account checks, and helpers to check it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import aws_stand_in
import launcher
from launcher.account import CHECKS as ALL_CHECKS
from launcher.account.check import Check
from launcher.account.results import Report, check_account
from launcher.aws.session import Account
from launcher.errors import dotted
from patience import PATIENCE


def named(*names: str) -> tuple[Check, ...]:
    """The checks of these names."""
    return tuple(check for check in ALL_CHECKS if check.name in names)


# What these ask needs data in S3 only; all other checks need a whole account (account_world).
CHECKS = named("buckets", "prefixes", "contents", "archives", "manifests", "shares", "disk", "checkpoints")
BASE = """\
training_job_name: digits-1
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1
role_arn: arn:aws:iam::123456789012:role/training
region: us-east-1
resource_config: {instance_type: ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://out/}
"""
CHANNEL = "channels: {train: {s3_uri: s3://data/train/}}"


MANIFEST = "channels: {train: {s3_uri: s3://data/train.manifest, s3_data_type: ManifestFile}}"
AUGMENTED = (
    "channels: {train: {s3_uri: s3://data/train.jsonl, s3_data_type: AugmentedManifestFile, input_mode: Pipe, "
    "record_wrapper_type: RecordIO, attribute_names: [source-ref, class]}}"
)
TRAIN = "channels.train.s3_uri"


def checked(overlay: str, account: Account | None = None, **options: Any) -> Report:
    """Check BASE with the keys of `overlay` in place of its own."""
    replaced = {line.partition(":")[0] for line in overlay.splitlines()}
    kept = [line for line in BASE.splitlines() if line.partition(":")[0] not in replaced]
    plan = launcher.plan(launcher.parse_spec("\n".join([*kept, overlay, ""]), "job.yaml"))
    options = {"checks": CHECKS, "deadline": PATIENCE, **options}
    return check_account(plan, account or Account(region="us-east-1"), **options)


def with_data(aws: aws_stand_in.StandIn) -> Any:
    """Create four objects in a bucket, an empty one, one in another region and another account's; return S3's client."""
    s3, west = aws.client("s3"), aws.client("s3", "eu-west-1")
    for bucket in ("data", "out"):
        s3.create_bucket(Bucket=bucket)
    west.create_bucket(Bucket="west", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    put(west, "train/1.tar", bucket="west")
    aws.bucket("theirs", forbidden=True)
    s3.create_bucket(Bucket="shared")
    aws.bucket("shared", owner="210987654321")
    put(s3, "train/1.tar", "train/2.tar", "train/deep/3.tar", "train/deep/4.tar")
    aws.clear_calls()
    return s3


def put(client: Any, *keys: str, body: bytes = b"data", bucket: str = "data") -> None:
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=body)


def put_manifest(client: Any, *entries: Any) -> None:
    put(client, "train.manifest", body=json.dumps([{"prefix": "s3://data/train/"}, *entries]).encode())


def put_lines(client: Any, *lines: Any) -> None:
    put(client, "train.jsonl", body="".join(f"{json.dumps(line)}\n" for line in lines).encode())


def only(report: Report) -> tuple[str, str, str]:
    (problem,) = report.problems
    return problem.code, dotted(problem.path), problem.message


class Broken(NamedTuple):
    """A world in which one thing is wrong, the spec's keys that lead to it, and what the checks report of it."""

    make: Callable[
        [Any], Any
    ]  # gets S3's client or the account's World; the latter returns IDs for the overlay and `words`
    overlay: str
    found: list[tuple[str, str]]  # codes and paths
    words: tuple[str, ...]  # what the messages must contain
    answers: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # see Altered


class Altered(Account):
    """The account with some operations' responses changed to ones that the stand-in cannot send."""

    def __init__(self, answers: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
        super().__init__(region="us-east-1")
        self._answers = answers

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        answer = super().call(service, operation, **parameters)
        return self._answers.get(operation, dict)(answer)


def judge(aws: aws_stand_in.StandIn, report: Report, expected: list[tuple[str, str]], words: Iterable[str]) -> None:
    """The report has these problems, each at its place and with its remedy, and nothing was written."""
    assert found(report) == expected, [str(problem) for problem in report.problems]
    for problem in report.problems:
        assert len(re.sub(r"'[^']*'", "", problem.message)) < 320, "a message is short, apart from the keys it quotes"
        assert not problem.message.endswith(".")
        assert ";" in problem.message, "the remedy follows what is wrong"
        assert problem.location is not None
    text = " ".join(str(problem) for problem in report.problems)
    assert [word for word in words if word not in text] == [], text
    assert aws.writing_calls() == []
    assert [each["code"] for each in json.loads(json.dumps(report.as_data()))["problems"]] == [
        code for code, _ in expected
    ]


def found(report: Report) -> list[tuple[str, str]]:
    return [(problem.code, dotted(problem.path)) for problem in report.problems]
