"""The ways to read samples, those of the benchmarks too: each yields the same samples from the same objects."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import further_ways
import numpy
import pytest

from delivered_channels import CHANNELS, PAIRS, feed, recordio_of, tally, tar_of
from delivered_channels import config as write_config
from sagemaker_channels import contract
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.tools.measuring import batches_of, digest
from sagemaker_channels.tools.ways import ARRIVALS, REMOVED, WAYS, Source, Way, plain
from served_bucket import served_bucket

EVERY = {**WAYS, **further_ways.FURTHER}
OBJECTS = {
    "objects": CHANNELS["whole"][1],
    "tar": {f"{number}.tar": tar_of(PAIRS[number::2], 100 * number) for number in range(2)},
}
FORMATS = (*OBJECTS, "mds", "litdata")


def written(format: str, folder: Path) -> dict[str, bytes]:
    """Return the shards that a library's own writer makes of PAIRS."""
    if format == "mds":
        import streaming

        with streaming.MDSWriter(out=str(folder), columns=dict.fromkeys(PAIRS[0], "bytes"), size_limit=5000) as writer:
            for sample in PAIRS:
                writer.write(sample)
    else:
        import litdata

        litdata.optimize(dict, PAIRS, str(folder), chunk_bytes=5000, num_workers=1)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # for `aws`
    with served_bucket(tmp_path, monkeypatch) as folder:
        yield folder
    if "s3fs" in sys.modules:  # it keeps its connections, and the next test has a server of its own
        sys.modules["s3fs"].S3FileSystem.clear_instance_cache()


def source_of(way: Way, format: str, bucket: Path, root: Path) -> Source:
    """Deliver the objects of a format by the way's first arrival."""
    objects = OBJECTS.get(format) or written(format, root.with_name(format))
    arrival = way.arrivals[0]
    wrapper = "RecordIO" if format == "objects" and arrival == "pipe" else "None"
    mode = {"fast_file": "FastFile", "pipe": "Pipe"}.get(arrival, "File")
    write_config(
        root, 0, 1, {} if arrival == "s3" else {arrival: {"TrainingInputMode": mode, "RecordWrapperType": wrapper}}
    )
    folder = bucket / "data" if arrival == "s3" else root / contract.DATA_DIR / arrival
    if arrival == "pipe":
        content = [objects[key] for key in sorted(objects)]
        feed(folder.with_name("pipe_0"), [recordio_of(content)] if format == "objects" else content)
    else:
        for key, data in objects.items():
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(data)
    connector = {"channel": "s3", "s3_uri": "s3://bucket/data/", "style": "iterable"}
    environ = {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(connector)} if arrival == "s3" else {}
    environment = load_environment(root, environ)
    is_forked = way.start_method is None and sys.platform == "linux"  # not all ways pickle
    workers = 2 if format == "tar" and is_forked else 0
    return Source(environment, environment.channels[arrival], format, workers=workers)


@pytest.mark.parametrize(
    ("name", "format"),
    [(name, format) for name, way in EVERY.items() for format in FORMATS if format in (way.formats or OBJECTS)],
)
@pytest.mark.filterwarnings("default")  # other people's libraries warn of this and that
def test_each_way_yields_the_same_samples(
    name: str,
    format: str,
    bucket: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way = EVERY[name]
    if (install := way.missing()) is not None:
        pytest.skip(install)
    if way in further_ways.FUSE:
        request.getfixturevalue("fuse")
    if format not in OBJECTS:  # these libraries leave lock files and chunks
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = source_of(way, format, bucket, tmp_path / "ml")
    if way.start_method is not None:  # test_public_scripts.py has spawned workers, which take seconds to import torch
        assert pickle.dumps(way.open(source))
    found = digest(way, source)
    expected = tally(CHANNELS["whole"][2] if format == "objects" else PAIRS)
    assert found == {"samples": expected.count, "bytes": expected.bytes, "digest": expected.hex}


def test_mount_is_removed_when_a_run_is_interrupted(
    fuse: None, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    way = EVERY["rclone"]
    source = replace(source_of(way, "tar", bucket, tmp_path / "ml"), workers=1, batch_size=len(PAIRS))
    with pytest.raises(KeyboardInterrupt), source.exits:
        batches = iter(batches_of(way, source))
        next(batches)  # its worker still runs at the end of this block
        assert str(tmp_path) in Path("/proc/self/mounts").read_text()
        raise KeyboardInterrupt
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert not list(tmp_path.glob("rclone-*"))


def test_fields_of_any_type_have_a_digest() -> None:
    times = numpy.array(["2026-11-27"], "datetime64[D]")
    found = plain(
        {"text": "a", "count": 5, "list": [1, "b"], "part": memoryview(b"cd"), "times": times, "__key__": "k"}
    )
    assert found == {"text": "a", "count": 5, "list": [1, "b"], "part": b"cd", "times": times}
    assert plain({"row": numpy.array([1, 2], "<i2")}) == {"row": b"\1\0\2\0"}
    Tally().add(found)


def test_cards_name_known_arrivals_and_removed_ways_their_replacement() -> None:
    assert {arrival for way in EVERY.values() for arrival in way.arrivals} <= set(ARRIVALS)
    assert set(REMOVED.values()) <= set(EVERY)
    assert all(need.install for way in EVERY.values() for need in way.needs)
