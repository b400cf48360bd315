r"""CSV, parsed: each row is a sample; quoted fields may hold commas, quotes and line feeds.

    format="csv"                                   {"data": ["1", "a, b"]}: the fields as texts
    format="csv; header=present"                   {"id": "1", "name": "a, b"}: by the names in the first row
    format='csv; header=present; delimiter="\t"'   tab-separated

The content type `text/csv` yields lines as bytes (`lines.py`). Stricter than Python's csv: a quote that is not closed, text after
a closing quote, or a row with fewer or more fields than the one before it is an error with the row's offset. Blank lines and byte
order marks are skipped. In a Pipe, which joins objects, each object has the header, so rows equal to it are skipped. A file that
was cut between two rows, or inside a row's last field, looks complete. Source: RFC 4180, and its parameter `header`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

from sagemaker_channels.errors import ChannelError, corrupt, foreign
from sagemaker_channels.formats import lines
from sagemaker_channels.formats.cursor import Cursor, is_seekable
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.window import CHUNK, MAX_TEXT_BYTES, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import DATA, KEY, ByteStream, Sample

_BOM = b"\xef\xbb\xbf"
_CSV = "a row of CSV in UTF-8"


def _with_options(options: Mapping[str, str]) -> Format:
    header, delimiter = options.get("header", "absent"), options.get("delimiter", ",")
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if header not in ("present", "absent"):
        raise ChannelError(f"csv: header is {header!r}", remedy="write header=present or header=absent")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ChannelError(f"csv: delimiter is {delimiter!r}", remedy='write one character, such as delimiter=";"')
    named = header == "present"
    chosen = {"header": header if named else "", "delimiter": delimiter.replace(",", "")}
    return replace(
        FORMAT,
        chosen=tuple((name, value) for name, value in chosen.items() if value),
        read=partial(_read, named, delimiter),
        write=partial(_write, delimiter),
    )


def _read(named: bool, delimiter: str, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    # A limit of the whole process; the default is 131,072. Rows larger than a sample may be are found below.
    csv.field_size_limit(max(max_sample_bytes(MAX_TEXT_BYTES) + 2 * CHUNK, csv.field_size_limit()))
    names: list[str] | None = None
    width: int | None = None
    source = _Lines(stream, key)
    first = next(_rows(source, delimiter, key), None) if named or (cursor.start and cursor.skips) else None
    if first is not None:
        width = len(first[1])
    elif named:
        return
    if first is not None and named:
        names = first[1]
        if source.undecodable:
            raise foreign(_CSV, key, 0, source.undecodable)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise corrupt(key, 0, f"the header has two columns {twice!r}")
    source.skip_to(cursor.start)
    source.undecodable = ""
    for offset, row, after in _rows(source, delimiter, key):
        if row == names and key is None:
            continue
        if source.undecodable or (width is not None and len(row) != width):
            reason = source.undecodable or f"a row has {len(row)} fields, expected {width} as before"
            cursor.skip(foreign(_CSV, key, offset, reason))
            cursor.position, source.undecodable = after, ""
            continue
        width = len(row)
        sample: Sample = {DATA: row} if names is None else dict(zip(names, row, strict=True))
        cursor.position = after
        yield sample if key is None else {KEY: key, **sample}


def _rows(source: _Lines, delimiter: str, key: str | None) -> Iterator[tuple[int, list[str], int]]:
    """Yield the rows that are left: the offset of each, its fields, and the offset of the next one."""
    reader = csv.reader(source, strict=True, delimiter=delimiter)
    source.row = offset = source.offset
    try:
        for row in reader:  # takes no more lines than the row has
            if row:
                yield offset, row, source.offset
            source.row = offset = source.offset
    except csv.Error as error:
        raise foreign(_CSV, key, offset, source.undecodable or error) from None


def _write(delimiter: str, stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples as rows, and return their number. Values become texts as Python's csv converts them.

    A first row has the fields' names, unless samples hold their fields as a list in `data`.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)  # ends rows by \r\n, as RFC 4180
    names: list[str] = []
    width = 0

    def encode(sample: Sample) -> list[bytes]:
        nonlocal names, width
        is_first = not names
        names = names or list(sample)
        is_bare = names in ([DATA], [KEY, DATA])
        if sample.keys() != set(names):
            raise ValueError(f"it has the fields {list(sample)}, expected {names} as in the first sample")
        row = _row(sample) if is_bare else [sample[name] for name in names]
        text.seek(0)
        text.truncate()
        if is_first:
            width = len(row)
            if not is_bare:
                writer.writerow(names)
        if not row or len(row) != width:
            raise ValueError(f"a row of {len(row)} fields, expected {width} as in the first sample, and at least 1")
        for name, value in enumerate(row) if is_bare else zip(names, row, strict=True):
            if isinstance(value, (bytes, bytearray)):
                raise ValueError(
                    f"field {name!r} is bytes, and CSV holds texts: .decode() it, or choose another format"
                )
        if not is_bare and row == names:
            raise ValueError(
                "its values are the fields' names: in a Pipe it would be skipped as another object's header"
            )
        writer.writerow(row)
        return [text.getvalue().encode()]

    return write_each(encode, stream, samples)


def _row(sample: Sample) -> list[Any]:
    """Return the fields in `data`. Raises ValueError if it is not a list: a text would become a row of letters."""
    row = sample[DATA]
    if isinstance(row, (str, bytes, bytearray, Mapping)) or not isinstance(row, Iterable):
        raise ValueError(f"field {DATA!r}: expected a list of the row's fields, got {type(row).__name__}")
    return list(row)


class _Lines:
    """The lines of a stream as texts, with their line feeds; `offset` is that of the next one."""

    def __init__(self, stream: Any, key: str | None) -> None:
        self._stream, self._key = stream, key
        self.row = 0  # the offset of the row that the next line belongs to
        self.undecodable = ""  # why the row cannot be decoded
        self._most = max_sample_bytes(MAX_TEXT_BYTES)  # bytes of a row
        self._begin(0)

    def _begin(self, start: int) -> None:
        self.offset, self._cursor = start, Cursor(start)
        self._lines = lines.plain(self._stream, self._key, self._cursor, with_returns=True)

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            content: bytes = line[DATA] + b"\n"
            # Joined objects have byte order marks anywhere.
            if content.startswith(_BOM) and (self.offset == 0 or self._key is None):
                content = content[len(_BOM) :]
            self.offset = self._cursor.position
            if self.offset - self.row > self._most:
                what = f"a row that begins here has more than {self._most:,} bytes (is a quote not closed?)"
                raise too_large(self._key, self.row, what, self._most)
            try:
                text = content.decode()
            except UnicodeDecodeError as error:
                self.undecodable = str(error)
                text = content.decode(errors="replace")  # The row ends where it would end with other letters.
            yield text

    def skip_to(self, start: int) -> None:
        """Skip to byte `start`: by seeking if the stream can, else by reading."""
        if start <= self.offset:
            return
        if is_seekable(self._stream):
            self._stream.seek(0)
            self._begin(start)
        while self.offset < start:
            if not next(self._lines, None):
                raise corrupt(self._key, start, "reading should resume here, but the object is shorter")
            self.offset = self._cursor.position


FORMAT = Format(
    name="csv",
    sample="CSV: a row's texts in `data`; with `csv; header=present`, a field for each column; `delimiter=tab`",
    read=partial(_read, False, ","),
    write=partial(_write, ","),
    ending=".csv",
    after_damage="the next row; after a misplaced quote, the next object",
    options=("header", "delimiter"),
    with_options=_with_options,
    example=lambda _, data: {DATA: [data.decode("latin-1")]},
)
