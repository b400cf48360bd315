"""What preflight asks of S3: broken environments, each found, named and given its remedy; and no false alarm on a good one."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import aws_stand_in
import launcher
from launcher.aws.account import Account
from launcher.codes import explanation, ignorable
from launcher.errors import RefusedError, SpecError, dotted
from launcher.local.s3_server import serve
from launcher.preflight import buckets, checkpoints, compression, disk, listing, manifests, prefixes, shares
from launcher.preflight.report import Report
from launcher.preflight.runner import preflight

SUBJECTS = (buckets, prefixes, manifests, shares, compression, disk, checkpoints)
CHECKS = tuple(check for subject in SUBJECTS for check in subject.CHECKS)
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


def checked(overlay: str, **options: Any) -> Report:
    replaced = {line.partition(":")[0] for line in overlay.splitlines()}
    kept = [line for line in BASE.splitlines() if line.partition(":")[0] not in replaced]
    plan = launcher.plan(launcher.parse_spec("\n".join([*kept, overlay, ""]), "job.yaml"))
    options = {"checks": CHECKS, "deadline": 30.0, **options}
    return preflight(plan, Account(region="us-east-1"), **options)


@pytest.fixture(scope="module")
def scene(running_aws: aws_stand_in.StandIn) -> aws_stand_in.StandIn:
    """An account with buckets, made once: to reset all of AWS takes longer than to empty two buckets."""
    running_aws.reset()
    client = running_aws.client("s3")
    for bucket in ("data", "out"):
        client.create_bucket(Bucket=bucket)
    west = running_aws.client("s3", "eu-west-1")
    west.create_bucket(Bucket="west", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    west.put_object(Bucket="west", Key="train/1.tar", Body=b"data")
    running_aws.bucket("theirs", forbidden=True)
    return running_aws


@pytest.fixture
def aws(scene: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch) -> aws_stand_in.StandIn:
    """That account, found by the environment; no fault waits."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in scene.environ.items():
        monkeypatch.setenv(name, value)
    scene.clear_faults()
    return scene


@pytest.fixture
def s3(aws: aws_stand_in.StandIn) -> Any:
    """Four objects in one bucket, none in the other."""
    client = aws.client("s3")
    for bucket in ("data", "out"):
        found = client.list_objects_v2(Bucket=bucket).get("Contents", ())
        if keys := [{"Key": each["Key"]} for each in found]:
            client.delete_objects(Bucket=bucket, Delete={"Objects": keys})
    put(client, "train/1.tar", "train/2.tar", "train/deep/3.tar", "train/deep/4.tar")
    aws.clear_calls()
    return client


def put(client: Any, *keys: str, body: bytes = b"data", bucket: str = "data") -> None:
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=body)


def put_manifest(client: Any, *entries: Any) -> None:
    put(client, "train.manifest", body=json.dumps([{"prefix": "s3://data/train/"}, *entries]).encode())


def put_lines(client: Any, *lines: Any) -> None:
    put(client, "train.jsonl", body="".join(f"{json.dumps(line)}\n" for line in lines).encode())


MANIFEST = "channels: {train: {s3_uri: s3://data/train.manifest, s3_data_type: ManifestFile}}"
AUGMENTED = (
    "channels: {train: {s3_uri: s3://data/train.jsonl, s3_data_type: AugmentedManifestFile, input_mode: Pipe, "
    "record_wrapper_type: RecordIO, attribute_names: [source-ref, class]}}"
)
GOOD = """\
checkpoint_config: {s3_uri: s3://out/checkpoints}
debug_hook_config: {s3_output_path: s3://out/debug/}
tensor_board_output_config: {s3_output_path: s3://out/boards/}
channels:
  copied: s3://data/train/
  mounted: {s3_uri: s3://data/train/, input_mode: FastFile}
  streamed: {s3_uri: s3://data/train/, input_mode: Pipe}
  zipped: {s3_uri: s3://data/zipped/, input_mode: Pipe, compression_type: Gzip}
  shared: {s3_uri: s3://data/train/, s3_data_distribution_type: ShardedByS3Key}
  partial: s3://data/train/deep/
  beginning: s3://data/parts/part-
  object: s3://data/single/one.csv
  listed: {s3_uri: s3://data/train.manifest, s3_data_type: ManifestFile}
  described: {s3_uri: s3://data/train.jsonl, s3_data_type: AugmentedManifestFile, input_mode: Pipe, \
record_wrapper_type: RecordIO, attribute_names: [source-ref, class]}
  script: {source: S3Connector, s3_uri: s3://data/train/}
  lists: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /lists}
vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}
"""


def test_a_good_environment_has_no_problem_and_nothing_is_written(aws: aws_stand_in.StandIn, s3: Any) -> None:
    put(s3, "train/", body=b"")  # the console's folder
    put(s3, "parts/part-0", "parts/part-1", "parts/part-2", "single/one.csv", "train_old/1.tar")
    put(s3, "zipped/1.csv.gz", body=gzip.compress(b"1,2,3"))
    put_manifest(s3, "1.tar", "deep/3.tar")
    put_lines(
        s3, {"source-ref": "s3://data/train/1.tar", "class": 3}, {"source-ref": "s3://data/train/2.tar", "class": 0}
    )
    aws.clear_calls()
    report = checked(GOOD)
    assert [str(problem) for problem in report.problems] == []
    assert report.not_asked == []
    assert {outcome.check: outcome.status for outcome in report.outcomes} == dict.fromkeys(
        ("buckets", "prefixes", "manifests", "shares", "compression", "disk", "checkpoints"), "passed"
    )
    notes = {dotted(path): text for path, text in report.notes}
    assert notes["channels.copied.s3_uri"] == "4 objects, 16 bytes"
    assert notes["channels.listed.s3_uri"] == "2 objects in the manifest, 8 bytes"
    assert [dotted(path) for path, _ in report.notes[:3]] == [
        f"channels.{n}.s3_uri" for n in ("copied", "mounted", "streamed")
    ]
    assert aws.calls()
    assert aws.writing_calls() == []


def test_the_code_need_not_be_there_before_it_is_uploaded(aws: aws_stand_in.StandIn, s3: Any) -> None:
    code = "code: {entry_point: entrypoints/read_channels.py}\n"
    assert checked(code + CHANNEL).problems == []
    found = checked(code.replace("}", ", s3_uri: s3://gone/code}") + CHANNEL).problems
    assert [(each.code, dotted(each.path)) for each in found] == [("bucket-missing", "code.s3_uri")]


class Broken(NamedTuple):
    """An environment, what is wrong with it, and what the message must say of that."""

    name: str
    scene: Callable[[Any], object]
    overlay: str
    code: str
    path: str
    words: tuple[str, ...]


TRAIN = "channels.train.s3_uri"
BROKEN = (
    Broken(
        "input bucket misspelt",
        lambda s3: None,
        "channels: {train: s3://dota/train/}",
        "bucket-missing",
        TRAIN,
        ("'dota'", "did you mean data?"),
    ),
    Broken(
        "output bucket missing, named three times",
        lambda s3: None,
        f"output_data_config: {{s3_output_path: s3://results/}}\n"
        f"checkpoint_config: {{s3_uri: s3://results/checkpoints/}}\n"
        f"debug_hook_config: {{s3_output_path: s3://results/debug/}}\n{CHANNEL}",
        "bucket-missing",
        "output_data_config.s3_output_path",
        ("aws s3 mb s3://results", "also checkpoint_config.s3_uri, debug_hook_config.s3_output_path"),
    ),
    Broken(
        "connector's bucket missing",
        lambda s3: None,
        "channels: {train: {source: S3Connector, s3_uri: s3://datasets/train/}}",
        "bucket-missing",
        TRAIN,
        ("'datasets'",),
    ),
    Broken(
        "somebody else's bucket",
        lambda s3: None,
        "tensor_board_output_config: {s3_output_path: s3://theirs/boards/}",
        "bucket-forbidden",
        "tensor_board_output_config.s3_output_path",
        ("another account", "bucket policy"),
    ),
    Broken(
        "input in another region",
        lambda s3: None,
        "channels: {train: s3://west/train/}",
        "bucket-region",
        TRAIN,
        ("eu-west-1", "us-east-1", "copy the data"),
    ),
    Broken(
        "output in another region",
        lambda s3: None,
        "output_data_config: {s3_output_path: s3://west/out/}",
        "bucket-region",
        "output_data_config.s3_output_path",
        ("eu-west-1", "us-east-1"),
    ),
    Broken(
        "connector reads in another region",
        lambda s3: None,
        "channels: {train: {source: S3Connector, s3_uri: s3://west/train/}}",
        "bucket-region-connector",
        TRAIN,
        ("eu-west-1", "billed"),
    ),
    Broken(
        "prefix misspelt",
        lambda s3: None,
        "channels: {train: s3://data/trian/}",
        "prefix-empty",
        TRAIN,
        ("s3://data/trian/", "did you mean train/?"),
    ),
    Broken(
        "prefix of folders only",
        lambda s3: put(s3, "new/", "new/a/", body=b""),
        "channels: {train: s3://data/new/}",
        "prefix-only-folders",
        TRAIN,
        ("upload the data",),
    ),
    Broken(
        "connector's prefix empty",
        lambda s3: None,
        "channels: {train: {source: S3Connector, s3_uri: s3://data/nothing/}}",
        "connector-empty",
        TRAIN,
        ("no object begins with",),
    ),
    Broken(
        "sibling folder",
        lambda s3: put(s3, "train_old/1.tar"),
        "channels: {train: s3://data/train}",
        "prefix-siblings",
        TRAIN,
        ("also takes train_old/", "write s3://data/train/"),
    ),
    Broken(
        "sibling object",
        lambda s3: put(s3, "one.csv", "one.csv.bak"),
        "channels: {train: s3://data/one.csv}",
        "prefix-siblings",
        TRAIN,
        ("also takes one.csv.bak", "manifest"),
    ),
    Broken(
        "FastFile, empty folder name",
        lambda s3: put(s3, "train//5.tar"),
        "channels: {train: {s3_uri: s3://data/train/, input_mode: FastFile}}",
        "prefix-fast-file-keys",
        TRAIN,
        ("1 of the keys have an empty folder name", "'train//5.tar'", "rename"),
    ),
    Broken(
        "FastFile, object and folder at once",
        lambda s3: put(s3, "train/deep", "train/deep-1"),
        "channels: {train: {s3_uri: s3://data/train/, input_mode: FastFile}}",
        "prefix-fast-file-keys",
        TRAIN,
        ("objects and folders at once", "'train/deep'"),
    ),
    Broken(
        "FastFile, bytes in a folder marker",
        lambda s3: put(s3, "train/deep/"),
        "channels: {train: {s3_uri: s3://data/train/, input_mode: FastFile}}",
        "prefix-fast-file-keys",
        TRAIN,
        ("end with '/'", "'train/deep/'"),
    ),
    Broken(
        "File, a name too long",
        lambda s3: put(s3, f"train/{'n' * 300}/1.tar"),
        CHANNEL,
        "prefix-file-keys",
        TRAIN,
        ("more than 255 bytes", "Pipe"),
    ),
    Broken(
        "fewer objects than hosts",
        lambda s3: put(s3, "small/1.tar"),
        "channels: {train: {s3_uri: s3://data/small/, s3_data_distribution_type: ShardedByS3Key}}",
        "share-empty",
        "channels.train.s3_data_distribution_type",
        ("1 object for 2 hosts", "FullyReplicated"),
    ),
    Broken(
        "Gzip, but plain objects",
        lambda s3: None,
        "channels: {train: {s3_uri: s3://data/train/, input_mode: Pipe, compression_type: Gzip}}",
        "channel-not-gzip",
        "channels.train.compression_type",
        ("'train/1.tar' is not gzipped",),
    ),
    Broken(
        "manifest missing",
        lambda s3: put(s3, "trains.manifest"),
        MANIFEST,
        "manifest-missing",
        TRAIN,
        ("did you mean trains.manifest?",),
    ),
    Broken(
        "manifest without a prefix",
        lambda s3: put(s3, "train.manifest", body=b'["1.tar"]'),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ('{"prefix": "s3://',),
    ),
    Broken(
        "manifest of whole URIs",
        lambda s3: put_manifest(s3, "s3://data/train/1.tar"),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("whole URI", "one bucket"),
    ),
    Broken(
        "manifest that is no JSON",
        lambda s3: put(s3, "train.manifest", body=b"1.tar\n2.tar\n"),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("no JSON",),
    ),
    Broken(
        "manifest of nothing",
        lambda s3: put_manifest(s3),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("names no objects",),
    ),
    Broken(
        "manifest of objects that are not there",
        lambda s3: put_manifest(s3, "1.tar", "7.tar", "8.tar"),
        MANIFEST,
        "manifest-keys-missing",
        TRAIN,
        ("2 of the 3 objects", "s3://data/train/7.tar"),
    ),
    Broken(
        "manifest of fewer objects than hosts",
        lambda s3: put_manifest(s3, "1.tar"),
        MANIFEST.replace("}}", ", s3_data_distribution_type: ShardedByS3Key}}"),
        "share-empty",
        "channels.train.s3_data_distribution_type",
        ("1 object for 2 hosts",),
    ),
    Broken(
        "augmented manifest, cut JSON",
        lambda s3: put(s3, "train.jsonl", body=b'{"source-ref": "s3://data/train/1.tar"\n'),
        AUGMENTED,
        "manifest-form",
        TRAIN,
        ("line 1", "no JSON"),
    ),
    Broken(
        "augmented manifest, empty",
        lambda s3: put(s3, "train.jsonl", body=b""),
        AUGMENTED,
        "manifest-form",
        TRAIN,
        ("no lines",),
    ),
    Broken(
        "augmented manifest, attribute of another name",
        lambda s3: put_lines(s3, {"source-ref": "s3://data/train/1.tar", "klass": 1}),
        AUGMENTED,
        "manifest-attribute",
        "channels.train.attribute_names",
        ("'class'", "did you mean klass?"),
    ),
    Broken(
        "augmented manifest, attribute missing in a line",
        lambda s3: put_lines(
            s3, {"source-ref": "s3://data/train/1.tar", "class": 1}, {"source-ref": "s3://data/train/1.tar"}
        ),
        AUGMENTED,
        "manifest-attribute-gaps",
        "channels.train.attribute_names",
        ("1 of the manifest's first 2 lines", "line 2"),
    ),
    Broken(
        "augmented manifest, reference to nothing",
        lambda s3: put_lines(s3, {"source-ref": "s3://data/train/9.tar", "class": 1}),
        AUGMENTED,
        "manifest-keys-missing",
        TRAIN,
        ("s3://data/train/9.tar",),
    ),
    Broken(
        "augmented manifest, reference that is no URI",
        lambda s3: put_lines(s3, {"source-ref": "train/1.tar", "class": 1}),
        AUGMENTED,
        "manifest-form",
        TRAIN,
        ("no S3 URI",),
    ),
    Broken(
        "an older job's checkpoints",
        lambda s3: put(s3, "checkpoints/model.pt", "checkpoints/optimizer.pt", bucket="out"),
        f"checkpoint_config: {{s3_uri: s3://out/checkpoints}}\n{CHANNEL}",
        "checkpoints-exist",
        "checkpoint_config.s3_uri",
        ("2 objects", "the newest of 20", "/opt/ml/checkpoints", "s3://out/checkpoints/digits-1/"),
    ),
    Broken(
        "said by request:",
        lambda s3: None,
        "request: {OutputDataConfig: {S3OutputPath: 's3://results/'}}",
        "bucket-missing",
        "request.OutputDataConfig.S3OutputPath",
        ("'results'",),
    ),
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_environment_is_found(aws: aws_stand_in.StandIn, s3: Any, broken: Broken) -> None:
    broken.scene(s3)
    aws.clear_calls()
    report = checked(broken.overlay)
    assert [(each.code, dotted(each.path)) for each in report.problems] == [(broken.code, broken.path)]
    problem = report.problems[0]
    assert [word for word in broken.words if word not in problem.message] == []
    assert problem.location is not None
    assert ";" in problem.message, "what to do comes behind what is wrong"
    assert aws.writing_calls() == []
    assert json.loads(json.dumps(report.as_data()))["problems"][0]["code"] == broken.code


def test_each_code_can_be_ignored_errors_too(aws: aws_stand_in.StandIn, s3: Any) -> None:
    gone = "channels: {train: s3://dota/train/}"
    assert checked(gone, ignore=("bucket-missing",)).problems == []
    report = checked("ignore: [prefix-empty]\nchannels: {train: s3://data/trian/, other: s3://dota/}")
    assert [each.code for each in report.problems] == ["bucket-missing"]
    with pytest.raises(SpecError, match="did you mean bucket-missing"):
        checked(f"ignore: [bucket-mising]\n{CHANNEL}")


@pytest.fixture
def folder(aws: aws_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder served as S3, in which objects cost nothing to make, however many or large; EC2 is the stand-in."""
    for bucket in ("data", "out"):
        (tmp_path / "s3" / bucket).mkdir(parents=True)
    with serve(tmp_path / "s3", tmp_path / "overlay") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        yield tmp_path / "s3/data"


def make(file: Path, size: int = 4) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as sparse:
        sparse.truncate(size)


def only(report: Report) -> tuple[str, str, str]:
    (problem,) = report.problems
    return problem.code, dotted(problem.path), problem.message


def test_many_small_objects_are_to_be_joined_and_listing_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(11_000):
        make(folder / f"train/{number:05}")
    code, path, message = only(checked(CHANNEL))
    assert (code, path) == ("prefix-small-objects", TRAIN)
    assert "11,000 objects, 44.0 kB: 4 bytes each" in message
    assert "about 100 s by estimate, joined 15 s" in message  # 11,000 / 130 + 15
    monkeypatch.setattr(listing, "MAX_KEYS", 3_000)
    assert checked(CHANNEL).notes == [(("channels", "train", "s3_uri"), "at least 3,000 objects, 12.0 kB")]
    assert checked(CHANNEL, full=True).notes[0][1] == "11,000 objects, 44.0 kB; copied in about 100 s by estimate"
    monkeypatch.setattr(listing, "MAX_SECONDS", 0.0)
    assert checked(CHANNEL).notes[0][1] == "at least 1,000 objects, 4.0 kB"


def test_shares_of_uneven_size(folder: Path) -> None:
    for number, size in enumerate((300, 20, 300, 20, 300)):
        make(folder / f"train/{number}", size * 10**6)
    spread = CHANNEL.replace("}}", ", s3_data_distribution_type: ShardedByS3Key, input_mode: FastFile}}")
    code, path, message = only(checked(spread))
    assert (code, path) == ("share-uneven", "channels.train.s3_data_distribution_type")
    assert "900.0 MB, 1.9 times the mean" in message


@pytest.mark.parametrize(
    ("machine", "gigabytes", "code", "words"),
    [
        (
            "ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 50",
            60,
            "disk-too-small",
            ("60.0 GB", "53.7 GB", "at least 70"),
        ),
        ("ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 50", 50, "disk-nearly-full", ("little is left",)),
        ("ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 50", 40, "", ()),
        ("ml.g4dn.xlarge, instance_count: 1", 130, "disk-too-small", ("125.0 GB", "larger disks")),
        ("ml.g4dn.xlarge, instance_count: 1", 100, "", ()),
    ],
)
def test_what_is_copied_has_to_fit(
    folder: Path, machine: str, gigabytes: int, code: str, words: tuple[str, ...]
) -> None:
    make(folder / "train/1", gigabytes * 10**9)
    overlay = f"resource_config: {{instance_type: {machine}}}\n"
    report = checked(overlay + CHANNEL)
    assert [problem.code for problem in report.problems] == [code] * bool(code)
    assert [word for word in words if word not in report.problems[0].message] == []
    assert checked(overlay + CHANNEL.replace("}}", ", input_mode: FastFile}}")).problems == []


def test_each_host_needs_space_for_its_share_only_and_each_group_for_its_channels(folder: Path) -> None:
    for number in range(2):
        make(folder / f"train/{number}", 40 * 10**9)
    assert only(checked(CHANNEL))[0] == "disk-too-small"
    assert checked(CHANNEL.replace("}}", ", s3_data_distribution_type: ShardedByS3Key}}")).problems == []
    groups = (
        "resource_config: {instance_groups: [{instance_group_name: a, instance_type: ml.g5.48xlarge, instance_count: 1}, "
        "{instance_group_name: b, instance_type: ml.m5.xlarge, instance_count: 1}], volume_size_in_gb: 50}\n"
    )
    assert checked(groups + CHANNEL.replace("}}", ", instance_group_names: [a]}}")).problems == []
    assert only(checked(groups + CHANNEL.replace("}}", ", instance_group_names: [b]}}")))[0] == "disk-too-small"


def test_of_many_keys_in_a_manifest_some_are_looked_at(aws: aws_stand_in.StandIn, s3: Any) -> None:
    put_manifest(s3, "1.tar", *(f"{number}.tar" for number in range(100, 400)))
    aws.clear_calls()
    message = only(checked(MANIFEST))[2]
    assert "99 of the 100 looked at (of 301) objects" in message
    assert len(aws.calls("s3:HeadObject")) == 101
    assert "300 of the 301 objects" in only(checked(MANIFEST, full=True))[2]


def test_what_is_denied_to_the_caller_is_not_asked_and_blocks_nothing(aws: aws_stand_in.StandIn, s3: Any) -> None:
    aws.deny("s3:HeadBucket", "s3:ListObjectsV2", containing="data")
    report = checked(f"checkpoint_config: {{s3_uri: s3://out/checkpoints}}\n{CHANNEL}")
    assert report.problems == []
    said = {outcome.check: outcome.status for outcome in report.outcomes}
    assert said == {
        "buckets": "not-asked",
        "prefixes": "not-asked",
        "manifests": "not-needed",
        "shares": "not-needed",
        "compression": "not-needed",
        "disk": "not-asked",
        "checkpoints": "passed",
    }
    assert all("you may not ask: s3:" in why and "channels.train.s3_uri" in why for _, why in report.not_asked)
    assert report.as_data()["checks"][0]["not_asked"][0]["path"] == TRAIN


def test_a_store_of_another_maker_that_knows_fewer_calls(aws: aws_stand_in.StandIn, s3: Any) -> None:
    aws.refuse("s3:HeadBucket", "NotImplemented", "no", status=501, count=-1)
    report = checked(CHANNEL)
    assert report.problems == []
    assert [why for _, why in report.not_asked] == [
        f"{place}: not supported by this endpoint: s3:HeadBucket: Not Implemented [501]"
        for place in ("output_data_config.s3_output_path", TRAIN)
    ]
    assert report.lines()[-2].endswith("s3:HeadBucket: Not Implemented [501] (and 1 more)")


def test_one_answer_that_is_missing_hides_no_other(aws: aws_stand_in.StandIn, s3: Any) -> None:
    aws.deny("s3:ListObjectsV2", containing="train")
    report = checked("channels: {train: s3://data/train/, other: s3://data/other/}")
    assert [(each.code, dotted(each.path)) for each in report.problems] == [("prefix-empty", "channels.other.s3_uri")]
    assert {check for check, _ in report.not_asked} == {"prefixes", "disk"}


def test_what_hangs_is_not_waited_for(aws: aws_stand_in.StandIn, s3: Any) -> None:
    aws.fault("hang", "s3:ListObjectsV2", seconds=60, count=-1)
    began = time.monotonic()
    report = checked("channels: {train: s3://dota/train/, more: s3://data/train/}", deadline=1.0)
    assert time.monotonic() - began < 3
    assert [each.code for each in report.problems] == ["bucket-missing"]
    assert ("prefixes", "no answer in 1 s") in report.not_asked
    aws.clear_faults()


def test_the_process_ends_in_time_while_a_question_hangs(aws: aws_stand_in.StandIn, s3: Any, tmp_path: Path) -> None:
    aws.fault("hang", "s3:HeadBucket", seconds=60, count=-1)
    spec = tmp_path / "job.yaml"
    spec.write_text(f"{BASE}{CHANNEL}\n")
    code = (
        "import launcher, sys; from launcher.aws.account import Account; from launcher.preflight.runner import preflight\n"
        "from launcher.preflight import buckets\n"
        "report = preflight(launcher.plan(sys.argv[1]), Account(), checks=buckets.CHECKS, deadline=1.0)\n"
        "print(report.outcomes[0].status)"
    )
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", code, spec], capture_output=True, text=True, timeout=50, env={**os.environ}
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("not-asked\n", "", 0)
    assert time.monotonic() - began < 20
    aws.clear_faults()


def test_without_credentials_or_with_expired_ones_there_is_nobody_to_ask(
    aws: aws_stand_in.StandIn, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.fault("expired", "*", count=-1)
    with pytest.raises(RefusedError, match="s3:"):
        checked(CHANNEL)
    aws.clear_faults()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(RefusedError, match="no AWS credentials found"):
        checked(CHANNEL)


def test_the_same_question_is_asked_once(aws: aws_stand_in.StandIn, s3: Any) -> None:
    checked(f"checkpoint_config: {{s3_uri: s3://out/checkpoints}}\n{CHANNEL}")
    asked = [(call["operation"], json.dumps(call["parameters"], sort_keys=True)) for call in aws.calls()]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_code_is_explained_ignorable_and_provoked(check: Any) -> None:
    elsewhere = {"prefix-small-objects", "share-uneven", "disk-too-small", "disk-nearly-full"}
    for code, (severity, why) in check.codes.items():
        assert f"{code} ({severity}" in (explanation(code) or "")
        assert why in (explanation(code) or "")
        assert code in ignorable()
        assert code in elsewhere | {broken.code for broken in BROKEN}
