"""Advice is written into a spec as a whole, and only if it can be."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import launcher
from launcher.advice.facts import Advice, Estimate, Inventory, Observed, Quantiles, Shards, Use
from launcher.advice.ways import WAYS
from launcher.checks.examples import laid_over_base
from launcher.cli import cli
from launcher.errors import RefusedError
from launcher.request.view import Draft
from launcher.s3.uri import S3Location
from launcher.survey.applying import apply
from launcher.survey.channels import Channel
from launcher.survey.findings import Findings

TRAIN = "channels:\n  train:   # images\n    s3_uri: s3://bkt/train/\n"


def found(
    name: str,
    present: str | None,
    way: str,
    shards: Shards | None = None,
    style: str | None = None,
    by_index: bool | None = None,
) -> Findings:
    best = Estimate(way, shards, *[0.0] * 5, None, 0, 0, 0, None, None, None)
    channel = Channel(name, S3Location("bkt", "train/"), present=present, style=style)
    return Findings(
        channel, None, Use(random_access=by_index), Observed(), (), advice=Advice(best, None, None, (), (), (best,))
    )


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def written(spec: Path, text: str) -> str:
    spec.write_text(laid_over_base(text))
    return spec.read_text()


def test_mode_is_changed_and_comments_stay(spec: Path) -> None:
    before = written(spec, TRAIN + "    input_mode: File   # why?\n")
    assert apply(spec, {"train": found("train", "File", "FastFile")}) == ["channels.train is now read by FastFile"]
    assert spec.read_text() == before.replace("File   # why?", "FastFile   # why?")
    assert [each.name for each in spec.parent.iterdir()] == ["job.yaml"]


def test_connector_becomes_a_mode_and_back(spec: Path) -> None:
    before = written(spec, TRAIN + "    source: S3Connector\n    style: map\n")
    apply(spec, {"train": found("train", "S3Connector", "FastFile")})
    expected = before.replace("    style: map\n", "").replace("source: S3Connector", "source: S3")
    assert spec.read_text() == expected.replace("    s3_uri", "    input_mode: FastFile\n    s3_uri")
    (entry,) = Draft(launcher.load(spec), launcher.plan(spec).request).entries
    assert entry.mode == "FastFile"
    apply(spec, {"train": found("train", "FastFile", "S3Connector")})
    assert spec.read_text() == before.replace("    style: map\n", "")


def test_access_by_index_needs_the_connector_with_style_map(spec: Path) -> None:
    message = "channels.train is now read by S3Connector, style map"
    for connector, present, style in (("", "File", None), ("    source: S3Connector\n", "S3Connector", "iterable")):
        written(spec, TRAIN + connector)
        assert apply(spec, {"train": found("train", present, "S3Connector", style=style, by_index=True)}) == [message]
        assert launcher.load(spec).channels["train"].style == "map"
    assert apply(spec, {"train": found("train", "S3Connector", "S3Connector", style="map", by_index=True)}) == []


def test_removed_keys_are_named_and_their_comments_stay(spec: Path) -> None:
    written(spec, TRAIN + "    input_mode: Pipe  # why not\n    record_wrapper_type: RecordIO\n")
    assert apply(spec, {"train": found("train", "Pipe", "S3Connector")}) == [
        "channels.train is now read by S3Connector, without input_mode and record_wrapper_type"
    ]
    assert "    # why not\n" in spec.read_text()


def test_channel_of_a_file_that_is_extended_is_changed_in_this_file(spec: Path) -> None:
    (spec.parent / "base.yaml").write_text(laid_over_base(TRAIN))
    spec.write_text("extends: base.yaml   # all of it\n")
    apply(spec, {"train": found("train", "File", "FastFile")})
    assert spec.read_text() == "channels: {train: {input_mode: FastFile}}\nextends: base.yaml   # all of it\n"
    assert launcher.plan(spec).request["InputDataConfig"][0]["InputMode"] == "FastFile"


def test_advised_way_of_the_spec_changes_nothing(spec: Path) -> None:
    before = written(spec, TRAIN)
    assert apply(spec, {"train": found("train", "File", "File")}) == []
    assert spec.read_text() == before


@pytest.mark.parametrize("size", [10**8, 10**4])
def test_resharding_is_refused_with_a_command_that_plans(spec: Path, size: int) -> None:
    before = written(spec, TRAIN)
    with pytest.raises(RefusedError) as caught:
        apply(spec, {"train": found("train", "File", "File", Shards(20, size))})
    assert str(caught.value).startswith(
        "channels.train: reshard first (`launch reshard s3://bkt/train/ s3://bkt/train-shards/ "
    )
    assert "then write s3_uri: s3://bkt/train-shards/shards/" in str(caught.value)
    assert spec.read_text() == before
    command = str(caught.value).split("`")[1].removeprefix("launch ")
    done = CliRunner().invoke(cli, [*shlex.split(command), "--dry-run"], catch_exceptions=False, standalone_mode=False)
    assert "s3://bkt/train-shards/" in done.stdout


def test_file_system_is_refused_with_what_to_write(spec: Path) -> None:
    written(spec, TRAIN)
    with pytest.raises(
        RefusedError, match=r"FSxLustre needs a file system that you create; write source, .*--example fsx-lustre"
    ):
        apply(spec, {"train": found("train", "File", "FSxLustre")})


def test_advice_on_a_part_of_the_data_is_refused_with_how_to_list_all(spec: Path) -> None:
    before = written(spec, TRAIN)
    part = replace(
        found("train", "File", "FastFile"), inventory=Inventory(1, 1, Quantiles(*[1] * 5), is_complete=False)
    )
    with pytest.raises(RefusedError, match=r"channels.train: not all of its data were listed.*: pass --full"):
        apply(spec, {"train": part})
    assert spec.read_text() == before


def test_every_way_is_written_or_refused_with_a_remedy(spec: Path) -> None:
    for way in WAYS:
        before = written(spec, TRAIN)
        try:
            apply(spec, {"train": found("train", "File", way)})
        except RefusedError as error:
            assert f"channels.train: {way} needs a " in str(error)
            assert spec.read_text() == before
        else:
            assert (spec.read_text() == before) == (way == "File")


def test_one_channel_that_cannot_be_changed_keeps_all(spec: Path) -> None:
    before = written(spec, TRAIN + "  test: s3://bkt/test/\n")
    findings = {"train": found("train", "File", "FastFile"), "test": found("test", "File", "EFS")}
    with pytest.raises(
        RefusedError,
        match=r"channels.test: EFS needs .*; nothing is changed, and the name of a channel after SPEC applies",
    ):
        apply(spec, findings)
    assert spec.read_text() == before


@pytest.mark.parametrize(
    ("text", "way", "message"),
    [
        ("channels:\n  test: &a {s3_uri: s3://bkt/}\n  train: *a\n", "FastFile", "cannot be set: it is an alias"),
        ("channels:\n  train: &a {s3_uri: s3://bkt/}\n  test: *a\n", "FastFile", "cannot be set: it has an anchor"),
        (
            TRAIN + "    compression_type: Gzip\n    input_mode: Pipe\n",
            "FastFile",
            "the new spec would be wrong: .*Gzip",
        ),
        (
            "request:\n  InputDataConfig:\n  - {ChannelName: train, InputMode: File, DataSource: {S3DataSource: {S3DataType: "
            "S3Prefix, S3Uri: 's3://bkt/'}}}\n",
            "FastFile",
            "channels.train is written in a way that only you can change",
        ),
    ],
)
def test_spec_that_would_be_wrong_is_not_written(spec: Path, text: str, way: str, message: str) -> None:
    before = written(spec, text)
    with pytest.raises(RefusedError, match=message):
        apply(spec, {"train": found("train", "File", way)})
    assert spec.read_text() == before
    assert [each.name for each in spec.parent.iterdir()] == ["job.yaml"]
