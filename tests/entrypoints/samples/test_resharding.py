"""Resharding: whole samples in verified shards, the same after any interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoints import contract, reshard
from entrypoints.records import format_of
from entrypoints.sample import Sample
from entrypoints.samples.digest import Tally
from served_bucket import served_bucket

COUNT = 200
OUTPUT = "s3://bucket/out"
Run = Callable[..., None]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host with the channels `data`, 200 objects, and `labels`; and the folder of s3://bucket."""
    root = tmp_path / "ml"
    data = root / contract.DATA_DIR / "data"
    data.mkdir(parents=True)
    for number in range(COUNT):
        (data / f"{number:04d}.jpg").write_bytes(b"%04d" % number * 100)
    (root / contract.CONFIG_DIR).mkdir(parents=True)
    channels(root, "data")
    monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(root))
    with served_bucket(tmp_path, monkeypatch):
        yield tmp_path / "overlay" / "bucket"


def channels(root: Path, *names: str) -> None:
    settings = {name: {"TrainingInputMode": "File"} for name in names}
    (root / contract.CONFIG_DIR / "inputdataconfig.json").write_text(json.dumps(settings))


def options(format: str = "tar", *more: str, size: int = 20_000) -> list[str]:
    return ["--output", OUTPUT, "--format", format, "--shard-bytes", str(size), *more]


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "shards").iterdir())}


def index(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "index.json").read_text())
    return found


def samples(out: Path, format: str) -> list[Sample]:
    found = []
    for file in sorted((out / "shards").iterdir()):
        with file.open("rb", buffering=0) as stream:
            found += format_of(format).split(stream)
    return found


@pytest.mark.parametrize("format", ["tar", "zip", "recordio", "tfrecord", "parquet"])
def test_shards_hold_each_object_once_with_the_digest_of_the_index(format: str, bucket: Path) -> None:
    reshard.main(options(format))
    found = samples(bucket / "out", format)
    field = "jpg" if format in ("tar", "zip") else "data"
    assert [sample[field] for sample in found] == [b"%04d" % number * 100 for number in range(COUNT)]
    tally = Tally()
    for sample in found:
        tally.add(sample)
    about = index(bucket / "out")
    assert (about["count"], about["digest"]) == (COUNT, tally.hex)
    assert {row["name"]: row["bytes"] for row in about["shards"]} == {
        name: len(data) for name, data in shards(bucket / "out").items()
    }
    assert len(about["shards"]) >= 3 or format == "parquet"


@pytest.mark.parametrize("format", ["tar", "recordio", "tfrecord", "parquet"])
def test_labels_of_lists_are_joined_to_their_objects(format: str, bucket: Path) -> None:
    root = Path(os.environ[contract.BASE_DIR_VARIABLE])
    folder = root / contract.DATA_DIR / "labels"
    folder.mkdir()
    (folder / "a.lst").write_text("".join(f"{n}\t{n % 7}\t{n:04d}.jpg\n" for n in range(COUNT)))
    channels(root, "data", "labels")
    reshard.main(options(format))
    written = {"recordio": "image-recordio", "tfrecord": "tfrecord-example"}.get(format, format)
    labels = [sample["cls" if format == "tar" else "label"] for sample in samples(bucket / "out", written)]
    labels = [label[0] for label in labels] if format == "tfrecord" else labels
    assert list(map(int, labels)) == [number % 7 for number in range(COUNT)]
    (folder / "a.lst").write_text("0\t1\t0000.jpg\n")
    with pytest.raises(SystemExit, match=r"reshard: .*0001\.jpg' has no line in the list"):
        reshard.main(["--output", "s3://bucket/other"])


def test_shuffled_shards_depend_on_the_seed_only(bucket: Path) -> None:
    found = []
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        reshard.main(["--output", f"s3://bucket/{folder}", "--seed", seed, "--shard-bytes", "20000"])
        found.append(shards(bucket / folder))
    assert found[0] == found[1] != found[2]
    assert len({index(bucket / folder)["digest"] for folder in "abc"}) == 1


def test_killed_and_started_again_it_writes_the_same_shards(bucket: Path) -> None:
    """Killed three times, each after another number of stored shards, in another place of its work."""
    seed = ("--seed", "3")
    reshard.main(["--output", "s3://bucket/whole", "--shard-bytes", "5000", *seed])
    command = [sys.executable, "-m", "entrypoints.reshard", *options("tar", *seed, size=5_000)]
    for stored in (1, 5, 9):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while not (bucket / f"out/shards/0000-{stored:06d}.tar").exists():
                assert process.poll() is None
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        assert not (bucket / "out/manifest.json").exists()
    reshard.main(options("tar", *seed, size=5_000))
    assert shards(bucket / "out") == shards(bucket / "whole")
    assert index(bucket / "out") == index(bucket / "whole")


def test_prefix_with_shards_of_other_options_is_refused(bucket: Path) -> None:
    reshard.main(options("tar"))
    before = shards(bucket / "out")
    for other in (options("zip"), options("tar", size=10_000), options("tar", "--seed", "1")):
        with pytest.raises(SystemExit, match="choose an empty prefix"):
            reshard.main(other)
    assert shards(bucket / "out") == before


def test_shard_that_changed_in_the_store_is_noticed(bucket: Path) -> None:
    reshard.main(options())
    (bucket / "out/index.json").unlink()
    (bucket / "out/shards/0000-000001.tar").write_bytes(b"short")
    with pytest.raises(SystemExit, match=r"shards/0000-000001\.tar has 5 bytes, expected"):
        reshard.main(options())
    assert not (bucket / "out/index.json").exists()


def test_sample_that_does_not_fit_the_format_ends_with_its_name(bucket: Path) -> None:
    root = Path(os.environ[contract.BASE_DIR_VARIABLE])
    (root / contract.DATA_DIR / "data" / "0005.png").write_bytes(b"x")
    with pytest.raises(SystemExit, match=r"sample 6 \(__key__ '0005'\): the sample before has the same __key__"):
        reshard.main(options())
