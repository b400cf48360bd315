r"""Lines: JSON lines, CSV and plain text, one sample per line.

A line ends at a line feed and nowhere else: `str.splitlines` would cut JSON at U+2028 and U+0085. The ending, `\n` or
`\r\n`, is not part of the sample; every other byte is. Blank lines are samples, and so is a last line without a line feed.
Quoted line feeds of CSV are not recognized.

A Pipe joins objects as they are: if one does not end with a line feed, its last line and the first of the next object become one
sample. The stream does not show that; `launch --check` and the local run look for such objects and warn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import BytesIO

from sagemaker_channels.formats.cursor import OTHER, Cursor, go_to
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.window import CHUNK, MAX_TEXT_BYTES, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import data_of, write_each
from sagemaker_channels.sample import DATA, KEY, ByteStream, Sample, sample_of


def plain(stream: ByteStream, key: str | None, cursor: Cursor, *, with_returns: bool = False) -> Iterator[Sample]:
    """Yield the lines of a stream that is not compressed, as bytes without their endings; positions are bytes.

    With `with_returns`, only the line feed is left out, not the carriage return before it.
    """
    position = cursor.start
    go_to(stream, position, key)
    most = max_sample_bytes(MAX_TEXT_BYTES)
    left, count = cursor.turns
    begun = BytesIO()  # the beginning of a line longer than a chunk: it grows and returns its bytes without copies
    while chunk := stream.read(CHUNK):
        lines = chunk.split(b"\n")
        rest = lines.pop()
        returns = not with_returns and (b"\r" in chunk or begun.tell() > 0)  # lines may end with one
        if lines and begun.tell():
            begun.write(lines[0])
            lines[0] = begun.getvalue()
            begun = BytesIO()
        if count > 1:  # Only every count-th line is needed, and no position between them.
            needed = [line.removesuffix(b"\r") if returns else line for line in lines[left::count]]
            every = [OTHER] * len(lines)
            every[left::count] = [{DATA: line} if key is None else {KEY: key, DATA: line} for line in needed]
            left = (left - len(lines)) % count
            cursor.position = position = position + sum(map(len, lines)) + len(lines)
            yield from every
            lines.clear()
        for line in lines:
            position += len(line) + 1
            cursor.position = position
            if returns and line.endswith(b"\r"):
                line = line[:-1]
            # Made here, since calling sample_of for each line would be measurably slower.
            yield {DATA: line} if key is None else {KEY: key, DATA: line}
        if begun.write(rest) and begun.tell() > most:
            raise too_large(key, position, f"a line that begins here has more than {begun.tell():,} bytes", most)
    if begun.tell():
        cursor.position = position + begun.tell()
        yield sample_of(begun.getvalue(), key)


def _encode(sample: Sample) -> list[bytes]:
    line = data_of(sample)
    if b"\n" in line or line.endswith(b"\r"):
        raise ValueError("it has a line feed, or ends with a carriage return: it would not be one line")
    return [line, b"\n"]


FORMAT = Format(
    name="lines",
    content_types=("application/jsonlines", "text/csv", "text/plain"),
    sample="a line's bytes in `data`",
    read=plain,
    write=partial(write_each, _encode),
    ending=".txt",
)
