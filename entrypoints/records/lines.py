"""Lines: JSON lines, CSV and plain text, one sample per line.

A line ends at a line feed and nowhere else: `str.splitlines` would cut JSON at U+2028 and U+0085. The ending, `\\n` or
`\\r\\n`, is not part of the sample; every other byte is. Blank lines are samples; a last line that no line feed ends is
one, and nothing follows the last line feed. Quoted line feeds of CSV are cut through. Objects may be gzip-compressed.

A Pipe joins objects as they are: if one does not end with a line feed, its last line and the first of the next object are one
sample. The stream does not show that; `launch --check` and the local run look for such objects and warn.
"""

from __future__ import annotations

from collections.abc import Iterator

from entrypoints.records import gunzip
from entrypoints.records.cursor import Cursor, go_to
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
    pieces: list[bytes] = []  # of a line longer than a chunk: joined once, at its end
    while chunk := stream.read(CHUNK):
        lines = chunk.split(b"\n")
        rest = lines.pop()
        returns = bool(pieces) or b"\r" in chunk  # lines may end with one
        if lines and pieces:
            lines[0] = b"".join(pieces) + lines[0]
            pieces = []
        for line in lines:
            position += len(line) + 1
            cursor.position = position
            if returns and line.endswith(b"\r"):
                line = line[:-1]
            # Not by way of whole_object: a call for each line shows.
            yield {DATA: line} if key is None else {KEY: key, DATA: line}
        if rest:
            pieces.append(rest)
    if pieces:
        line = b"".join(pieces)
        cursor.position = position + len(line)
        yield whole_object(line, key)
