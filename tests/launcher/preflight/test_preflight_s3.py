"""What preflight asks of S3: broken environments, each found, named and given its remedy; and no false alarm on a good one."""

from __future__ import annotations

import gzip

import pytest

import aws_stand_in
from launcher.errors import SpecError, dotted
from launcher.preflight.s3 import buckets, checkpoints, compression, line_ends, prefixes, shares
from preflight_data import CHANNEL, TRAIN, Broken, checked, judge, put, put_lines, put_manifest, with_data

CHECKS = tuple(each.CHECK for each in (buckets, prefixes, shares, compression, line_ends, checkpoints))
GOOD = """\
checkpoint_config: {s3_uri: s3://out/checkpoints}
debug_hook_config: {s3_output_path: s3://out/debug/}
tensor_board_output_config: {s3_output_path: s3://out/boards/}
channels:
  copied: s3://data/train/
  kept: s3://data/kept/
  mounted: {s3_uri: s3://data/train/, input_mode: FastFile}
  streamed: {s3_uri: s3://data/train/, input_mode: Pipe}
  lines: {s3_uri: s3://data/lines/, input_mode: Pipe, content_type: text/csv}
  line: {s3_uri: s3://data/single/, input_mode: Pipe, content_type: text/csv}
  wrapped: {s3_uri: s3://data/train/, input_mode: Pipe, content_type: text/csv, record_wrapper_type: RecordIO}
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


def test_a_good_environment_has_no_problem_and_nothing_is_written(aws: aws_stand_in.StandIn) -> None:
    s3 = with_data(aws)
    put(s3, "train/", body=b"")  # the console's folder
    put(s3, "train/_SUCCESS", "train/deep_$folder$", body=b"")  # Hadoop's, beside data
    for key, kind in (("5.tar", "GLACIER_IR"), ("6.tar", "INTELLIGENT_TIERING"), ("7.tar", "GLACIER")):
        s3.put_object(Bucket="data", Key=f"kept/{key}", Body=b"data", StorageClass=kind)
    s3.restore_object(Bucket="data", Key="kept/7.tar", RestoreRequest={"Days": 3})
    put(s3, "parts/part-0", "parts/part-1", "parts/part-2", "single/one.csv", "train_old/1.tar")
    put(s3, "zipped/1.csv.gz", "lines/2.csv.gz", body=gzip.compress(b"1,2,3"))
    put(s3, "lines/1.csv", body=b"1,2\n")
    put_manifest(s3, "1.tar", "deep/3.tar")
    put_lines(
        s3, {"source-ref": "s3://data/train/1.tar", "class": 3}, {"source-ref": "s3://data/train/2.tar", "class": 0}
    )
    aws.clear_calls()
    report = checked(GOOD)
    assert [str(problem) for problem in report.problems] == []
    assert report.not_asked == []
    assert {outcome.check: outcome.status for outcome in report.outcomes} == dict.fromkeys(
        ("buckets", "prefixes", "archives", "manifests", "shares", "compression", "line-ends", "disk", "checkpoints"),
        "passed",
    )
    notes = {dotted(path): text for path, text in report.notes}
    assert notes["channels.copied.s3_uri"] == "6 objects, 16 bytes"
    assert notes["channels.listed.s3_uri"] == "2 objects in the manifest, 8 bytes"
    assert [dotted(path) for path, _ in report.notes[:3]] == [
        f"channels.{n}.s3_uri" for n in ("copied", "kept", "mounted")
    ]
    assert aws.calls()
    assert aws.writing_calls() == []


def test_the_code_need_not_be_there_before_it_is_uploaded(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    code = "code: {entry_point: entrypoints/read_channels.py}\n"
    assert checked(code + CHANNEL).problems == []
    found = checked(code.replace("}", ", s3_uri: s3://gone/code}") + CHANNEL).problems
    assert [(each.code, dotted(each.path)) for each in found] == [("bucket-missing", "code.s3_uri")]


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
        "prefix of Hadoop's marks only",
        lambda s3: put(s3, "new/_SUCCESS", "new/part_$folder$", body=b""),
        "channels: {train: s3://data/new/}",
        "prefix-only-folders",
        TRAIN,
        ("2 objects", "_SUCCESS", "upload the data"),
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
        "sibling with a name that would clear the screen",
        lambda s3: put(s3, "one.csv", "one.csv\x1b[2J"),
        "channels: {train: s3://data/one.csv}",
        "prefix-siblings",
        TRAIN,
        ("also takes one.csv\\x1b[2J",),
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
        "lines without a line feed at an object's end",
        lambda s3: (put(s3, "lines/1.csv", body=b"1\n2\n"), put(s3, "lines/2.csv", "lines/3.csv", body=b"3\n4")),
        "channels: {train: {s3_uri: s3://data/lines/, input_mode: Pipe, content_type: text/csv; label_size=0}}",
        "pipe-joins-lines",
        "channels.train.input_mode",
        ("'lines/2.csv' does not end with a line feed", "FastFile"),
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
def test_a_broken_environment_is_found(aws: aws_stand_in.StandIn, broken: Broken) -> None:
    judge(aws, broken)


def test_each_code_can_be_ignored_errors_too(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    gone = "channels: {train: s3://dota/train/}"
    assert checked(gone, ignore=("bucket-missing",)).problems == []
    report = checked("ignore: [prefix-empty]\nchannels: {train: s3://data/trian/, other: s3://dota/}")
    assert [each.code for each in report.problems] == ["bucket-missing"]
    with pytest.raises(SpecError, match="did you mean bucket-missing"):
        checked(f"ignore: [bucket-mising]\n{CHANNEL}")


def test_every_code_is_provoked() -> None:
    elsewhere = {"prefix-small-objects", "share-uneven"}  # test_preflight_sizes
    codes = {code for check in CHECKS for code in check.codes}
    assert codes == elsewhere | {broken.code for broken in BROKEN}
