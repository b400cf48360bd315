"""The writer of Parquet that can be read in pieces: row groups of some MiB, with checksums of their pages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain
from typing import Any, BinaryIO

from sagemaker_channels.formats.sizes import size_of
from sagemaker_channels.formats.writing import refusal
from sagemaker_channels.sample import Sample

_GROUP_BYTES = 8 << 20  # bytes of fields in a row group
_GROUP_ROWS = 1 << 16


def pyarrow() -> tuple[Any, Any]:
    """Return the package and its Parquet part. Raises ImportError, with what to install, if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed, and Parquet needs it: pip install 'sagemaker-launch[formats]', or pyarrow",
            name=error.name,
        ) from error
    return pyarrow, pyarrow.parquet


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples as rows, and return their number. The samples of the first row group define the columns.

    Raises:
        SampleError: A sample does not fit the columns, or has no fields.
    """
    arrow, parquet = pyarrow()
    count = 0
    writer = None
    schema = None
    try:
        for rows in _row_groups(samples):
            table = _table(rows, schema, count)
            if writer is None:
                schema = table.schema
                _check(schema, rows)
                writer = parquet.ParquetWriter(stream, schema, write_page_checksum=True)
            writer.write_table(table)
            count += len(rows)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        parquet.write_table(arrow.table({}), stream)
    return count


def _row_groups(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    rows: list[Sample] = []
    size = 0
    for sample in samples:
        rows.append(sample)
        size += size_of(sample)
        if size >= _GROUP_BYTES or len(rows) == _GROUP_ROWS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _table(rows: list[Sample], schema: Any, before: int) -> Any:
    """Return the rows as a table; `before` is the number of the first. Raises SampleError for one that does not fit."""
    arrow, _ = pyarrow()
    for number, row in enumerate(rows, before):
        if not row:
            raise refusal(number, row, "it has no fields, so no columns, and would be lost")
        unknown = [name for name in row if schema is not None and name not in schema.names]
        if unknown:
            raise refusal(number, row, f"field {unknown[0]!r} is new; the columns are {', '.join(schema.names)}")
        try:
            "".join(row).encode()
        except UnicodeEncodeError as error:
            raise refusal(number, row, f"its fields {list(row)} cannot be columns' names: {error}") from error
    if schema is not None:
        columns = [_column(rows, field.name, field.type, before) for field in schema]
        return arrow.table(columns, schema=schema)
    names = dict.fromkeys(chain.from_iterable(rows))
    return arrow.table({name: _column(rows, name, None, before) for name in names})


def _check(schema: Any, rows: list[Sample]) -> None:
    """Raise SampleError for a column that Arrow can hold and Parquet cannot: dicts that are all empty."""
    arrow, parquet = pyarrow()
    for field in schema:
        try:
            parquet.ParquetWriter(BytesIO(), arrow.schema([field])).close()
        except arrow.ArrowException as error:
            first = next(number for number, row in enumerate(rows) if row.get(field.name) is not None)
            raise refusal(first, rows[first], f"field {field.name!r} does not fit into Parquet: {error}") from error


def _column(rows: list[Sample], name: str, kind: Any, before: int) -> Any:
    """Return a field of all rows as a column. Raises SampleError for the first row that does not fit those before it."""
    values: list[Any] = [row.get(name) for row in rows]
    # pyarrow accepts arrays of more than one dimension only as lists of lists.
    values = [value.tolist() if getattr(value, "ndim", 1) != 1 else value for value in values]
    column, _ = _array(values, kind)
    if column is not None:
        return column
    bad = bisect_left(range(len(values)), True, key=lambda last: _array(values[: last + 1], kind)[1] is not None)
    reason = _array(values[: bad + 1], kind)[1]
    raise refusal(before + bad, rows[bad], f"field {name!r} does not fit the column: {reason}") from reason


def _array(values: list[Any], kind: Any) -> tuple[Any, Exception | None]:
    """Return values as a column, or None and the error."""
    arrow, _ = pyarrow()
    try:
        return arrow.array(values, kind), None
    except (arrow.ArrowException, ValueError, TypeError, OverflowError) as error:
        return None, error
