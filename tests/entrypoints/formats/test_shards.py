"""Shards: numbered files of the size asked for, which the formats read back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagemaker_channels.formats import SHORT_NAMES, format_of
from sagemaker_channels.formats.protobuf_record import Blob
from sagemaker_channels.formats.shards import write_shards
from sagemaker_channels.sample import Sample

COUNT = 100
ENDINGS = {name: form.ending for name, form in SHORT_NAMES.items() if form.ending}


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


@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize("shard_bytes", [1, 20_000, 1 << 30])
def test_written_shards_are_read_back(format: str, shard_bytes: int, tmp_path: Path) -> None:
    samples = samples_of(format)
    shards = write_shards(iter(samples), tmp_path / "new", format, shard_bytes)
    assert shards == sorted((tmp_path / "new").iterdir())
    assert shards[0].name == "00000" + ENDINGS[format]
    assert [repr(sample["features"]["x"]) if "features" in sample else sample for sample in read(shards, format)] == [
        repr(sample["features"]["x"]) if "features" in sample else sample for sample in samples
    ]
    if shard_bytes == 1:
        assert len(shards) == COUNT
    elif shard_bytes == 1 << 30:
        assert len(shards) == 1
    else:
        assert 5 <= len(shards) <= 10


def test_every_format_but_objects_and_augmented_has_a_writer() -> None:
    assert SHORT_NAMES.keys() - ENDINGS.keys() == {"objects", "augmented"}


def test_old_shards_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    samples = samples_of("tar")
    write_shards(samples, tmp_path, "tar", 50_000)
    (tmp_path / "00000.tar").unlink()
    with pytest.raises(FileExistsError, match=r"00001\.tar exists; remove the old shards"):
        write_shards(samples[:1], tmp_path, "tar")
    assert write_shards(samples[:1], tmp_path, "zip") == [tmp_path / "00000.zip"]


def test_interrupted_writing_leaves_complete_shards_only(tmp_path: Path) -> None:
    def failing() -> Iterator[Sample]:
        yield from samples_of("recordio")[:30]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_shards(failing(), tmp_path, "recordio", 20_000)
    left = sorted(tmp_path.iterdir())
    assert [path.name for path in left] == ["00000.rec"]
    assert list(read(left, "recordio")) == samples_of("recordio")[:17]


def test_invalid_format_size_or_sample_is_refused(tmp_path: Path) -> None:
    assert write_shards([], tmp_path, "tar") == []
    with pytest.raises(ValueError, match="format 'gz' has no writer of shards; expected one of tar, zip"):
        write_shards([], tmp_path, "gz")
    with pytest.raises(ValueError, match="shard_bytes is 0"):
        write_shards([], tmp_path, "tar", 0)
    with pytest.raises(ValueError, match="sample 0: expected a dict of fields, got tuple"):
        write_shards([("a", b"")], tmp_path, "tar")  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []


NAMES = r"its __key__ names its files in the archive: expected a text"
UNWRITABLE: list[tuple[str, Any, str]] = [
    *(
        (form, samples, reason)
        for form in ("tar", "zip")
        for samples, reason in [
            ({"x": b""}, NAMES),
            ({"__key__": "", "x": b""}, NAMES),
            ({"__key__": 3, "x": b""}, r"\(__key__ 3\): " + NAMES),
            ({"__key__": "a.b", "x": b""}, NAMES),
            ({"__key__": "a/", "x": b""}, NAMES),
            ({"__key__": "a\0b", "x": b""}, NAMES),
            ({"__key__": "a\ud800", "x": b""}, "surrogates not allowed"),
            ({"__key__": "a"}, "it has no fields, so no files, and would be lost"),
            ({"__key__": "a", "p/g": b""}, "field 'p/g' cannot be a file's ending"),
            ({"__key__": "a", "p\0": b""}, r"field 'p\\x00' cannot be a file's ending"),
            ({"__key__": "a", "cls": 3}, r"\(__key__ 'a'\): field 'cls': expected bytes, got int"),
            ({"__key__": "a", "cls": None}, "field 'cls': expected bytes, got NoneType"),
            (
                {"__key__": "a", "txt": "t"},
                r"field 'txt': expected bytes, got str; encode the text: \.encode\(\)",
            ),
            (
                {"__key__": "good", "other": b""},
                "(the sample before has the same|an earlier sample has this) __key__, and both would be read as one",
            ),
        ]
    ),
    ("zip", [{"__key__": "b", "x": b""}, {"__key__": "good", "x": b""}], "an earlier sample has this __key__"),
    ("zip", {"__key__": "a\udcff", "x": b""}, "surrogates not allowed"),
    ("zip", {"__key__": "__MACOSX/a", "x": b""}, "members in __MACOSX/ are skipped"),
    ("zip", {"__key__": "a" * 70_000, "x": b""}, "its files' names have 70002 bytes; a zip allows at most 65535"),
    *(
        (form, sample, reason)
        for form in ("recordio", "tfrecord", "lines", "image-recordio")
        for sample, reason in [
            ({"x": b""}, "field 'data' is missing; the sample has 'x'"),
            ({}, "field 'data' is missing; the sample has none"),
            ({"__key__": "k"}, r"\(__key__ 'k'\): field 'data' is missing"),
            ({"data": "text"}, "field 'data': expected bytes, got str; encode the text"),
            ({"data": b"", "lable": b""}, "field 'lable' would be lost in this format"),
        ]
    ),
    ("lines", {"data": b"a\nb"}, "it has a line feed, or ends with a carriage return"),
    ("lines", {"data": b"a\r"}, "it has a line feed, or ends with a carriage return"),
    (
        "image-recordio",
        {"data": b"", "label": "a"},
        "its label and ids {'label': 'a'} cannot be written: could not convert",
    ),
    ("image-recordio", {"data": b"", "id": -1}, "its label and ids {'id': -1} cannot be written"),
    (
        "image-recordio",
        {"data": b"", "label": 1e300},
        "its label and ids {'label': 1e.300} cannot be written: .*too large",
    ),
    ("recordio-protobuf", {"features": 3}, "field 'features': expected a dict of arrays, got int"),
    (
        "recordio-protobuf",
        {"features": {"x": [1]}},
        "field 'features', 'x': expected an array, Sparse or Blob, got list",
    ),
    ("recordio-protobuf", {"features": {"x": Blob(["a"], "")}}, "field 'features', 'x': "),  # type: ignore[list-item]
    ("recordio-protobuf", {"uid": 3}, "field 'uid': expected a text, got int"),
    ("recordio-protobuf", {"lable": {}}, "field 'lable' would be lost"),
    ("tfrecord-example", {"x": 1j}, "feature 'x': an Example holds bytes, float32 and int64"),
    *((form, {"x": b"", 3: b""}, r"its fields are \['x', 3\]; their names must be texts") for form in ENDINGS),
    ("parquet", {}, "it has no fields"),
    ("parquet", {"text": 3}, "field 'text' does not fit the column: "),
    ("jsonl", {"text": b""}, "field 'text' is bytes: JSON cannot hold it"),
    ("csv", {"data": ["a"]}, "a row of 1 fields, expected 2 as in the first sample"),
    ("csv", {"data": "ab"}, "field 'data': expected a list of the row's fields, got str"),
]


def good_of(format: str) -> Sample:
    sample = samples_of(format)[0]
    return {**sample, "__key__": "good"} if "__key__" in sample else sample


@pytest.mark.parametrize(("format", "bad", "reason"), UNWRITABLE, ids=lambda value: str(value)[:50])
def test_unreadable_sample_is_refused_by_number_and_leaves_no_file(
    format: str, bad: Sample | list[Sample], reason: str, tmp_path: Path
) -> None:
    bad = bad if isinstance(bad, list) else [bad]
    samples = [good_of(format), *bad]
    with pytest.raises(ValueError, match=rf"^sample {len(bad)}[: ].*{reason}") as caught:
        write_shards(samples, tmp_path, format)
    assert list(tmp_path.iterdir()) == []
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy)) == (type(caught.value), str(caught.value))


def test_number_of_a_refused_sample_counts_all_shards(tmp_path: Path) -> None:
    samples = samples_of("tar")[:30]
    samples[25]["txt"] = "text"
    with pytest.raises(ValueError, match=r"^sample 25 \(__key__ '000025'\): field 'txt': expected bytes, got str"):
        write_shards(samples, tmp_path, "tar", 10_000)
    found = list(read(sorted(tmp_path.iterdir()), "tar"))
    assert found == samples[: len(found)]
    assert len(found) > 10


def test_equal_keys_may_be_split_between_shards(tmp_path: Path) -> None:
    samples: list[Sample] = [{"__key__": "a", "x": b"1"}, {"__key__": "a", "x": b"2"}]
    for format in ("tar", "zip"):
        assert list(read(write_shards(samples, tmp_path, format, 1), format)) == samples


@pytest.mark.parametrize("value", [bytearray(b"a"), memoryview(b"a")])
def test_bytearray_and_memoryview_fields_are_written(value: bytearray | memoryview, tmp_path: Path) -> None:
    for format in ("tar", "zip", "recordio", "tfrecord", "lines", "image-recordio"):
        field = "x" if format in ("tar", "zip") else "data"
        shards = write_shards([{"__key__": "k", field: value}], tmp_path / format, format)
        assert [sample[field] for sample in read(shards, format)] == [b"a"]


def test_folder_may_be_a_string_and_is_created(tmp_path: Path) -> None:
    assert write_shards(samples_of("tar"), str(tmp_path / "new" / "er"), "tar") == [
        tmp_path / "new" / "er" / "00000.tar"
    ]
