"""RecordIO-protobuf: what the SageMaker SDK's own writers made is read, record by record and in batches alike."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from format_channels import file_of
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import format_of, protobuf_record, recordio, recordio_protobuf
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.protobuf import encode, encode_varint
from sagemaker_channels.formats.protobuf_record import Blob, Sparse
from sagemaker_channels.formats.recordio_protobuf import SparseRows, as_tensors
from sagemaker_channels.sample import Sample

CASES = json.loads((Path(__file__).parents[3] / "data/sdk_records.json").read_text())
every_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def batches(stream: io.BytesIO, size: int, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    return format_of(f"recordio-protobuf; batch={size}").split(stream, key, cursor)


def written(rows: Any, labels: Any = None) -> bytes:
    """A file whose records are the rows of a matrix, which scipy may hold."""
    tensors = [row if isinstance(rows, np.ndarray) else Sparse(row.data, row.indices, row.shape[1:]) for row in rows]
    labelled = [{}] * len(tensors) if labels is None else [{"label": {"values": label[None]}} for label in labels]
    samples = [{"features": {"values": tensor}, **label} for tensor, label in zip(tensors, labelled, strict=True)]
    return file_of(recordio_protobuf.FORMAT, samples)


def dense(value: Any) -> list[Any]:
    """A tensor's numbers, the zeros of a sparse one as well."""
    if isinstance(value, Sparse):
        row = np.zeros(value.shape, value.values.dtype)
        row.reshape(-1)[value.keys.astype(int)] = value.values
        value = row
    return list(value.tolist())


def rows_of(data: bytes) -> list[Any]:
    return [sample["features"]["values"] for sample in recordio_protobuf.FORMAT.split(io.BytesIO(data), "o")]


def plain(value: Any) -> Any:
    """Something to compare with."""
    if isinstance(value, dict):
        return {name: plain(content) for name, content in value.items()}
    if isinstance(value, (Sparse, SparseRows)):
        return [part.tolist() if isinstance(part, np.ndarray) else part for part in value]
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.tolist())
    return [plain(item) for item in value] if isinstance(value, list) else value


@every_case
def test_records_of_the_sdk_are_read_singly(case: dict[str, Any]) -> None:
    data = base64.b64decode(case["file"])
    samples = list(recordio_protobuf.FORMAT.split(io.BytesIO(data), "o"))
    dtype = {"int64": "int32"}.get(case["dtype"], case["dtype"])
    assert [dense(sample["features"]["values"]) for sample in samples] == case["rows"]
    for number, sample in enumerate(samples):
        value = sample["features"]["values"]
        assert isinstance(value, Sparse) == case["sparse"]
        assert (value.values if case["sparse"] else value).dtype == dtype
        wanted = {} if case["labels"] is None else {"values": [case["labels"][number]]}
        assert {name: label.tolist() for name, label in sample["label"].items()} == wanted


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@every_case
def test_records_of_the_sdk_are_read_in_batches(case: dict[str, Any], size: int) -> None:
    data = base64.b64decode(case["file"])
    cursor = Cursor()
    found = 0
    for batch in batches(io.BytesIO(data), size, "o", cursor):
        tensors = as_tensors(batch)
        rows = tensors["features"]["values"]
        assert rows.is_sparse == case["sparse"]
        wanted = case["rows"][found : found + size]
        assert (rows.to_dense() if case["sparse"] else rows).tolist() == wanted
        if case["labels"] is not None:
            assert tensors["label"]["values"].tolist() == [[label] for label in case["labels"][found : found + size]]
        found += len(wanted)
        assert len(batch["__key__"]) == len(wanted)
        rest = list(recordio_protobuf.FORMAT.split(io.BytesIO(data), "o", Cursor(cursor.position)))
        assert len(rest) == len(case["rows"]) - found
    assert found == len(case["rows"])


@every_case
def test_written_records_equal_the_sdks(case: dict[str, Any]) -> None:
    rows = np.array(case["rows"], case["dtype"])
    labels = None if case["labels"] is None else np.array(case["labels"])
    if labels is not None and case["name"] in ("dense float32", "dense float64, labels float32"):
        labels = labels.astype("f4")
    data = written(scipy.sparse.csr_matrix(rows) if case["sparse"] else rows, labels)
    if "magic" in case["name"]:  # the SDK's leaves the magic word inside
        assert [dense(row) for row in rows_of(data)] == case["rows"]
    else:
        theirs = list(recordio_protobuf.FORMAT.split(io.BytesIO(base64.b64decode(case["file"]))))
        ours = list(recordio_protobuf.FORMAT.split(io.BytesIO(data)))
        assert plain(ours) == plain(theirs)
        assert len(data) == len(base64.b64decode(case["file"]))


def test_every_kind_of_value_is_read_back() -> None:
    samples: list[dict[str, Any]] = [
        {
            "features": {
                "image": Blob([b"\x89PNG", b""], "image/png"),
                "matrix": np.arange(6, dtype="f8").reshape(2, 3),
                "sparse matrix": Sparse(np.array([1.5], "f4"), np.array([5], "u8"), (2, 3)),
                "é": np.array([-1, 2**31 - 1], "i4"),
                "nothing": None,
            },
            "label": {"a": np.array([1.0], "f4"), "b": np.array([2], "i4")},
            "uid": "17",
            "metadata": "{}",
            "configuration": "x",
        },
        {"features": {}, "label": {}},
    ]
    data = file_of(recordio_protobuf.FORMAT, samples)
    assert plain(list(recordio_protobuf.FORMAT.split(io.BytesIO(data)))) == plain(samples)
    (batch,) = batches(io.BytesIO(data), 10)
    assert batch["uid"] == ["17", None]
    assert batch["features"]["image"] == [Blob([b"\x89PNG", b""], "image/png"), None]
    assert list(recordio_protobuf.FORMAT.split(io.BytesIO(recordio_bytes(b"")))) == [{"features": {}, "label": {}}]


def recordio_bytes(*payloads: bytes) -> bytes:
    stream = io.BytesIO()
    recordio.write(stream, payloads)
    return stream.getvalue()


def test_unpacked_numbers_are_read() -> None:
    def record(kind: int, tensor: bytes) -> bytes:
        return encode(1, encode(1, b"x") + encode(2, encode(kind, tensor)))

    floats = np.array([1.5, -2.5], "<f4")
    unpacked = b"".join(b"\x0d" + value.tobytes() for value in floats)
    whole = b"\x08" + encode_varint(300) + b"\x08" + encode_varint(2**64 - 1)
    data = recordio_bytes(record(2, unpacked), record(7, whole), record(2, encode(1, floats.tobytes())))
    found = [sample["features"]["x"].tolist() for sample in recordio_protobuf.FORMAT.split(io.BytesIO(data))]
    assert found == [[1.5, -2.5], [300, -1], [1.5, -2.5]]
    (batch,) = batches(io.BytesIO(data), 3)
    assert [value.tolist() for value in batch["features"]["x"]] == found


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Files of runs of records that are alike, then others."""
    payloads = []
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    for _ in range(draw(st.integers(0, 4))):
        dtype = draw(st.sampled_from(["f4", "f8", "i4"]))
        columns = draw(st.integers(0, 5))
        sparse = draw(st.sampled_from([False, False, True]))
        top = draw(st.sampled_from([2, 200, 100_000]))
        for _ in range(draw(st.integers(1, 8))):
            row = random.integers(0, top, columns).astype(dtype)
            tensor = Sparse(row, np.arange(columns, dtype="u8") * 3, (40,)) if sparse else row
            sample = {"features": {"x": tensor}, "label": {"values": random.integers(0, top, 1).astype("i4")}}
            payloads.append(protobuf_record.encode_record(sample))
    return recordio_bytes(*payloads)


@settings(max_examples=150)
@given(files(), st.integers(1, 9))
def test_batches_hold_the_values_of_the_records(data: bytes, size: int) -> None:
    wanted = [plain(sample) for sample in recordio_protobuf.FORMAT.split(io.BytesIO(data))]
    found = []
    for batch in batches(io.BytesIO(data), size):
        features, labels = batch["features"]["x"], batch["label"]["values"]
        for number, label in enumerate(labels):
            if isinstance(features, SparseRows):
                start, stop = features.starts[number : number + 2]
                value: Any = Sparse(features.values[start:stop], features.keys[start:stop], features.shape)
            else:
                value = features[number]
            found.append(plain({"features": {"x": value}, "label": {"values": label}}))
    assert found == wanted


def test_batches_over_many_windows_resume_from_any_position() -> None:
    rows = np.random.default_rng(0).random((3000, 784)).astype("f4")
    data = written(rows, rows[:, 0])
    cursor = Cursor()
    place = 0
    for batch in batches(io.BytesIO(data), 256, cursor=cursor):
        tensors = as_tensors(batch)
        count = len(tensors["label"]["values"])
        assert torch.equal(tensors["features"]["values"], torch.from_numpy(rows[place : place + count]))
        assert torch.equal(tensors["label"]["values"][:, 0], torch.from_numpy(rows[place : place + count, 0]))
        place += count
        if place in (256, 2560):
            again = next(batches(io.BytesIO(data), 5, cursor=Cursor(cursor.position)))
            assert np.array_equal(again["features"]["values"], rows[place : place + 5])
    assert place == 3000


@every_case
def test_cut_is_an_error_and_any_damage_raises_corrupt_error_only(case: dict[str, Any]) -> None:
    data = base64.b64decode(case["file"])
    ends, cursor = {0}, Cursor()
    for _ in recordio_protobuf.FORMAT.split(io.BytesIO(data), None, cursor):
        ends.add(cursor.position)
    for cut in range(0, len(data), 1 if len(data) < 700 else 7):
        for read in (recordio_protobuf.FORMAT.split, lambda stream: batches(stream, 4)):
            if cut in ends:
                list(read(io.BytesIO(data[:cut])))
            else:
                with pytest.raises(CorruptError, match=r"byte \d+"):
                    list(read(io.BytesIO(data[:cut])))
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        counts = set()
        for read in (recordio_protobuf.FORMAT.split, lambda stream: batches(stream, 1)):
            try:
                counts.add(len(list(read(io.BytesIO(bytes(damaged))))))
            except CorruptError:
                continue
        assert counts <= {len(case["rows"])}


@pytest.mark.parametrize(
    ("sparse", "message"),
    [
        (Sparse(np.array([1.0], "f4"), np.array([4], "u8"), (4,)), r"shape \(4,\) has a value at key 4"),
        (Sparse(np.array([1.0], "f4"), np.array([1, 2], "u8"), (4,)), "differ in number|has 2 keys"),
        (Sparse(np.array([1.0, 2.0], "f4"), np.array([], "u8"), (4,)), r"shape \(4,\) has 2 values"),
        (Sparse(np.array([], "f4"), np.array([], "u8"), (0, 1 << 63)), "impossible shape"),
        (Sparse(np.array([1.0], "f4"), np.array([1], "u8"), (1 << 62,)), "impossible shape"),
        (Sparse(np.array([1.0], "f4"), np.array([1], "u8"), (1 << 31, 1 << 31)), "impossible shape"),
        (
            Sparse(np.array([1.0], "f4"), np.array([1 << 63], "u8"), ()),
            r"shape \(\) has a value at key 9223372036854775808",
        ),
    ],
)
def test_inconsistent_sparse_tensor_is_refused(sparse: Sparse, message: str) -> None:
    if 1 << 63 in sparse.shape:
        tensor = encode(3, encode_varint(0) + encode_varint(1 << 63))
        record = encode(1, encode(1, b"x") + encode(2, encode(2, tensor)))
    else:
        record = protobuf_record.encode_record({"features": {"x": sparse}})
    data = recordio_bytes(protobuf_record.encode_record({}), record)
    with pytest.raises(CorruptError, match=f"object 'o', byte 8: .*{message}"):
        list(recordio_protobuf.FORMAT.split(io.BytesIO(data), "o"))
    with pytest.raises(CorruptError, match=f"object 'o', byte .*({message})"):
        list(batches(io.BytesIO(data[8:]), 4, "o"))


def test_damaged_tag_is_an_error() -> None:
    inner = encode(1, encode(1, b"image"))
    value = encode(2, encode(2, encode(1, np.ones(2, "f4").tobytes()) + encode(3, b"\2")))
    for record in (
        encode(9, encode(1, b"x") + value),
        encode(1, encode(9, b"x") + value),
        encode(1, encode(1, b"x") + encode(10, b"")),
        encode(1, encode(1, b"x") + encode(2, encode(2, encode(9, bytes(8))))),
        encode(1, encode(1, b"x") + encode(2, encode(9, inner + encode(5, b"")))),
    ):
        data = recordio_bytes(protobuf_record.encode_record({}), encode(1, encode(1, b"x") + value), record)
        for form in (recordio_protobuf.FORMAT.split, lambda stream, key: batches(stream, 1, key)):
            with pytest.raises(
                CorruptError, match=r"object 'o', byte \d+: not a record of recordio-protobuf, or damaged: "
            ):
                list(form(io.BytesIO(data), "o"))


@pytest.mark.parametrize("rows", [np.array([[2**31]]), np.array([[1j]])])
def test_writing_unsupported_values_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="expected float32"):
        written(rows)
