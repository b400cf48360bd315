"""Lines: JSON lines, CSV and plain text, one sample per line.

A line ends at a line feed and nowhere else: `str.splitlines` would cut JSON at U+2028 and U+0085. The ending, `\\n` or
`\\r\\n`, is not part of the sample; every other byte is. Blank lines are samples; a last line that no line feed ends is
one, and nothing follows the last line feed. Quoted line feeds of CSV are cut through. Objects may be gzip-compressed.

A Pipe joins objects as they are: if one does not end with a line feed, its last line and the first of the next object are one
sample. The stream does not show that; `launch --check` and the local run look for such objects and warn.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

from entrypoints.records import gunzip
from entrypoints.records.cursor import Cursor, go_to
from entrypoints.records.sizes import MAX_TEXT_BYTES, max_sample_bytes, too_large
from entrypoints.records.window import CHUNK
from entrypoints.sample import DATA, KEY, ByteStream, Sample, whole_object

BOUNDARIES = True


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """The lines of a stream, gzip-compressed or not, as bytes without their endings. Positions as `gunzip.split_either`'s."""
    return gunzip.split_either(plain, stream, key, cursor)


def plain(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """The lines of a stream as it is. Positions are bytes."""
    position = cursor.start
    go_to(stream, position, key)
    most = max_sample_bytes(MAX_TEXT_BYTES)
    begun = BytesIO()  # the beginning of a line longer than a chunk: it grows, and hands its bytes over, without copies
    while chunk := stream.read(CHUNK):
        lines = chunk.split(b"\n")
        rest = lines.pop()
        returns = b"\r" in chunk or begun.tell() > 0  # lines may end with one
        if lines and begun.tell():
            begun.write(lines[0])
            lines[0] = begun.getvalue()
            begun = BytesIO()
        for line in lines:
            position += len(line) + 1
            cursor.position = position
            if returns and line.endswith(b"\r"):
                line = line[:-1]
            # Not by way of whole_object: a call for each line shows.
            yield {DATA: line} if key is None else {KEY: key, DATA: line}
        if begun.write(rest) and begun.tell() > most:
            raise too_large(key, position, f"a line that begins here has more than {begun.tell():,} bytes", most)
    if begun.tell():
        cursor.position = position + begun.tell()
        yield whole_object(begun.getvalue(), key)
