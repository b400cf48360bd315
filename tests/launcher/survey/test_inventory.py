"""The inventory of a prefix, in S3 and in a folder, and the formats by content."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from launcher.aws.remote_objects import RemoteObjects
from launcher.aws.session import Account
from launcher.errors import InputError, RefusedError
from launcher.s3.uri import S3Location
from launcher.survey.channels import Channel, objects_of
from launcher.survey.inventory import format_of, format_of_name, take_inventory
from sagemaker_channels.formats import FORMATS, Format
from sagemaker_channels.formats import format_of as form

TRAIN = S3Location("mine", "train/")


def written(name: str) -> bytes:
    """Return what our writer of a format writes."""
    stream = io.BytesIO()
    card = form(name)
    assert card.write is not None
    card.write(stream, [card.example(0, b"abc")])
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "key", "expected"),
    [
        (b"\xff\xd8\xff\xe0", "a/1.jpg", "jpeg"),
        (b"\x89PNG\r\n\x1a\n", "a/1.jpg", "png"),  # the content counts, not the name
        (written("tar"), "shard", "tar"),
        (written("recordio"), "a.rec", "recordio"),
        (written("recordio-protobuf"), "a.rec", "recordio-protobuf"),
        (written("tfrecord"), "part-0", "tfrecord"),
        (written("zip"), "a", "zip"),
        (written("parquet"), "a", "parquet"),
        (b"a,b\n1,2\n", "a/b.csv", "csv"),
        (b'{"a": 1}\n', "a/b.jsonl", "jsonl"),
        (b"abc", "v1.2/README", "unknown"),
        (gzip.compress(b'{"a": 1}\n' * 999, mtime=0), "a.jsonl.gz", "jsonl"),  # which the readers unzip
        (gzip.compress(written("tar"), mtime=0), "a.tgz", "tar"),
        (gzip.compress(written("parquet"), mtime=0), "a.parquet.gz", "gzip"),  # which is read from its end
        (gzip.compress(b"abc", mtime=0), "a.nii.gz", "gzip"),
        (b"\x1f\x8b\x08 damaged", "a.gz", "gzip"),
    ],
)
def test_format_is_known_by_content(content: bytes, key: str, expected: str) -> None:
    assert format_of(content[:512], key) == expected


@pytest.mark.parametrize("card", [card for card in FORMATS if card.write], ids=str)
def test_object_that_a_card_knows_is_of_its_format(card: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format of our own is known by `begins`, without a line here, and TFRecord without the package crc32c."""
    content = written(card.name)
    monkeypatch.setitem(sys.modules, "crc32c", None)
    if card.begins(content[:512]):
        assert format_of(content[:512], "part-0") == card.name


@pytest.mark.parametrize("card", [card for card in FORMATS if card.ending not in (None, ".txt")], ids=str)
def test_ending_of_each_format_is_known(card: Format) -> None:
    assert form(format_of_name(f"a/1{card.ending}")).ending == card.ending


def test_inventory_of_a_prefix_counts_sizes_classes_and_formats(aws: StandIn) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="mine")
    for key, size in {
        "train/": 0,
        "train/a.jpg": 100,
        "train/b.jpg": 300,
        "train/c.jpg": 200,
        "train_old/d": 9,
    }.items():
        s3.put_object(Bucket="mine", Key=key, Body=(b"\xff\xd8\xff" + bytes(size))[:size])
    s3.put_object(Bucket="mine", Key="train/e.jpg", Body=b"\xff\xd8\xff", StorageClass="STANDARD_IA")
    found = take_inventory(RemoteObjects(Account()), TRAIN, "S3")
    assert (found.objects, found.bytes, found.unknown) == (4, 603, ())
    assert (found.sizes.min, found.sizes.p50, found.sizes.max) == (3, 100, 300)
    assert found.formats == {"jpeg": 4}
    assert found.storage_classes == {"STANDARD": 3, "STANDARD_IA": 1}


def test_files_of_macos_and_windows_are_named_and_not_counted(tmp_path: Path) -> None:
    for name in ("1.png", ".DS_Store", "a/._1.png", "a/Thumbs.db", "desktop.ini", "__MACOSX/1.png", "ds_store.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x89PNG")
    with objects_of(Channel("a", TRAIN, folder=tmp_path), Account(), None) as (objects, place):
        found = take_inventory(objects, place, "S3")
    assert (found.objects, found.formats) == (2, {"png": 2})
    assert found.unknown == (
        "5 files of macOS or Windows, such as .DS_Store, are not counted, but a job reads them as data; delete them",
    )


def test_listing_ends_at_the_limit_and_reports_that(aws: StandIn) -> None:
    aws.client("s3").create_bucket(Bucket="mine")
    aws.objects("mine", pattern="train/{:05d}.jpg", count=5_000, size=39_000)
    aws.clear_calls()
    objects = RemoteObjects(Account())
    found = take_inventory(objects, TRAIN, "S3", most=2_000)
    assert found.objects == 2_000
    assert "there are more than 2,000 objects; --full lists them all" in found.unknown
    assert len(aws.calls("s3:ListObjectsV2")) == 3
    found = take_inventory(objects, TRAIN, "S3", most=None)
    assert (found.objects, found.bytes) == (5_000, 5_000 * 39_000)
    assert [each for each in found.unknown if "more than" in each] == []
    assert found.formats == {}  # the stand-in lists these objects, but has none of them
    assert any("some formats are unknown: s3://mine/train/" in each for each in found.unknown)


def test_empty_prefix_missing_bucket_and_denial_have_each_one_error(aws: StandIn) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="mine")
    s3.put_object(Bucket="mine", Key="train/a", Body=b"a")
    objects = RemoteObjects(Account())
    with pytest.raises(RefusedError, match=r"s3://mine/trian/: no object begins with this .*did you mean train/\?"):
        take_inventory(objects, S3Location("mine", "trian/"), "S3")
    with pytest.raises(RefusedError, match=r"s3://none/a at .*: there is no such bucket; check its name"):
        take_inventory(objects, S3Location("none", "a"), "S3")
    aws.deny("s3:ListObjectsV2")
    with pytest.raises(RefusedError, match=r"s3://mine/train/ at .*: access is denied; .*s3:ListBucket"):
        take_inventory(objects, TRAIN, "S3")


def test_folder_stands_for_a_bucket_or_a_file_system(tmp_path: Path) -> None:
    for name in ("s3/mine/train/1.png", "s3/mine/train/a/2.png", "efs/fs-1/images/3.png", "fsx/fs-2/images/4.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\x89PNG")
    channels = [
        (Channel("a", TRAIN), 2),
        (Channel("b", S3Location("fs-1", "/images"), "EFS"), 1),
        (Channel("c", S3Location("fs-2", "/mount/images"), "FSxLustre"), 1),
    ]
    for channel, count in channels:
        with objects_of(channel, Account(), tmp_path) as (objects, place):
            found = take_inventory(objects, place, channel.storage)
        assert (found.objects, found.bytes, found.formats, found.place) == (
            count,
            4 * count,
            {"png": count},
            channel.storage,
        )
    on_efs = Channel("d", S3Location("fs-1", "/mount/images"), "EFS")  # Only FSx for Lustre has mount names.
    with (
        pytest.raises(InputError, match=r"there is no folder .*efs/fs-1/mount/images"),
        objects_of(on_efs, Account(), tmp_path),
    ):
        pass
