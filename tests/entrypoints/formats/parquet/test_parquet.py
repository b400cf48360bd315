"""Parquet: rows of real writers come back, some columns or all, in flat memory and from any row on; damage is an error."""

from __future__ import annotations

import datetime
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet as pq

from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import format_of, parquet
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.parquet import FORMAT
from sagemaker_channels.sample import Sample

COUNT = 1000
TABLE: dict[str, list[Any]] = {
    "image": [bytes([number % 256]) * number for number in range(COUNT)],
    "label": list(range(COUNT)),
    "a.b": [None if number % 3 else f"text {number}" for number in range(COUNT)],
    "box": [{"x": number, "y": None} for number in range(COUNT)],
    "tags": [["a", "b"][: number % 3] for number in range(COUNT)],
}
EXPECTED = [{name: TABLE[name][number] for name in TABLE} for number in range(COUNT)]


def data_of(table: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pyarrow.table(table), stream, **options)
    return stream.getvalue()


def read(data: bytes, form: Format = FORMAT, start: int = 0) -> list[Sample]:
    return list(form.split(io.BytesIO(data), None, Cursor(start)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 7},
        {"compression": "none", "use_dictionary": False, "data_page_size": 100},
        {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 300},
        {"compression": "gzip", "version": "1.0"},
    ],
)
def test_file_of_pyarrow_is_read_from_any_row(options: dict[str, Any], tmp_path: Path) -> None:
    data = data_of(TABLE, **options)
    assert read(data) == EXPECTED
    (tmp_path / "t.parquet").write_bytes(data)
    with (tmp_path / "t.parquet").open("rb", buffering=0) as file:  # a plain file is read without Python
        assert list(FORMAT.split(file, "k")) == [{"__key__": "k", **row} for row in EXPECTED]
    for start in (0, 1, 6, 7, 299, 300, 500, COUNT - 1, COUNT):
        assert read(data, start=start) == EXPECTED[start:]


def test_arrow_values_become_python_and_numpy_values() -> None:
    table = {
        "list": pyarrow.array([[1, 2], None, [], [3, None]], pyarrow.list_(pyarrow.int16())),
        "fixed": pyarrow.array([[1, 2], [0, 0], [3, 4], [None, 5]], pyarrow.list_(pyarrow.float32(), 2)),
        "ns": pyarrow.array([1, None, 3, 4], pyarrow.timestamp("ns")),
        "us": pyarrow.array([0, None, 0, 0], pyarrow.timestamp("us")),
        "took": pyarrow.array([1, None, 3, 4], pyarrow.duration("ns")),
        "__key__": ["a", "b", "c", "d"],
    }
    first, second, third, fourth = FORMAT.split(io.BytesIO(data_of(table)), "object")
    assert first["list"].dtype == np.int16
    assert first["list"].tolist() == [1, 2]
    assert first["list"].flags.writeable
    assert first["fixed"].dtype == np.float32
    assert first["ns"] == np.datetime64(1, "ns")
    assert first["us"] == datetime.datetime(1970, 1, 1)
    assert first["took"] == np.timedelta64(1, "ns")
    assert second.pop("fixed").tolist() == [0, 0]
    assert second == {"list": None, "ns": None, "us": None, "took": None, "__key__": "b"}
    assert third["list"].tolist() == []
    assert third["fixed"].tolist() == [3, 4]
    assert fourth["list"] == [3, None]
    assert fourth["fixed"] == [None, 5]


@pytest.mark.skipif(
    int(pyarrow.__version__.partition(".")[0]) < 26, reason="pyarrow 25, the last for Python 3.10, cannot"
)
def test_missing_list_of_a_fixed_size_is_none() -> None:
    lists = pyarrow.array([[1, 2], None], pyarrow.list_(pyarrow.float32(), 2))
    assert [sample["a"] is None for sample in read(data_of({"a": lists}))] == [False, True]


def test_values_beyond_pythons_types_are_numpy_or_refused() -> None:
    late = pyarrow.array([1 << 60], pyarrow.timestamp("us"))
    assert read(data_of({"a": late})) == [{"a": np.datetime64(1 << 60, "us")}]
    data = data_of({"a": pyarrow.array([{"x": 1 << 60}], pyarrow.struct([("x", pyarrow.timestamp("us"))])), "b": [1]})
    with pytest.raises(
        ChannelError, match=r"^object 'k', row 0 or after, column 'a' has values that Python's types cannot hold"
    ):
        list(FORMAT.split(io.BytesIO(data), "k"))
    assert read(data, format_of("parquet; columns=b")) == [{"b": 1}]


def test_columns_option_reads_no_other_columns() -> None:
    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    table = {"a": list(range(10)), "a.b": [0] * 10, "big": [os.urandom(100_000)] * 10, "z": ["z"] * 10}
    stream = Counting(data_of(table, use_dictionary=False))
    form = format_of("application/x-parquet; columns=z, a; charset=utf-8")
    assert form == format_of('parquet; columns="z,a"') != FORMAT
    assert list(form.split(stream, None)) == [{"z": "z", "a": number} for number in range(10)]
    assert stream.taken < 100_000
    with pytest.raises(ChannelError, match=r"there is no column 'y'; the file has a, a\.b, big, z"):
        list(format_of("parquet; columns=y").split(stream, None))
    with pytest.raises(ChannelError, match="columns is empty"):
        format_of("parquet; columns=")


def test_written_samples_are_read_back_in_small_row_groups() -> None:
    stream = io.BytesIO()
    samples: list[Sample] = [
        {"__key__": str(n), "image": bytes(1 << 20), "vector": np.arange(n + 1.0), "name": "ü"} for n in range(20)
    ]
    assert parquet.write(stream, iter(samples)) == 20
    assert pq.read_metadata(stream).num_row_groups == 3
    found = read(stream.getvalue())
    for sample, wanted in zip(found, samples, strict=True):
        assert sample.pop("vector").tolist() == wanted.pop("vector").tolist()
        assert sample == wanted
    assert pq.read_table(stream)["name"].to_pylist() == ["ü"] * 20
    empty = io.BytesIO()
    assert parquet.write(empty, []) == 0
    assert read(empty.getvalue()) == []


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ({"a": b"", "b": 1}, "sample 2: field 'b' is new; the columns are a"),
        ({"a": 1}, "sample 2: field 'a' does not fit the column: .*int"),
        ({"a": [b""]}, "sample 2: field 'a' does not fit the column: .*list"),
        ({}, "sample 2: it has no fields"),
    ],
)
def test_writing_samples_of_another_schema_is_refused(later: Sample, reason: str) -> None:
    first = {"a": bytes(8 << 20)}  # a row group of its own
    with pytest.raises(ValueError, match=reason):
        parquet.write(io.BytesIO(), [first, {"a": b"good"}, later, {"a": b"good"}])


@pytest.mark.parametrize("value", [{}, [{}], {"x": {}}])
def test_column_of_empty_dicts_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"sample 1 \(__key__ 'k'\): field 'a' does not fit the column: .*no child"):
        parquet.write(io.BytesIO(), [{"b": 1}, {"__key__": "k", "b": 1, "a": value}, {"a": value}])


@pytest.mark.parametrize("bad", range(5))
def test_value_of_another_type_is_refused_by_sample_number(bad: int) -> None:
    samples = [{"__key__": str(number), "x": "a" if number == bad else number} for number in range(5)]
    number = bad or 1  # the first says what the column holds
    with pytest.raises(
        ValueError, match=rf"sample {number} \(__key__ '{number}'\): field 'x' does not fit the column: "
    ):
        parquet.write(io.BytesIO(), samples)
    with pytest.raises(ValueError, match=r"sample 0: field 'x' does not fit the column: Python int too large"):
        parquet.write(io.BytesIO(), [{"x": 1 << 70}])


def test_cut_anywhere_is_an_error() -> None:
    data = data_of({"a": [1, 2, 3], "b": ["x", "y", "z"]}, row_group_size=2)
    assert read(b"") == []
    for size in range(1, len(data)):
        with pytest.raises(CorruptError, match=r"byte \d+: (.*: )?not Parquet, or damaged: "):
            read(data[:size])


FLIPS = """
import io, sys
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import parquet
from sagemaker_channels.formats.parquet import FORMAT
stream = io.BytesIO()
parquet.write(stream, ({"a": number, "b": b"x" * number} for number in range(20)))
data = bytearray(stream.getvalue())
expected = [list(row.values()) for row in FORMAT.split(io.BytesIO(data))]
caught = 0
for place in range(len(data)):
    for bit in (place % 8, 7 - place % 8):
        data[place] ^= 1 << bit
        try:
            found = list(FORMAT.split(io.BytesIO(data)))
            assert len(found) == 20, (place, bit, len(found))
            # A damaged footer may rename a column.
            assert [list(row.values()) for row in found] == expected, (place, bit)
        except CorruptError:
            caught += 1
        data[place] ^= 1 << bit
print(caught)
"""


def test_flipped_bit_is_an_error_or_changes_nothing_in_files_with_checksums() -> None:
    # In a process of its own: pyarrow has ways to end it.
    done = subprocess.run([sys.executable, "-c", FLIPS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000


def test_footer_with_a_wrong_number_of_rows_is_an_error() -> None:
    data = data_of({"a": range(COUNT)})
    rows = data.rindex(b"\x16\xd0\x0f\x19")  # the fourth field, the row groups, follows the third, COUNT
    with pytest.raises(
        CorruptError, match="row groups have 1000 rows, but the footer states 1001; write the file again"
    ):
        read(data[: rows + 1] + b"\xd2" + data[rows + 2 :])


OPTIONS: list[dict[str, Any]] = [
    {},
    {"row_group_size": 30, "write_page_index": True},
    {"use_dictionary": False, "data_page_size": 100, "compression": "none", "data_page_version": "2.0"},
    {"store_schema": False, "write_statistics": False},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_joined_files_are_refused(options: dict[str, Any]) -> None:
    """Of two files of one size, the first would be read twice over: the table of the second counts from its own beginning."""
    columns = {"a": list(range(100)), "l": [[1, 2]] * 100, "s": [{"x": "y", "z": {"q": 1}}] * 100}
    first, second = data_of(columns, **options), data_of({**columns, "a": list(range(100, 200))}, **options)
    assert [len(read(data)) for data in (first, second)] == [100, 100]
    for data in (first + second, first * 3):
        with pytest.raises(
            CorruptError, match=r"another file ends at byte \d+: Parquet files cannot be joined|not Parquet, or damaged"
        ):
            read(data)


def test_io_error_is_not_reported_as_damage() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 100:
                raise OSError(5, "Input/output error")
            return super().read(size)

    with pytest.raises(OSError, match="Input/output error"):
        list(FORMAT.split(Broken(data_of(TABLE)), "k"))


def test_missing_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'sagemaker-launch\[formats\]'"):
        list(FORMAT.split(io.BytesIO(b""), None))
