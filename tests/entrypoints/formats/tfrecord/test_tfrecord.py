"""TFRecord and tf.train.Example: what another package writes is read, and no damage goes unseen."""

from __future__ import annotations

import gzip
import io
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord.reader import example_loader, tfrecord_iterator
from tfrecord.writer import TFRecordWriter

from format_channels import file_of
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import example, tfrecord
from sagemaker_channels.formats.protobuf import encode, encode_varint, encode_varints, varint, varints
from stream_pieces import Pieces


def written(*payloads: bytes) -> bytes:
    return b"".join(piece for payload in payloads for piece in tfrecord.encode(payload))


def read(data: bytes) -> list[bytes]:
    return [sample["data"] for sample in tfrecord.FORMAT.split(io.BytesIO(data), "o.tfrecord")]


def framed(payload: bytes) -> bytes:
    """A record by another package's checksums."""
    length = struct.pack("<Q", len(payload))
    checksum: Callable[[bytes], bytes] = TFRecordWriter.masked_crc
    return length + checksum(length) + payload + checksum(payload)


def plain(features: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in features.items()}


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 40), st.booleans())
def test_written_payloads_are_read_back_in_any_pieces(payloads: list[bytes], size: int, compressed: bool) -> None:
    data = b"".join(map(framed, payloads))
    assert written(*payloads) == data
    stream = Pieces(gzip.compress(data) if compressed else data, size)
    assert [sample["data"] for sample in tfrecord.FORMAT.split(stream)] == payloads


def test_records_around_the_window_size_and_a_gzip_like_length_are_read() -> None:
    sizes = [0, 1, (1 << 20) - 16, 1 << 20, 3_000_000, 0x8B1F, 10]
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert read(written(*payloads)) == payloads
    assert read(written(bytes(0x088B1F), b"x")) == [bytes(0x088B1F), b"x"]
    assert read(b"") == []
    assert read(written(b"", b"")) == [b"", b""]


@pytest.mark.parametrize("first", [b"abc", b""])
def test_cut_or_changed_byte_is_an_error(first: bytes) -> None:
    data = written(first, b"defg")
    second = len(written(first))
    for cut in range(len(data)):
        if cut in (0, second):
            assert read(data[:cut]) == ([first] if cut else [])
        else:
            with pytest.raises(CorruptError, match=r"object 'o.tfrecord', byte \d+: not TFRecord, or damaged"):
                read(data[:cut])
    for place in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= change
            with pytest.raises(CorruptError, match=f"byte {0 if place < second else second}: "):
                read(bytes(damaged))


def test_damage_of_a_compressed_file_is_an_error_or_changes_nothing() -> None:
    payloads = [b"abc" * 5, b"", b"defg"]
    data = written(*payloads)
    compressed = gzip.compress(data[:20], mtime=0) + gzip.compress(data[20:], mtime=0)
    assert read(compressed) == payloads
    assert read(compressed + bytes(7)) == payloads
    for cut in range(1, len(compressed)):
        with pytest.raises(CorruptError, match=r"byte \d+"):
            read(compressed[:cut])
    for place in range(len(compressed)):
        damaged = bytearray(compressed)
        damaged[place] ^= 0x55
        try:
            found = read(bytes(damaged))
        except CorruptError:
            continue
        assert found == payloads, place  # gzip's time, system and the like tell nothing of the content


def test_records_before_the_damage_are_yielded() -> None:
    stream = tfrecord.FORMAT.split(io.BytesIO(written(b"a", b"b") + b"junk"))
    assert next(stream) == {"data": b"a"}
    assert next(stream) == {"data": b"b"}
    with pytest.raises(CorruptError, match=r"byte 34: .*8 bytes before the end of a record's header"):
        next(stream)


def test_missing_crc32c_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.raises(ImportError, match=r"sagemaker-launch\[formats\]"):
        read(b"")


features = st.dictionaries(
    st.text(max_size=5),
    st.one_of(
        st.lists(st.binary(max_size=200), min_size=1, max_size=3).map(lambda values: (values, "byte")),
        st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40).map(lambda values: (values, "float")),
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40).map(lambda values: (values, "int")),
        st.lists(st.integers(0, 300), min_size=1, max_size=40).map(lambda values: (values, "int")),
    ),
    max_size=4,
)


@settings(max_examples=200)
@given(features)
def test_examples_of_another_writer_are_decoded_and_encoded_back(datum: dict[str, Any]) -> None:
    found = example.decode(TFRecordWriter.serialize_tf_example(datum))
    assert plain(found) == {
        name: values[0] if kind == "byte" and len(values) == 1 else values for name, (values, kind) in datum.items()
    }
    assert plain(example.decode(example.encode_example(found))) == plain(found)


def test_files_are_exchanged_with_another_library(tmp_path: Path) -> None:
    path = tmp_path / "file.tfrecord"
    writer = TFRecordWriter(str(path))
    random = np.random.default_rng(1)
    data = [
        {"image": (random.bytes(n * 997), "byte"), "label": (n, "int"), "box": ([n, 0.5], "float")} for n in range(50)
    ]
    for datum in data:
        writer.write(datum)
    writer.close()
    with path.open("rb", buffering=0) as stream:
        found = list(example.FORMAT.split(stream, "file"))
    assert [(s["__key__"], s["image"], s["label"].tolist(), s["box"].tolist()) for s in found] == [
        ("file", datum["image"][0], [n], [n, 0.5]) for n, datum in enumerate(data)
    ]
    assert found[1]["label"].dtype == np.int64
    assert found[1]["box"].dtype == np.float32
    assert found[1]["box"].flags.writeable
    ours = tmp_path / "ours.tfrecord"
    ours.write_bytes(file_of(example.FORMAT, found))
    assert [bytes(record) for record in tfrecord_iterator(str(ours))] == read(ours.read_bytes())
    for theirs, sample in zip(example_loader(str(ours), None), found, strict=True):
        assert theirs["image"] == sample["image"]
        assert theirs["label"].tolist() == sample["label"].tolist()


def test_unusual_examples_are_decoded() -> None:
    assert example.decode(b"") == {}
    assert example.decode(encode(1, b"")) == {}

    def entry(feature: bytes) -> bytes:
        return encode(1, encode(1, encode(1, b"x") + encode(2, feature)))

    unpacked = b"".join(encode_varint(1 << 3) + encode_varint(value) for value in (1, 300, 2**64 - 1))
    assert example.decode(entry(encode(3, unpacked)))["x"].tolist() == [1, 300, -1]  # type: ignore[union-attr]
    both = b"\x0d" + struct.pack("<f", 1.5) + encode(1, struct.pack("<2f", 2.5, 3.5))
    assert example.decode(entry(encode(2, both)))["x"].tolist() == [1.5, 2.5, 3.5]  # type: ignore[union-attr]
    assert example.decode(entry(b"")) == {"x": None}
    assert example.decode(entry(encode(1, b""))) == {"x": []}
    assert example.decode(entry(encode(1, encode(1, b"a") + encode(1, b"")))) == {"x": [b"a", b""]}
    assert example.decode(entry(encode(2, b"")))["x"].shape == (0,)  # type: ignore[union-attr]
    assert example.decode(entry(encode(1, encode(1, b"a")) + encode(3, encode(1, b"\5"))))["x"].tolist() == [5]  # type: ignore[union-attr]
    late = encode(1, encode(1, encode(2, encode(1, encode(1, b"v"))) + encode(1, b"x")))  # the value before its key
    assert example.decode(late) == {"x": b"v"}
    assert example.decode(late + encode(9, b"unknown")) == {"x": b"v"}


def test_sequence_example_is_refused() -> None:
    lists = encode(1, encode(1, b"frames") + encode(2, encode(1, encode(3, encode(1, b"\5")))))
    data = written(example.encode_example({"id": 1}), example.encode_example({"id": 2}) + encode(2, lists))
    with pytest.raises(CorruptError, match=r"object 'f', byte 31: .* SequenceExample, .*; format tfrecord yields"):
        list(example.FORMAT.split(io.BytesIO(data), "f"))


def test_damaged_example_raises_value_or_corrupt_error_only() -> None:
    whole = example.encode_example({"a": b"12", "b": [1.5, 2.5], "c": [3, 400, -5], "d": [b"", b"x" * 130], "e": "é"})
    for cut in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"."):
            example.decode(whole[:cut])
    for place in range(len(whole)):
        for change in range(1, 256):
            damaged = bytearray(whole)
            damaged[place] ^= change
            try:
                example.decode(bytes(damaged))
            except ValueError:
                continue
    with pytest.raises(CorruptError, match=r"object 'o', byte 16: not a record of tfrecord-example"):
        list(example.FORMAT.split(io.BytesIO(written(b"", b"\x0a\x05")), "o"))


@pytest.mark.parametrize("value", [np.zeros((2, 2)), [2**63], np.array([1j]), {"a": 1}, ["a", 1]])
def test_encoding_an_unsupported_value_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="feature 'x'"):
        example.encode_example({"x": value})


def widths(least: int, most: int) -> st.SearchStrategy[int]:
    """Numbers whose varints are of these widths in bytes, each as likely."""
    return st.integers(least, most).flatmap(
        lambda width: st.integers(1 << 7 * (width - 1) if width > 1 else 0, min(1 << 7 * width, 1 << 64) - 1)
    )


lists = st.tuples(st.integers(1, 10), st.integers(1, 10)).flatmap(
    lambda ends: st.lists(widths(min(ends), max(ends)), max_size=60)
)


few_or_many = st.sampled_from([1, 20])  # which are decoded in two ways


@settings(max_examples=300)
@given(lists, few_or_many)
def test_packed_varints_are_read_back_and_a_cut_one_refused(values: list[int], times: int) -> None:
    values *= times
    packed = b"".join(map(encode_varint, values))
    assert varints(packed).tolist() == values
    assert encode_varints(np.array(values, np.uint64)) == packed
    if packed:
        with pytest.raises(ValueError, match="cut off"):
            varints(packed[:-1] + bytes([packed[-1] | 128]))


@settings(max_examples=300)
@given(st.lists(st.sampled_from([0, 1, 127, 128, 129, 255]), max_size=80).map(bytes), few_or_many)
def test_packed_varints_equal_single_varints_for_any_bytes(data: bytes, times: int) -> None:
    data *= times
    wanted: list[int] = []
    place = 0
    try:
        while place < len(data):
            value, place = varint(data, place)
            wanted.append(value)  # also of writers that take more bytes than they need
    except ValueError:
        with pytest.raises(ValueError, match="cut off"):
            varints(data)
    else:
        assert varints(data).tolist() == wanted
