"""What is said while the objects of channels are listed."""

from __future__ import annotations

import pytest

import aws_stand_in
from account_data import CHANNEL, MANIFEST, checked, named, put
from launcher.account import results
from launcher.console import Console


def test_full_listing_reports_its_progress(
    aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "PROGRESS_SECONDS", 0.001)
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
    monkeypatch.setattr(results, "PROGRESS_SECONDS", 0.001)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="data")
    names = [f"{number:03}" for number in range(300)]
    aws.objects("data", sizes={f"train/{name}": 10 for name in names})
    body = '[{"prefix": "s3://data/train/"}, "' + '", "'.join(names) + '"]'
    put(s3, "train.manifest", body=body.encode())
    assert checked(MANIFEST, deadline=None, console=Console()).notes[0][1].startswith("300 objects in the manifest")
    assert " objects so far" in capsys.readouterr().err
