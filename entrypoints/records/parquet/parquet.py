"""Parquet, read row by row: each row is a sample, its columns the fields.

    format="parquet"                          all columns
    format="parquet; columns=image,label"     these only: the rest is not fetched

Binary and text columns give bytes and str, numbers Python's numbers, nulls None; a list of numbers gives a numpy array (a list
where it holds a null), structs dicts, times Python's datetime or, in nanoseconds, numpy's datetime64 (timedelta64). A column
`__key__` is the sample's key.

Row groups are read one after the other, each column in pieces of a few MiB, so that memory is flat whatever the size of
files and row groups. The table of contents stands at the end: files and the connector have it, a Pipe joins objects and
has not, unless it wraps them as RecordIO. Checksums of pages are compared where the writer put them in, as ours does; what
pyarrow does not check is checked in `parquet_table.py`.

It needs pyarrow. Writing is in `parquet_write.py`. Source: parquet.apache.org, "File Format".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from io import FileIO
from typing import Any

from entrypoints.errors import ChannelError, CorruptError
from entrypoints.records import options as parameters
from entrypoints.records.cursor import Cursor
from entrypoints.records.parquet import parquet_table
from entrypoints.records.seeking import SeekableFile
from entrypoints.sample import KEY, ByteStream, Sample

_BATCH_BYTES = 4 << 20  # of rows that are decoded at a time
_MAX_BATCH = 4096  # rows
_BUFFERS = 32 << 20  # bytes, for all columns together


@dataclass(frozen=True)
class Parquet:
    """The format, with all columns or some."""

    columns: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return parameters.text("parquet", {"columns": ",".join(self.columns or ())})

    BOUNDARIES = False  # the table of joined files is the last one's
    OPTIONS = ("columns",)

    def with_options(self, options: Mapping[str, str]) -> Parquet:
        """Raises ChannelError where `columns` names none."""
        names = parameters.names(options["columns"])
        if not names:
            raise ChannelError("parquet: columns names none; write columns=image,label")
        return Parquet(names)

    def split(self, stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
        """The rows of a file. Positions count rows.

        Raises CorruptError, naming the row and how far the file was read, for what is cut or damaged; ChannelError
        for a column that is not there, and ImportError without pyarrow.
        """
        arrow, _ = pyarrow()
        cursor = cursor or Cursor()
        cursor.position = cursor.start
        place = f"object {key!r}, " if key is not None else ""
        with closing(SeekableFile(stream, key, at_once=self.columns is None)) as file:
            if (
                not file.size and not cursor.start
            ):  # Spark's `_SUCCESS` and its like: no rows, as of an empty tar no members
                return
            # A plain file is read without Python and its copies; what is wrong in it is looked at through Python, which
            # knows how far it came.
            name = stream.name if isinstance(stream, FileIO) else None
            sources = [arrow.OSFile(name)] if isinstance(name, str) else []
            for source in [*sources, arrow.PythonFile(file, mode="r")]:
                group = -1
                try:
                    parquet_table.check(file)
                    reader, names = self._open(source, place)
                    for group, before, rows in _groups(reader.metadata, cursor.position):
                        for batch in _batches(reader, group, before, names, cursor.position):
                            for sample in _samples(batch, key, f"{place}row {cursor.position} or after, "):
                                cursor.position += 1
                                yield sample
                        if cursor.position < before + rows:
                            raise ValueError(
                                f"{before + rows - cursor.position} of the group's {rows} rows are missing"
                            )
                    return
                except (arrow.ArrowException, OSError, EOFError, ValueError) as error:
                    if isinstance(error, OSError) and error.errno is not None:
                        raise  # the medium's own, not pyarrow's
                    if isinstance(source, arrow.PythonFile):
                        where = f"row {cursor.position}, in row group {group}" if group >= 0 else "the table at its end"
                        reason = " ".join(str(error).split())
                        raise CorruptError(
                            f"{place}byte {file.tell()}, {where}: not Parquet, or damaged: {reason}"
                        ) from error

    def _open(self, source: Any, place: str) -> tuple[Any, list[str] | None]:
        """A file's reader, and the names of the columns to read. A column of structs is chosen as a whole."""
        _, parquet = pyarrow()
        metadata = parquet.read_metadata(source)
        buffer = max(1 << 16, min(_BUFFERS // max(1, metadata.num_columns), 4 << 20))
        reader = parquet.ParquetFile(
            source, metadata=metadata, buffer_size=buffer, pre_buffer=False, page_checksum_verification=True
        )
        every = reader.schema_arrow.names
        if len(set(every)) < len(every):
            raise ValueError("two columns have one name")
        missing = [name for name in self.columns or () if name not in every]
        if missing:
            raise ChannelError(f"{place}there is no column {missing[0]!r}; the file has {', '.join(every)}")
        return reader, None if self.columns is None else list(self.columns)


ROWS = Parquet()


def pyarrow() -> tuple[Any, Any]:
    """The package and its Parquet part; ImportError, saying what to install, where it is missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed, and Parquet needs it: pip install 'sagemaker-launch[formats]', or pyarrow",
            name=error.name,
        ) from error
    return pyarrow, pyarrow.parquet


def _groups(metadata: Any, start: int) -> Iterator[tuple[int, int, int]]:
    """The row groups that have rows from `start` on: number, rows before it, rows in it."""
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    # Some writers leave out the whole's number, 0.
    if sum(counts) != (metadata.num_rows or sum(counts)) or min(counts, default=0) < 0:
        raise ValueError(f"its row groups have {sum(counts)} rows, and the whole has {metadata.num_rows}")
    if start > sum(counts):
        raise ValueError(f"reading should go on at row {start}, and it has {sum(counts)}; begin the epoch anew")
    before = 0
    for group, count in enumerate(counts):
        if before + count > start:
            yield group, before, count
        before += count


def _batches(reader: Any, group: int, before: int, names: list[str] | None, start: int) -> Iterator[Any]:
    """The rows of a row group from row `start` of the file on, some MiB at a time; `before` are in earlier groups."""
    # Of single columns pyarrow must not be asked: where what it knows of one is damaged, it ends the process.
    metadata = reader.metadata.row_group(group)
    rows = max(1, min(_MAX_BATCH, _BATCH_BYTES * metadata.num_rows // max(1, metadata.total_byte_size)))
    # One thread: DataLoader workers are many, and they are forked.
    for batch in reader.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
        after = before + batch.num_rows
        if after > start:
            rest = batch.slice(max(0, start - before))
            # A name chooses the columns that begin with it, too.
            yield rest if names is None else rest.select(names)
        before = after


def _samples(batch: Any, key: str | None, place: str) -> Iterator[Sample]:
    """The rows of a batch. Raises ChannelError, with the place, for values that Python's types cannot hold."""
    names = batch.schema.names
    columns = [_values(column, f"{place}column {name!r}") for column, name in zip(batch.columns, names, strict=True)]
    if key is None:
        for row in zip(*columns, strict=True):
            yield dict(zip(names, row, strict=True))
    else:
        names = [KEY, *names]  # a column of that name comes later and so counts
        for row in zip(*columns, strict=True):
            yield dict(zip(names, (key, *row), strict=True))


def _values(column: Any, name: str) -> list[Any]:
    """A column's values; see the module for what they are. Raises ChannelError, with the name that it is given."""
    arrow, _ = pyarrow()
    types = arrow.types
    kind = column.type
    if (types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit == "ns":
        return _numpy_times(column)
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        try:
            listed: list[Any] = column.to_pylist()
        except (OverflowError, ValueError) as error:
            if isinstance(error, (UnicodeError, arrow.ArrowException)):
                raise
            if types.is_timestamp(kind):
                return _numpy_times(column)
            raise ChannelError(
                f"{name} holds what Python's types cannot ({error}); leave it out: parquet; columns=..."
            ) from error
        return listed
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
        piece = numbers[start:end]
        if holes is not None and holes[start:end].any():
            values.append(flat[start:end].to_pylist())
        else:
            values.append(piece.copy())  # which can be written to, as torch wants it, and holds no more than itself
    return values


def _numpy_times(column: Any) -> list[Any]:
    """Times that Python's cannot hold, finer than microseconds or after the year 9999, as numpy's datetime64 or timedelta64."""
    return [None if value != value else value for value in column.to_numpy(zero_copy_only=False)]
