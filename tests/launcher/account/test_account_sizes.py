"""Notes and problems on the amount of data in S3: counts, shards, and whether it fits the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import aws_stand_in
from account_data import CHANNEL, TRAIN, checked, only
from launcher.account import stored_objects
from patience import PATIENCE
from served_bucket import serve


@pytest.fixture
def folder(aws: aws_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder served as S3, in which objects of any size are cheap to create; the stand-in answers for EC2."""
    for bucket in ("data", "out"):
        (tmp_path / "s3" / bucket).mkdir(parents=True)
    with serve(tmp_path / "s3", tmp_path / "overlay") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        yield tmp_path / "s3/data"


def test_many_small_objects_are_reported_and_listing_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(11_000):
        make(folder / f"train/{number:05}")
    code, path, message = only(checked(CHANNEL, deadline=PATIENCE))
    assert (code, path) == ("prefix-small-objects", TRAIN)
    assert "11,000 objects, 44.0 kB: 4 bytes each" in message
    assert "about 1 min 25 s in all by estimate" in message  # 11,000 / 130
    monkeypatch.setattr(stored_objects, "MAX_KEYS", 3_000)
    assert checked(CHANNEL).notes == [(("channels", "train", "s3_uri"), "at least 3,000 objects, 12.0 kB")]
    assert checked(CHANNEL, deadline=None).notes[0][1] == "11,000 objects, 44.0 kB"
    monkeypatch.setattr(stored_objects, "MAX_SECONDS", 0.0)
    assert checked(CHANNEL).notes[0][1] == "at least 1,000 objects, 4.0 kB"


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
def test_copied_data_must_fit_on_the_disk(
    folder: Path, machine: str, gigabytes: int, code: str, words: tuple[str, ...]
) -> None:
    make(folder / "train/1", gigabytes * 10**9)
    overlay = f"resource_config: {{instance_type: {machine}}}\n"
    report = checked(overlay + CHANNEL)
    assert [problem.code for problem in report.problems] == [code] * bool(code)
    assert [word for word in words if word not in report.problems[0].message] == []
    assert checked(overlay + CHANNEL.replace("}}", ", input_mode: FastFile}}")).problems == []


def test_host_needs_space_only_for_its_shard(folder: Path) -> None:
    for number in range(2):
        make(folder / f"train/{number}", 40 * 10**9)
    assert only(checked(CHANNEL))[0] == "disk-too-small"
    assert checked(CHANNEL.replace("}}", ", s3_data_distribution_type: ShardedByS3Key}}")).problems == []
    groups = (
        "resource_config: {instance_groups: [{instance_group_name: a, instance_type: ml.g5.48xlarge, instance_count: 1}, "
        "{instance_group_name: b, instance_type: ml.m5.xlarge, instance_count: 1}], volume_size_in_gb: 50}\n"
    )
    assert checked(groups + CHANNEL.replace("}}", ", instance_group_names: [a]}}")).problems == []


def make(file: Path, size: int = 4) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as sparse:
        sparse.truncate(size)
