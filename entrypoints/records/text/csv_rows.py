"""CSV, parsed: each row is a sample; what stands in quotes may hold commas, quotes and line feeds.

The content type `text/csv` gives lines as bytes (`lines.py`), as it always has; ask for rows by name:

    format="csv"                                   {"data": ["1", "a, b"]}: the fields as texts
    format="csv; header=present"                   {"id": "1", "name": "a, b"}: by the names in the first row
    format='csv; header=present; delimiter="\\t"'   tab-separated

Strict where Python's csv is not: a quote that is not closed, text behind a closing quote, or a row with fewer or more
fields than the one before it is an error with the row's offset. Blank lines and byte order marks are passed over. In a Pipe,
which joins objects, the header comes with each of them, and a row that repeats it is none. Nothing in the format
says where a file ends, so one that was cut between two rows, or inside of a row's last field, looks whole.

Source: RFC 4180, and its parameter `header`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from entrypoints.errors import ChannelError, corrupt
from entrypoints.records import gunzip
from entrypoints.records import options as parameters
from entrypoints.records.cursor import Cursor, go_to
from entrypoints.records.refusing import refusal
from entrypoints.records.sizes import MAX_TEXT_BYTES, max_sample_bytes, too_large
from entrypoints.records.window import CHUNK
from entrypoints.sample import DATA, KEY, ByteStream, Sample

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Rows:
    """The format, with or without names in the first row."""

    header: bool = False
    delimiter: str = ","

    def __str__(self) -> str:
        return parameters.text(
            "csv", {"header": "present" if self.header else "", "delimiter": self.delimiter.replace(",", "")}
        )

    BOUNDARIES = True
    OPTIONS = ("header", "delimiter")

    def with_options(self, options: Mapping[str, str]) -> Rows:
        """Raises ChannelError for a header that is neither present nor absent, or a delimiter that cannot be one."""
        header, delimiter = options.get("header", "absent"), options.get("delimiter", self.delimiter)
        delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
        if header not in ("present", "absent"):
            raise ChannelError(f"csv: header is {header!r}; write header=present or header=absent")
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise ChannelError(f'csv: delimiter is {delimiter!r}; write one character, such as delimiter=";"')
        return Rows(header == "present", delimiter)

    def split(self, stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
        """The rows of a stream, gzip-compressed or not. Positions as `gunzip.split_either`'s.

        Raises CorruptError, naming a row's offset, for what is no CSV.
        """
        return gunzip.split_either(self._split, stream, key, cursor)

    def _split(self, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
        # The process's own; the default is 131,072. Rows beyond the limit of a sample are found below.
        csv.field_size_limit(max(max_sample_bytes(MAX_TEXT_BYTES) + 2 * CHUNK, csv.field_size_limit()))
        names: list[str] | None = None
        lines = _Lines(stream, key)
        if self.header:
            first = next(self._rows(lines, key), None)
            if first is None:
                return
            names = first[1]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise corrupt(key, 0, f"the header has two columns {twice!r}")
        lines.skip_to(cursor.start)
        width = None if names is None else len(names)
        for offset, row, after in self._rows(lines, key):
            if row == names and key is None:
                continue
            if width is not None and len(row) != width:
                raise corrupt(key, offset, f"a row of {len(row)} fields, and those before have {width}")
            width = len(row)
            sample: Sample = {DATA: row} if names is None else dict(zip(names, row, strict=True))
            cursor.position = after
            yield sample if key is None else {KEY: key, **sample}

    def _rows(self, lines: _Lines, key: str | None) -> Iterator[tuple[int, list[str], int]]:
        """The rows that are left: where each begins, its fields, and where the next one begins."""
        reader = csv.reader(lines, strict=True, delimiter=self.delimiter)
        lines.row = offset = lines.offset
        try:
            for row in reader:  # takes no more lines than the row has
                if row:
                    yield offset, row, lines.offset
                lines.row = offset = lines.offset
        except (csv.Error, UnicodeDecodeError) as error:
            raise corrupt(key, offset, f"this row is no CSV in UTF-8, or cut: {error}") from error

    def write(self, stream: BinaryIO, samples: Iterable[Sample]) -> int:
        """Writes samples as rows, with a first row of names unless they hold their fields in `data`; how many.

        Values become texts as Python's csv makes them. Raises SampleError, a ValueError, for a sample with other fields or
        another number of them than the first, for bytes, and where `data` is no list.
        """
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self.delimiter)  # ends rows by \r\n, as RFC 4180
        names: list[str] = []
        header = ""
        width = count = 0
        for sample in samples:
            if not count:
                names = list(sample)
            bare = names in ([DATA], [KEY, DATA])
            if sample.keys() != set(names):
                raise refusal(count, sample, f"it has the fields {list(sample)}, and the first one {names}")
            row = _row(count, sample) if bare else [sample[name] for name in names]
            if not count:
                width = len(row)
                if not bare:
                    writer.writerow(names)
                    header = text.getvalue()
            if not row or len(row) != width:
                raise refusal(
                    count,
                    sample,
                    f"a row of {len(row)} fields, and the first has {width}: rows are of one length, 1 or more",
                )
            for name, value in enumerate(row) if bare else zip(names, row, strict=True):
                if isinstance(value, (bytes, bytearray)):
                    raise refusal(
                        count,
                        sample,
                        f"field {name!r} is bytes, and CSV holds texts: .decode() it, or choose another format",
                    )
            writer.writerow(row)
            if header and text.getvalue() in (header, header * 2):
                raise refusal(
                    count,
                    sample,
                    "its values are the fields' names: in a Pipe it would be taken for the header of another object, and lost",
                )
            try:
                stream.write(text.getvalue().encode())
            except UnicodeEncodeError as error:
                raise refusal(count, sample, f"UTF-8 cannot hold it: {error}") from error
            text.seek(0)
            text.truncate()
            count += 1
        return count


ROWS = Rows()


class _Lines:
    """The lines of a stream as texts, with their line feeds; `offset` is where the next one begins."""

    def __init__(self, stream: ByteStream, key: str | None) -> None:
        self._stream = stream
        self._key = key
        self.offset = 0
        self.row = 0  # where the row begins that the next line belongs to
        self._most = max_sample_bytes(MAX_TEXT_BYTES)  # bytes of a row
        self._lines: list[bytes] = []  # complete ones at hand, the first of them last
        self._rest = io.BytesIO()  # the beginning of the one behind them

    def __iter__(self) -> Iterator[str]:
        while self._lines or self._fetch():
            line = self._lines.pop()
            # Objects that were joined have their marks anywhere.
            if line.startswith(_BOM) and (self.offset == 0 or self._key is None):
                text = line[len(_BOM) :].decode()
            else:
                text = line.decode()
            self.offset += len(line)
            yield text

    def _fetch(self) -> bool:
        """Whether there is a line at hand."""
        while chunk := self._stream.read(CHUNK):
            size = self.offset - self.row + self._rest.tell()
            if size > self._most:
                what = f"a row that begins here has more than {size:,} bytes (is a quote not closed?)"
                raise too_large(self._key, self.row, what, self._most)
            lines = chunk.split(b"\n")
            rest = lines.pop()
            if lines:
                found = [line + b"\n" for line in lines]
                self._rest.write(found[0])
                found[0] = self._rest.getvalue()
                self._rest = io.BytesIO()
                self._rest.write(rest)
                self._lines = found[::-1]
                return True
            self._rest.write(rest)
        self._lines = [self._rest.getvalue()] if self._rest.tell() else []
        self._rest = io.BytesIO()
        return bool(self._lines)

    def skip_to(self, start: int) -> None:
        """Leaves out what comes before byte `start`: by seeking where the stream can, else by reading."""
        if start <= self.offset:
            return
        source: Any = self._stream
        if self.offset == 0 and not self._lines and not self._rest.tell():
            go_to(self._stream, start, self._key)
        elif hasattr(source, "seekable") and source.seekable():
            source.seek(0)
            go_to(self._stream, start, self._key)
        else:
            while self.offset < start:
                if not self._lines and not self._fetch():
                    raise corrupt(self._key, start, "reading should go on here, but the object is shorter")
                self.offset += len(self._lines.pop())
            return
        self._lines, self._rest, self.offset = [], io.BytesIO(), start


def _row(number: int, sample: Sample) -> list[Any]:
    """The fields of a sample that holds them in `data`; SampleError where that is no list: a text would be cut to letters."""
    row = sample[DATA]
    if isinstance(row, (str, bytes, bytearray, Mapping)) or not isinstance(row, Iterable):
        raise refusal(
            number, sample, f"field {DATA!r} is {type(row).__name__}, and a list of the row's fields is expected"
        )
    return list(row)
