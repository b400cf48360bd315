"""Checks of data in S3: good data, code that is not uploaded yet, codes that are ignored, long manifests."""

from __future__ import annotations

import pytest

import aws_stand_in
from account_data import CHANNEL, MANIFEST, checked, named, only, put, put_manifest, with_data
from account_worlds import GOOD, put_good_data
from launcher.account import stored_objects
from launcher.errors import SpecError, dotted


def test_good_data_has_no_problem_and_nothing_is_written(aws: aws_stand_in.StandIn) -> None:
    put_good_data(with_data(aws))
    aws.clear_calls()
    report = checked(GOOD)
    assert [str(problem) for problem in report.problems] == []
    assert report.not_asked == []
    assert {result.status for result in report.results} == {"passed"}
    notes = {dotted(path): text for path, text in report.notes}
    assert notes["channels.copied.s3_uri"] == "4 objects, 16 bytes"
    assert notes["channels.listed.s3_uri"] == "2 objects in the manifest, 8 bytes"
    assert [dotted(path) for path, _ in report.notes[:3]] == [
        f"channels.{n}.s3_uri" for n in ("copied", "kept", "mounted")
    ]
    assert aws.calls()
    assert aws.writing_calls() == []


def test_code_that_is_not_uploaded_yet_is_no_problem(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    code = "code: {entry_point: entrypoints/read_channels.py}\n"
    assert checked(code + CHANNEL).problems == []
    found = checked(code.replace("}", ", s3_uri: s3://gone/code}") + CHANNEL).problems
    assert [(each.code, dotted(each.path)) for each in found] == [("bucket-missing", "code.s3_uri")]


def test_data_that_only_the_role_may_read_is_not_looked_into(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    aws.deny("s3:GetObject")
    report = checked("channels: {train: {s3_uri: s3://data/train/, content_type: application/x-tar}}")
    assert aws.calls("s3:GetObject")
    assert (report.problems, report.not_asked) == ([], [])


@pytest.mark.parametrize(
    ("body", "channel"),
    [
        (b"\x89PNG\r\n\x1a\n", "content_type: libsvm"),
        (b"\x89PNG\r\n\x1a\n", "content_type: application/x-recordio, input_mode: Pipe, record_wrapper_type: RecordIO"),
        (b"\x28\xb5\x2f\xfd", "content_type: application/jsonlines"),
        (b"\x1f\x8b\x08", "content_type: text/csv; label_size=0"),
    ],
)
def test_data_that_an_algorithm_or_a_script_can_read_is_not_warned_of(
    aws: aws_stand_in.StandIn, body: bytes, channel: str
) -> None:
    put(with_data(aws), "other/1", body=body)
    assert not checked(f"channels: {{train: {{s3_uri: s3://data/other/, {channel}}}}}").problems


def test_shards_that_sagemaker_wraps_are_read_by_their_content_type(aws: aws_stand_in.StandIn) -> None:
    put(with_data(aws), "shards/1", body=bytes(257) + b"ustar\0" + bytes(249))
    channel = (
        "{s3_uri: s3://data/shards/, content_type: application/x-tar, input_mode: Pipe, record_wrapper_type: RecordIO}"
    )
    code = "code: {entry_point: entrypoints/read_channels.py}\n"
    assert checked(f"{code}channels: {{train: {channel}}}").problems == []
    report = checked(f"{code}channels: {{train: {channel.replace('x-tar', 'x-parquet')}}}")
    assert [each.code for each in report.problems] == ["content-type-other"]


def test_ignored_codes_are_not_reported_even_errors(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    gone = "channels: {train: s3://dota/train/}"
    assert checked(gone, ignore=("bucket-missing",)).problems == []
    report = checked("ignore: [prefix-empty]\nchannels: {train: s3://data/trian/, other: s3://dota/}")
    assert [each.code for each in report.problems] == ["bucket-missing"]
    with pytest.raises(SpecError, match="did you mean bucket-missing"):
        checked(f"ignore: [bucket-mising]\n{CHANNEL}")


def test_long_manifest_is_sampled_without_full(aws: aws_stand_in.StandIn) -> None:
    s3 = with_data(aws)
    put_manifest(s3, "1.tar", *(f"{number}.tar" for number in range(100, 400)))
    aws.clear_calls()
    message = only(checked(MANIFEST))[2]
    assert "99 of the 100 looked at (of 301) objects" in message
    assert len(aws.calls("s3:HeadObject")) == 101
    assert "300 of the 301 objects" in only(checked(MANIFEST, deadline=None))[2]


def test_each_of_twenty_prefixes_gets_its_first_page(
    aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is listed by a thread of its own; the time for listings is over before the first answers."""
    monkeypatch.setattr(stored_objects, "MAX_SECONDS", 0.0)
    for number in range(20):
        aws.objects(f"data{number}", pattern="train/{:05}", count=1_500, size=10)
    channels = ", ".join(f"c{number}: s3://data{number}/train/" for number in range(20))
    report = checked(f"channels: {{{channels}}}", checks=named("prefixes"))
    assert [text for _, text in report.notes] == ["at least 1,000 objects, 10.0 kB"] * 20
