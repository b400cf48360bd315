"""Pages of ListObjectsV2: whatever the form in which a store writes them, their objects are those that botocore reads."""

from __future__ import annotations

import time
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from urllib3 import HTTPResponse

import aws_stand_in
from account_data import CHANNEL, MANIFEST, checked, named, put
from launcher.account import run
from launcher.aws.account import Account, AwsError
from launcher.console import Console

_TIME = "<LastModified>2026-11-22T10:11:12.345Z</LastModified>"
_ONE = (
    f"<Contents><Key>%s</Key>{_TIME}<ETag>&quot;1&quot;</ETag><Size>%d</Size><StorageClass>%s</StorageClass></Contents>"
)
_CHECKSUM = "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumAlgorithm>SHA1</ChecksumAlgorithm>"
_RESTORED = "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress></RestoreStatus>"
_ENCODED = "<EncodingType>url</EncodingType>"
FORMS = {
    "as S3 writes it": _ONE % ("a", 1, "STANDARD") + _ONE % ("b", 2, "GLACIER"),
    "with checksums": (_ONE % ("a", 1, "STANDARD")).replace("<Size>", f"{_CHECKSUM}<Size>"),
    "with a restored object": (_ONE % ("a", 1, "GLACIER")).replace("</Contents>", f"{_RESTORED}</Contents>"),
    "encoded": _ENCODED + _ONE % ("a+b%2Fc%26%C3%A9%0A", 1, "STANDARD"),
    "not encoded": _ONE % ("a+b/c&amp;&lt;%41\u00e9&#10;", 1, "STANDARD"),
    "of another order": f"<Contents><Size>7</Size><Key>a</Key>{_TIME}</Contents>" + _ONE % ("b", 2, "STANDARD"),
    "without a storage class": f"<Contents><Key>a</Key>{_TIME}<Size>3</Size></Contents>",
    "without times": "<Contents><Key>a</Key><Size>3</Size></Contents>",
    "on several lines": f"\n  <Contents>\n    <Key>a</Key>\n    {_TIME}\n    <Size>3</Size>\n  </Contents>\n",
    "with folders": _ONE % ("a", 1, "STANDARD") + "<CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>",
    "empty": "<KeyCount>0</KeyCount>",
}


class _Raw(HTTPResponse):
    def stream(self, *_: Any, **__: Any) -> Any:
        yield self.data


def answering(client: Any, body: str) -> Any:
    """The client, which gets this body for each call."""
    headers = {"x-amz-request-id": "1", "Content-Type": "application/xml"}

    def send(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, 200, headers, _Raw(body.encode()))

    client.meta.events.register("before-send.s3", send)
    return client


def page(form: str) -> str:
    begin = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    end = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
    return f"{begin}<Name>data</Name><Prefix>p</Prefix>{FORMS[form]}{end}"


@pytest.mark.parametrize("form", FORMS)
def test_objects_of_a_page_are_those_that_botocore_reads(aws: aws_stand_in.StandIn, form: str) -> None:
    account = Account()
    answering(account.client("s3"), page(form))
    ours = account.call("s3", "list_objects_v2", Bucket="data")
    plain: Any = boto3.client("s3")
    theirs = answering(plain, page(form)).list_objects_v2(Bucket="data")
    members = ("Key", "Size", "LastModified", "StorageClass")
    for one in (ours, theirs):
        one["Contents"] = [{name: each.get(name) or None for name in members} for each in one.get("Contents", [])]
    members = ("Contents", "CommonPrefixes", "IsTruncated", "NextContinuationToken", "Prefix", "Name")
    assert {name: ours.get(name) for name in members} == {name: theirs.get(name) for name in members}


def test_truncated_page_is_refused(aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # botocore's between its attempts
    account, whole = Account(), page("as S3 writes it")
    for end in ("</Contents>", "<IsTruncated>", "<Contents><Key>b"):
        answering(account.client("s3"), whole[: whole.index(end) + len(end)])
        with pytest.raises(AwsError):
            account.call("s3", "list_objects_v2", Bucket="data")
        account = Account()


def test_full_listing_reports_its_progress(
    aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PROGRESS_SECONDS", 0.001)
    aws.client("s3").create_bucket(Bucket="data")
    aws.objects("data", pattern="train/{:05}", count=5_000, size=10**8)
    aws.fault("hang", "s3:ListObjectsV2", seconds=0.5, count=3)  # pages come later than the next look at the progress
    report = checked(CHANNEL, deadline=None, console=Console(), checks=named("prefixes"))
    assert report.notes[0][1].startswith("5,000 objects, 500.0 GB")
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("listed    ")]
    assert any(line.endswith(" objects so far") for line in said)


def test_manifest_reports_how_many_of_its_objects_are_left(
    aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PROGRESS_SECONDS", 0.001)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="data")
    names = [f"{number:03}" for number in range(300)]
    aws.objects("data", sizes={f"train/{name}": 10 for name in names})
    body = '[{"prefix": "s3://data/train/"}, "' + '", "'.join(names) + '"]'
    put(s3, "train.manifest", body=body.encode())
    assert checked(MANIFEST, deadline=None, console=Console()).notes[0][1].startswith("300 objects in the manifest")
    assert " objects so far" in capsys.readouterr().err
