"""Image RecordIO: labels where the header has them and where they follow it."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from format_channels import file_of
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import format_of, image_recordio, recordio

MAGIC = struct.pack("<I", 0xCED7230A)


def recordio_bytes(*payloads: bytes) -> bytes:
    stream = io.BytesIO()
    recordio.write(stream, payloads)
    return stream.getvalue()


def read(*payloads: bytes) -> list[dict[str, Any]]:
    return list(image_recordio.FORMAT.split(io.BytesIO(recordio_bytes(*payloads)), "o.rec"))


def header(flag: int, label: float, id: int = 0, id2: int = 0) -> bytes:
    """An IRHeader by the format's description, without the writer under test."""
    return struct.pack("<I", flag) + struct.pack("<f", label) + struct.pack("<QQ", id, id2)


def test_single_label_is_read_from_the_header() -> None:
    assert read(header(0, 3, 17, 2**63) + b"jpg") == [
        {"__key__": "o.rec", "data": b"jpg", "label": 3.0, "id": 17, "id2": 2**63}
    ]


def test_several_labels_are_read_after_the_header() -> None:
    (sample,) = read(header(2, 99) + struct.pack("<2f", 0.5, -1) + b"jpg")
    assert sample["data"] == b"jpg"
    assert sample["label"].dtype == np.float32
    assert sample["label"].tolist() == [0.5, -1]
    (sample,) = read(header(1, 99) + struct.pack("<f", 7))
    assert (sample["data"], sample["label"].tolist()) == (b"", [7])


labels = st.one_of(st.floats(width=32, allow_nan=False), st.lists(st.floats(width=32, allow_nan=False), min_size=1))
ids = st.integers(0, 2**64 - 1)
images = st.lists(st.one_of(st.just(MAGIC), st.binary(max_size=9)), max_size=5).map(b"".join)


@given(st.lists(st.fixed_dictionaries({"data": images, "label": labels, "id": ids, "id2": ids}), max_size=5))
def test_written_samples_are_read_back(samples: list[dict[str, Any]]) -> None:
    found = list(image_recordio.FORMAT.split(io.BytesIO(file_of(image_recordio.FORMAT, samples))))
    for sample in found:
        if not isinstance(sample["label"], float):
            sample["label"] = sample["label"].tolist()
    assert found == samples
    arrays = file_of(image_recordio.FORMAT, [{"data": b"", "label": each} for each in (np.float32(2), np.array(3))])
    assert [s["label"] for s in image_recordio.FORMAT.split(io.BytesIO(arrays))] == [2.0, 3.0]


def test_record_too_short_for_its_labels_is_an_error() -> None:
    whole = header(2, 0) + struct.pack("<2f", 1, 2) + b"jpg"
    for cut in range(len(whole) - 3):
        with pytest.raises(
            CorruptError, match=r"object 'o.rec', byte 36: not a record of image-recordio, or damaged: .*the record has"
        ):
            read(header(0, 0) + b"jpg", whole[:cut])
    with pytest.raises(ValueError, match="needs a label"):
        image_recordio.encode(b"", [])


def test_image_recordio_is_chosen_by_name_only() -> None:
    assert format_of("image-recordio") is image_recordio.FORMAT
    assert format_of("application/x-recordio") is recordio.FORMAT
