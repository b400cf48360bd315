"""CSV rows: what Python's csv writes comes back, in any pieces and from any row on; what is cut or uneven is an error."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from format_channels import file_of
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import format_of
from sagemaker_channels.formats.csv_rows import FORMAT
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format
from sagemaker_channels.sample import Sample
from stream_pieces import Pieces

NAMED = format_of("csv; header=present")
# No surrogates, which UTF-8 cannot hold; no NUL, which Python's csv reads from 3.11 on only.
TEXT = st.text(st.sampled_from('ab,"\n\r\t\u2028ü') | st.characters(exclude_categories=["Cs"], min_codepoint=1))
TABLES = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(TEXT, min_size=width, max_size=width)))


def read(data: bytes, form: Format = FORMAT, key: str | None = "k", start: int = 0) -> list[Sample]:
    return list(form.split(io.BytesIO(data), key, Cursor(start)))


@given(TABLES, st.integers(1, 9), st.sampled_from(["\n", "\r\n"]))
def test_rows_are_read_and_resumed_in_any_pieces(rows: list[list[str]], size: int, ending: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows(rows)
    cursor = Cursor()
    samples, positions = [], []
    data = text.getvalue().encode()
    for sample in FORMAT.split(Pieces(data, size), None, cursor):
        samples.append(sample["data"])
        positions.append(cursor.position)
    assert samples == rows
    for number, position in enumerate(positions, 1):
        assert [sample["data"] for sample in read(data, FORMAT, None, position)] == rows[number:]


@given(TABLES)
def test_written_rows_are_read_back(rows: list[list[str]]) -> None:
    samples = [{"data": row} for row in rows]
    assert read(file_of(FORMAT, samples), key=None) == samples


@pytest.mark.parametrize("seekable", [True, False])
def test_header_names_the_fields_also_after_resuming(seekable: bool) -> None:
    samples = [{"id": str(number), "a, b": "x\ny" * number} for number in range(5)]
    data, cursor = file_of(NAMED, samples), Cursor()
    positions = [cursor.position for _ in NAMED.split(io.BytesIO(data), None, cursor)]
    assert read(data, NAMED) == [{"__key__": "k", **sample} for sample in samples]
    for number, position in enumerate(positions, 1):
        rest = NAMED.split(Pieces(data, 5, seekable), None, Cursor(position))
        assert list(rest) == samples[number:]


def test_repeated_headers_of_joined_objects_are_skipped() -> None:
    data = "\ufeffa,b\n1,2\n\ufeffa,b\n3,4\n".encode()
    assert read(data, NAMED, None) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert read(b"a,b\na,b\n", NAMED) == [{"__key__": "k", "a": "a", "b": "b"}]


def test_blank_lines_and_byte_order_marks_are_skipped() -> None:
    assert read('\ufeff"a,",b\n\n\r\n1,2'.encode(), key=None) == [{"data": ["a,", "b"]}, {"data": ["1", "2"]}]
    assert read(b"") == read(b"\n") == read(b"", NAMED) == read(b"a,b\n", NAMED) == []


def test_field_of_three_megabytes_is_read() -> None:
    before = csv.field_size_limit()
    try:
        assert read(b"a," + b"x" * 3_000_000 + b"\n", key=None) == [{"data": ["a", "x" * 3_000_000]}]
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b'1,"2\n3,4\n', "unexpected end of data"),
        (b'1,"2"x\n', "expected after"),
        (b"1,2,3\n", "a row has 3 fields, expected 2 as before"),
        (b"1\n", "a row has 1 fields"),
        (b"1,\xff\n", "codec can't decode"),
        (b"1,2\r3,4\n", "new-line character"),
    ],
)
@pytest.mark.parametrize("form", [FORMAT, NAMED])
def test_malformed_row_is_an_error_with_its_offset(form: Format, row: bytes, reason: str) -> None:
    with pytest.raises(CorruptError, match=f"object 'k', byte 4: .*{reason}"):
        read(b"a,b\n" + row, form)


def test_cut_inside_quotes_is_an_error() -> None:
    data = b'a,b\n1,"2\n,""3"\n'
    for size in range(data.index(b'"') + 1, data.rindex(b'"')):
        if data[:size].count(b'"') % 2 == 0:
            continue  # the first half of an escaped quote closes the field as well
        with pytest.raises(CorruptError, match="byte 4: "):
            read(data[:size])


def test_duplicate_column_name_is_an_error() -> None:
    with pytest.raises(CorruptError, match=r"byte 0: the header has two columns 'a'"):
        read(b"a,b,a\n", NAMED)


def test_csv_options_are_parsed_and_wrong_ones_refused() -> None:
    assert format_of("csv") is FORMAT
    assert format_of("CSV; Header=present") == NAMED
    assert str(format_of('CSV; delimiter=";";header=present')) == 'csv; header=present; delimiter=";"'
    assert format_of(r"csv; delimiter=\t") == format_of("csv; delimiter=tab") != FORMAT
    for text, reason in [
        ("csv; header=yes", "header is 'yes'; write header=present or header=absent"),
        ('csv; delimiter=""', "delimiter is ''; write one character"),
        ("csv; headr=present", "has no parameter 'headr'; did you mean 'header'"),
        ("csv; header", "header is ''; write header=present"),
    ]:
        with pytest.raises(ChannelError, match=reason):
            format_of(text)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ([{"a": 1}, {"b": 1}], r"sample 1: it has the fields \['b'\], expected \['a'\] as in the first sample"),
        ([{"data": []}], "sample 0: a row of 0 fields"),
        ([{"data": ["a"]}, {"data": ["b", "c"]}], "sample 1: a row of 2 fields, expected 1 as in the first sample"),
        ([{"data": "abc"}], "sample 0: field 'data': expected a list of the row's fields, got str"),
        ([{"data": b"abc"}], "sample 0: field 'data': expected a list of the row's fields, got bytes"),
        ([{"data": 3}], "sample 0: field 'data': expected a list of the row's fields, got int"),
        ([{"data": ["a", b"b"]}], "sample 0: field 1 is bytes, and CSV holds texts"),
        ([{"__key__": "k", "x": b"b"}], r"sample 0 \(__key__ 'k'\): field 'x' is bytes, and CSV holds texts"),
        ([{"data": ["\ud800"]}], "sample 0: .*surrogates not allowed"),
        ([{"a": 1, "b": 2}, {"a": "a", "b": "b"}], "sample 1: its values are the fields' names: in a Pipe"),
    ],
)
def test_writing_unreadable_rows_is_refused(samples: list[Sample], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        file_of(FORMAT, samples)


def test_fields_longer_than_the_csv_modules_default_are_read() -> None:
    assert len(list(FORMAT.split(io.BytesIO(b"a" * 131_073)))) == 1
