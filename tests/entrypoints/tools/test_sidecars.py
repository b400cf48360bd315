"""Sidecar files: objects of one stem become one sample, on one host and on several, and after a restart."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard
from faulty_s3 import Store, faulty_s3
from sagemaker_channels import contract
from sagemaker_channels.formats import format_of
from sagemaker_channels.sample import Sample
from sagemaker_channels.tools.sidecars import split

Host = Callable[..., None]
KEYS = st.from_regex(r"([a-c]/)?[a-c.-]{1,4}(\.[xy]{1,2})?", fullmatch=True)


@given(st.sets(KEYS, max_size=12))
@settings(max_examples=50)
def test_objects_of_a_stem_follow_each_other_in_a_listing(keys: set[str]) -> None:
    """But for an object without an ending, which has no sidecars."""
    stems = [split(key)[0] for key in sorted(keys) if split(key)[1] != "data"]
    assert len([stem for stem, last in zip(stems, ["", *stems], strict=False) if stem != last]) == len(set(stems))


@pytest.mark.parametrize(
    ("key", "stem", "field"),
    [
        ("a/1.jpg", "a/1", "jpg"),
        ("a.b/1.seg.png", "a.b/1", "seg.png"),
        ("a/.1.jpg", "a/.1", "jpg"),
        ("a/1", "a/1", "data"),
        ("1.", "1", "data"),
    ],
)
def test_stem_ends_at_the_first_dot_of_the_name(key: str, stem: str, field: str) -> None:
    assert split(key) == (stem, field)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """S3 with 60 images below s3://bucket/in."""
    with faulty_s3(tmp_path, monkeypatch) as found:
        for number in range(60):
            for field, data in fields(number).items():
                file = found.folder / "in" / f"{number % 3}" / f"{number}.{field}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        yield found


@pytest.fixture
def host(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Reshards s3://bucket/in to s3://bucket/out, as one of two hosts, or as the only one (-1)."""

    def run(format: str, number: int, output: str = "out") -> None:
        root = tmp_path / f"ml{number}"
        (root / contract.CONFIG_DIR).mkdir(parents=True, exist_ok=True)
        hosts = ["algo-1", "algo-2"][: 1 if number < 0 else 2]
        config = {"current_host": hosts[number], "hosts": hosts, "network_interface_name": "eth0"}
        (root / contract.CONFIG_DIR / "resourceconfig.json").write_text(json.dumps(config))
        (root / contract.CONFIG_DIR / "inputdataconfig.json").write_text("{}")
        monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(root))
        channel = {"channel": "data", "s3_uri": "s3://bucket/in/", "style": "iterable"}
        monkeypatch.setenv(f"{contract.CONNECTOR_VARIABLE}0", json.dumps(channel))
        options = ["--format", format, "--shard-bytes", "20000", "--seed", "5", "--sidecars", "json,.cls"]
        reshard.main(["--output", f"s3://bucket/{output}", *options])

    return run


def fields(number: int) -> Sample:
    return {"jpg": b"%d" % number * 200, "json": b'{"n": %d}' % number, "cls": b"%d" % (number % 7)}


def shards(tmp_path: Path, output: str = "out") -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in sorted((tmp_path / "overlay/bucket" / output / "shards").iterdir())
    }


def written(tmp_path: Path, format: str) -> list[Sample]:
    return [sample for data in shards(tmp_path).values() for sample in format_of(format).split(io.BytesIO(data))]


def test_two_hosts_join_each_image_and_its_sidecars_once(host: Host, tmp_path: Path) -> None:
    host("tar", 0)
    assert not (tmp_path / "overlay/bucket/out/index.json").exists()
    host("tar", 1)
    found = {sample.pop("__key__"): sample for sample in written(tmp_path, "tar")}
    assert found == {f"{number % 3}/{number}": fields(number) for number in range(60)}
    assert json.loads((tmp_path / "overlay/bucket/out/index.json").read_text())["count"] == 60


@pytest.mark.parametrize(("format", "read"), [("tfrecord", "tfrecord-example"), ("parquet", "parquet"), ("zip", "zip")])
def test_sidecars_are_fields_in_every_format_with_names(format: str, read: str, host: Host, tmp_path: Path) -> None:
    host(format, -1)
    found = [{name: value for name, value in sample.items() if name != "__key__"} for sample in written(tmp_path, read)]
    found.sort(key=lambda sample: int(json.loads(sample["json"])["n"]))
    assert found == list(map(fields, range(60)))


def test_failed_run_continues_to_the_same_shards(host: Host, store: Store, tmp_path: Path) -> None:
    host("tar", -1)
    last = written(tmp_path, "tar")[-1]["__key__"]
    store.faults[f"/bucket/in/{last}.jpg"] = [403]
    with pytest.raises(SystemExit, match="access is denied"):
        host("tar", -1, "other")
    host("tar", -1, "other")
    assert shards(tmp_path, "other") == shards(tmp_path)
    assert len(shards(tmp_path)) > 2


@pytest.mark.parametrize(
    ("missing", "message"),
    [("1/1.json", "1/1: has cls, jpg but not json; add it"), ("1/1.jpg", "but not an object that is no sidecar")],
)
def test_object_without_its_sidecar_is_refused_at_the_start(
    missing: str, message: str, host: Host, tmp_path: Path
) -> None:
    (tmp_path / "s3/bucket/in" / missing).unlink()
    with pytest.raises(SystemExit, match=message):
        host("tar", -1)
    assert not (tmp_path / "overlay/bucket/out/shards").exists()
