"""Parquet, read row by row: each row is a sample, its columns the fields.

    format="parquet"                          all columns
    format="parquet; columns=image,label"     only these: the rest is not fetched

Binary and text columns become bytes and str, numbers Python's numbers, nulls None; a list of numbers becomes a numpy array (a list
if it has a null), a struct a dict, a time Python's datetime or, in nanoseconds, numpy's datetime64 (timedelta64). A column
`__key__` is the sample's key. Row groups are read one after the other, each column in pieces of a few MiB, so that memory is
constant. Checksums of pages are verified if the writer stored them. Source: parquet.apache.org, "File Format".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from io import BytesIO, FileIO
from typing import Any, BinaryIO

from sagemaker_channels.errors import ChannelError, corrupt, foreign
from sagemaker_channels.formats import signatures
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format, names_in
from sagemaker_channels.formats.seeking import SeekableFile
from sagemaker_channels.formats.writing import refusal, size_of, with_arrays
from sagemaker_channels.sample import KEY, ByteStream, Sample

MAGIC = b"PAR1"
_BATCH_BYTES = 4 << 20  # of rows that are decoded at a time
_MAX_BATCH = 4096  # rows
_BUFFERS = 32 << 20  # bytes, for all columns together
_GROUP_BYTES = 8 << 20  # of fields in a row group that is written
_GROUP_ROWS = 1 << 16


def pyarrow() -> tuple[Any, Any]:
    """Return the package and its Parquet part. Raises ImportError, with what to install, if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ImportError("Parquet needs pyarrow: pip install 'sagemaker-launch[formats]', or pyarrow") from error
    return pyarrow, pyarrow.parquet


def _read(columns: tuple[str, ...] | None, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the rows of a file, all columns or some; positions count rows. Raises ChannelError if a column does not exist."""
    arrow, _ = pyarrow()
    cursor.position = cursor.start
    place = f"object {key!r}, " if key is not None else ""
    with closing(SeekableFile(stream, key, at_once=columns is None)) as file:
        if not file.size and not cursor.start:  # Spark's `_SUCCESS` and the like: no rows
            return
        # A plain file is read without Python and its copies; if an error occurs, it is read again through Python, which
        # knows how far it came.
        name = stream.name if isinstance(stream, FileIO) else None
        sources = [arrow.OSFile(name)] if isinstance(name, str) else []
        for source in [*sources, arrow.PythonFile(file, mode="r")]:
            group = -1
            try:
                reader = _open(file, source, columns, place)
                for group, before, rows in _groups(reader.metadata, cursor.position):
                    for batch in _batches(reader, group, before, columns, cursor.position):
                        for sample in _samples(batch, key, f"{place}row {cursor.position} or after, "):
                            cursor.position += 1
                            yield sample
                    if cursor.position < before + rows:
                        raise ValueError(f"{before + rows - cursor.position} of the group's {rows} rows are missing")
                group = -1
                _check_end(file, reader.metadata)
                return
            except (arrow.ArrowException, OSError, EOFError, ValueError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # an error of the medium, not of pyarrow
                if isinstance(source, arrow.PythonFile):
                    where = f"row {cursor.position}, in row group {group}" if group >= 0 else "the table at its end"
                    what = f"{where}: not Parquet, or damaged: {' '.join(str(error).split())}"
                    raise corrupt(key, file.tell(), what) from error


def _count(stream: ByteStream, key: str | None) -> int:
    """Return the number of rows by the table at the end."""
    arrow, parquet = pyarrow()
    with closing(SeekableFile(stream, key, at_once=False)) as file:
        try:
            return int(parquet.read_metadata(arrow.PythonFile(file, mode="r")).num_rows) if file.size else 0
        except arrow.ArrowException as error:
            raise corrupt(key, 0, f"the table at its end: not Parquet, or damaged: {error}") from error


def _open(file: SeekableFile, source: Any, columns: tuple[str, ...] | None, place: str) -> Any:
    """Return a file's reader. Raises CorruptError if it is not Parquet, ChannelError if a column does not exist."""
    _, parquet = pyarrow()
    file.seek(0)
    head = file.read(signatures.SIZE)
    signatures.check(head, file.key, MAGIC)
    if not head.startswith(MAGIC):
        raise foreign("Parquet", file.key, 0, f"it begins with {head[:4]!r}, expected {MAGIC!r}")
    metadata = parquet.read_metadata(source)
    buffer = max(1 << 16, min(_BUFFERS // max(1, metadata.num_columns), 4 << 20))
    reader = parquet.ParquetFile(
        source, metadata=metadata, buffer_size=buffer, pre_buffer=False, page_checksum_verification=True
    )
    every = reader.schema_arrow.names
    if len(set(every)) < len(every):
        raise ValueError("two columns have one name")
    for name in columns or ():
        if name not in every:
            raise ChannelError(f"{place}there is no column {name!r}; the file has {', '.join(every)}")
    return reader


def _groups(metadata: Any, start: int) -> Iterator[tuple[int, int, int]]:
    """Yield the row groups that have rows from `start` on: number, rows before it, rows in it."""
    counts: list[int] = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    total, stated = sum(counts), metadata.num_rows  # Some writers leave out a total of 0.
    if total != (stated or total) or min(counts, default=0) < 0:
        raise ValueError(f"its row groups have {total} rows, but the footer states {stated}; write the file again")
    if start > total:
        raise ValueError(f"reading should resume at row {start}, but it has {total}; start the epoch again")
    before = 0
    for group, count in enumerate(counts):
        if before + count > start:
            yield group, before, count
        before += count


def _batches(reader: Any, group: int, before: int, columns: tuple[str, ...] | None, start: int) -> Iterator[Any]:
    """Yield the rows of a row group from row `start` of the file on, some MiB at a time; `before` are in earlier groups."""
    metadata = reader.metadata.row_group(group)
    rows = max(1, min(_MAX_BATCH, _BATCH_BYTES * metadata.num_rows // max(1, metadata.total_byte_size)))
    # One thread, since there are many DataLoader workers, and they are forked.
    for batch in reader.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
        after = before + batch.num_rows
        if after > start:
            rest = batch.slice(max(0, start - before))
            # A name also selects the columns that begin with it.
            yield rest if columns is None else rest.select(columns)
        before = after


def _check_end(file: SeekableFile, metadata: Any) -> None:
    """Raise ValueError if this is several joined files, of which the first was read by the table of the last.

    Asking pyarrow for a column's metadata ends the process if that is damaged, so this is called after the columns were read.
    """
    end = len(MAGIC)  # of the last column chunk
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            end = max(end, (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size)
    file.seek(end)
    between = file.read(max(0, file.size - 8 - metadata.serialized_size - end))  # indexes and filters, if it has any
    if (joint := between.rfind(MAGIC * 2)) >= 0:
        raise ValueError(f"another file ends at byte {end + joint + 4}: Parquet files cannot be joined, write one")


def _samples(batch: Any, key: str | None, place: str) -> Iterator[Sample]:
    """Yield the rows of a batch. Raises ChannelError, which begins with `place`, for values that Python cannot hold."""
    names = batch.schema.names
    columns = [_values(column, f"{place}column {name!r}") for column, name in zip(batch.columns, names, strict=True)]
    start: Sample = {} if key is None else {KEY: key}  # a column of that name replaces it
    for row in zip(*columns, strict=True):
        yield start | dict(zip(names, row, strict=True))


def _values(column: Any, name: str) -> list[Any]:
    """Return a column's values; see the module for their types. Raises ChannelError, which begins with `name`."""
    arrow, _ = pyarrow()
    types, kind = arrow.types, column.type
    if (types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit == "ns":
        return _numpy_times(column)
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        try:
            return list(column.to_pylist())
        except (OverflowError, ValueError) as error:
            if isinstance(error, (UnicodeError, arrow.ArrowException)):
                raise
            if types.is_timestamp(kind):
                return _numpy_times(column)
            what = f"{name} has values that Python's types cannot hold ({error})"
            raise ChannelError(what, remedy="leave it out: parquet; columns=...") from error
    flat = column.flatten()  # without the lists that are null
    holes = flat.is_null().to_numpy(zero_copy_only=False) if flat.null_count else None
    numbers = (flat.fill_null(0) if flat.null_count else flat).to_numpy(zero_copy_only=False)
    values: list[Any] = []
    end = 0
    for length in column.value_lengths().to_pylist():
        if length is None:
            values.append(None)
            continue
        start, end = end, end + length
        if holes is not None and holes[start:end].any():
            values.append(flat[start:end].to_pylist())
        else:  # A copy is writable, as torch wants it, and does not keep the batch in memory.
            values.append(numbers[start:end].copy())
    return values


def _numpy_times(column: Any) -> list[Any]:
    """Return times finer than microseconds or after the year 9999 as numpy's datetime64 or timedelta64."""
    return [None if value != value else value for value in column.to_numpy(zero_copy_only=False)]


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples as rows in row groups of some MiB, and return their number. The first row group defines the columns.

    Raises SampleError for a sample that does not fit them, or has no fields.
    """
    arrow, parquet = pyarrow()
    count, writer, rest = 0, None, iter(samples)
    try:
        while rows := list(_row_group(rest)):
            table = _table(rows, writer and writer.schema, count)
            if writer is None:
                writer = parquet.ParquetWriter(stream, table.schema, write_page_checksum=True)
            writer.write_table(table)
            count += len(rows)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        parquet.write_table(arrow.table({}), stream)
    return count


def _row_group(samples: Iterator[Sample]) -> Iterator[Sample]:
    size = 0
    for number, sample in enumerate(samples, 1):
        yield sample
        size += size_of(sample)
        if size >= _GROUP_BYTES or number == _GROUP_ROWS:
            return


def _table(rows: list[Sample], schema: Any, before: int) -> Any:
    """Return the rows as a table; `before` is the number of the first. Raises SampleError for one that does not fit."""
    arrow, _ = pyarrow()
    names = schema.names if schema else list(dict.fromkeys(name for row in rows for name in row))
    for number, row in enumerate(rows, before):
        if not row:
            raise refusal(number, row, "it has no fields, so no columns, and would be lost")
        for name in row:
            if name not in names:
                raise refusal(number, row, f"field {name!r} is new; the columns are {', '.join(names)}")
    return arrow.table({name: _column(rows, name, schema and schema.field(name).type, before) for name in names})


def _column(rows: list[Sample], name: str, kind: Any, before: int) -> Any:
    """Return a field of all rows as a column. Raises SampleError for the first row that does not fit those before it."""
    arrow, parquet = pyarrow()
    values: list[Any] = [row.get(name) for row in rows]
    # pyarrow accepts arrays of more than one dimension only as lists of lists.
    values = [value.tolist() if getattr(value, "ndim", 1) != 1 else value for value in values]

    def column(values: list[Any]) -> Any:
        array = arrow.array(values, kind)
        if kind is None:  # Arrow can hold dicts that are all empty, Parquet cannot.
            parquet.ParquetWriter(BytesIO(), arrow.schema([(name, array.type)])).close()
        return array

    def problem(last: int) -> Exception | None:
        try:
            column(values[: last + 1])
        except (arrow.ArrowException, ValueError, TypeError, OverflowError) as error:
            return error
        return None

    try:
        return column(values)
    except (arrow.ArrowException, ValueError, TypeError, OverflowError) as error:
        bad = bisect_left(range(len(values)), True, key=lambda last: problem(last) is not None)
        raise refusal(before + bad, rows[bad], f"field {name!r} does not fit the column: {problem(bad)}") from error


def _with_options(options: Mapping[str, str]) -> Format:
    names = names_in(options["columns"])
    if not names:
        raise ChannelError("parquet: columns is empty", remedy="write columns=image,label")
    return replace(FORMAT, chosen=(("columns", ",".join(names)),), read=partial(_read, names))


FORMAT = Format(
    name="parquet",
    content_types=("application/x-parquet",),
    sample="a row: a field for each column, or `parquet; columns=image,label`",
    read=partial(_read, None),
    count=_count,
    write=write,
    ending=".parquet",
    holds="fields",
    fit=partial(with_arrays, "<f8"),
    boundaries=False,  # the table at the end of joined files is that of the last one
    options=("columns",),
    with_options=_with_options,
    example=lambda _, data: {"x": data},
)
