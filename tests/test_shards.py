"""Shards: numbered files of the size asked for, which the formats read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoints.records import SHORT_NAMES, format_of
from entrypoints.records.recordio_protobuf import Blob
from entrypoints.records.shards import WRITERS, write_shards
from entrypoints.sample import Sample

COUNT = 100


def samples_of(format: str) -> list[Sample]:
    texts = [f"{number:06d}" * 200 for number in range(COUNT)]
    match format:
        case "tar" | "zip":
            return [{"__key__": text[:6], "txt": text.encode()} for text in texts]
        case "csv":
            return [{"data": [text, "x"]} for text in texts]
        case "jsonl" | "parquet":
            return [{"__key__": text[:6], "text": text} for text in texts]
        case "tfrecord-example":
            return [{"text": text.encode()} for text in texts]
        case "recordio-protobuf":
            return [{"features": {"x": Blob([text.encode()], "")}} for text in texts]
        case "image-recordio":
            return [{"data": text.encode(), "label": 1.0, "id": int(text[:6]), "id2": 0} for text in texts]
    return [{"data": text.encode()} for text in texts]


def read(shards: list[Path], format: str) -> Iterator[Sample]:
    for shard in shards:
        with shard.open("rb", buffering=0) as stream:
            yield from format_of(format).split(stream, None)


@pytest.mark.parametrize("format", WRITERS)
@pytest.mark.parametrize("shard_bytes", [1, 20_000, 1 << 30])
def test_shards_come_back(format: str, shard_bytes: int, tmp_path: Path) -> None:
    samples = samples_of(format)
    shards = write_shards(iter(samples), tmp_path / "new", format, shard_bytes)
    assert shards == sorted((tmp_path / "new").iterdir())
    assert shards[0].name == "00000" + WRITERS[format][0]
    assert [repr(sample["features"]["x"]) if "features" in sample else sample for sample in read(shards, format)] == [
        repr(sample["features"]["x"]) if "features" in sample else sample for sample in samples
    ]
    if shard_bytes == 1:
        assert len(shards) == COUNT
    elif shard_bytes == 1 << 30:
        assert len(shards) == 1
    else:
        assert 5 <= len(shards) <= 10


def test_every_format_that_is_made_of_samples_has_a_writer() -> None:
    assert SHORT_NAMES.keys() - WRITERS.keys() == {"objects", "augmented"}


def test_old_shards_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    samples = samples_of("tar")
    write_shards(samples, tmp_path, "tar", 50_000)
    (tmp_path / "00000.tar").unlink()
    with pytest.raises(FileExistsError, match=r"00001\.tar exists: remove the old shards"):
        write_shards(samples[:1], tmp_path, "tar")
    assert write_shards(samples[:1], tmp_path, "zip") == [tmp_path / "00000.zip"]


def test_what_is_interrupted_leaves_complete_shards_only(tmp_path: Path) -> None:
    def failing() -> Iterator[Sample]:
        yield from samples_of("recordio")[:30]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_shards(failing(), tmp_path, "recordio", 20_000)
    left = sorted(tmp_path.iterdir())
    assert [path.name for path in left] == ["00000.rec"]
    assert list(read(left, "recordio")) == samples_of("recordio")[:17]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    assert write_shards([], tmp_path, "tar") == []
    with pytest.raises(ValueError, match="format 'gz' has no writer of shards; those that have one: tar, zip"):
        write_shards([], tmp_path, "gz")
    with pytest.raises(ValueError, match="shard_bytes is 0"):
        write_shards([], tmp_path, "tar", 0)
    for data in (b"a\nb", b"a\r"):
        with pytest.raises(ValueError, match="sample 0 holds a line's end"):
            write_shards([{"data": data}], tmp_path, "lines")
    assert list(tmp_path.iterdir()) == []
