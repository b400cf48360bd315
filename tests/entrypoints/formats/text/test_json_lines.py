"""JSON lines: parsed, one sample each, in any pieces and from any sample on; what is no JSON is an error with its offset."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format_channels import file_of
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import json_lines
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.sample import Sample
from stream_pieces import Pieces

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def read(data: bytes, key: str | None = "k", start: int = 0) -> list[Sample]:
    return list(json_lines.FORMAT.split(io.BytesIO(data), key, Cursor(start)))


@settings(max_examples=30)  # JSON takes long to think of
@given(st.lists(st.dictionaries(st.text(), JSON), max_size=3), st.integers(1, 9), st.booleans())
def test_objects_are_read_in_any_pieces(values: list[Sample], size: int, ascii: bool) -> None:
    data = "\n".join(json.dumps(value, ensure_ascii=ascii) for value in values).encode("utf-8", "surrogatepass")
    assert list(json_lines.FORMAT.split(Pieces(data, size))) == values


@settings(max_examples=30)
@given(st.lists(JSON.filter(lambda value: not isinstance(value, dict))))
def test_values_other_than_objects_are_data(values: list[object]) -> None:
    samples = [{"data": value} for value in values]
    assert list(json_lines.FORMAT.split(io.BytesIO(file_of(json_lines.FORMAT, samples)))) == samples


def test_key_is_the_objects_unless_a_line_has_its_own() -> None:
    assert read(b'{"a": 1}\n{"__key__": "own"}\n[2]') == [
        {"__key__": "k", "a": 1},
        {"__key__": "own"},
        {"__key__": "k", "data": [2]},
    ]


def test_blank_lines_and_marks_are_skipped_and_unicode_separators_kept() -> None:
    text = '\ufeff{"a": "x\u2028y\u0085z"}\r\n\r\n  \n\ufeff{"a": 2}  \n\n'
    assert read(text.encode(), None) == [{"a": "x\u2028y\u0085z"}, {"a": 2}]
    assert read(b"") == read(b"\n \n") == read("\ufeff".encode()) == []


def test_json_objects_on_one_line_are_read_in_a_joined_stream() -> None:
    joined = '{"a": "ü"}{"a": 2} \ufeff{"a": 3}\r\n{"a": 4}'.encode()
    cursor = Cursor()
    positions = [cursor.position for _ in json_lines.FORMAT.split(io.BytesIO(joined), None, cursor)]
    every = read(joined, None)
    assert [sample["a"] for sample in every] == ["ü", 2, 3, 4]
    for number, position in enumerate(positions, 1):
        assert read(joined, None, position) == every[number:]
    with pytest.raises(CorruptError, match=r"byte 0: not a line of JSON .* more text follows"):
        read(joined)


def test_cut_inside_a_line_is_an_error() -> None:
    data = b'{"a": 1}\n{"bb": [true, "x"]}\n'
    for size in range(10, len(data) - 1):
        with pytest.raises(CorruptError, match=r"object 'k', byte 9: not a line of JSON"):
            read(data[:size])


@pytest.mark.parametrize("line", [b"{'a': 1}", b"\xff", b'{"a": 1},', b"1 2", b"[" * 100_000, b"9" * 5000, b"\0\0"])
def test_invalid_json_is_an_error_with_its_offset(line: bytes) -> None:
    with pytest.raises(CorruptError, match="object 'k', byte 3: not a line of JSON in UTF-8, or damaged"):
        read(b"{}\n" + line)


def test_reading_resumes_after_every_sample() -> None:
    data = b'{"a": 1}\n\n{"a": 2}\r\n{"a": 3}'
    cursor = Cursor()
    positions = [cursor.position for _ in json_lines.FORMAT.split(io.BytesIO(data), None, cursor)]
    for number, position in enumerate(positions, 1):
        assert [sample["a"] for sample in read(data, None, position)] == [1, 2, 3][number:]


def test_writing_bytes_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"sample 1 .__key__ 'k'.: field 'a' is bytes: JSON cannot hold it: .*bytes is not JSON"
    ):
        file_of(json_lines.FORMAT, [{}, {"__key__": "k", "b": 1, "a": b""}])
