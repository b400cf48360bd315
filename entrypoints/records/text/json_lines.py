"""JSON lines, parsed: each line's object is a sample, its members the fields.

The content type `application/jsonlines` gives lines as bytes (`lines.py`), as it always has; ask for `format="jsonl"` to
have them parsed. A line that holds no object (a list, a number) becomes the field `data`. A member `__key__` is the
sample's key; without one the key is the object's, where it is known.

A line ends at a line feed only: U+2028 and U+0085 are text. Blank lines and byte order marks are passed over. A Pipe joins
objects, and where one does not end with a line feed, its last line and the next one's first are one: objects that stand
in one line are told apart there, and are an error everywhere else. Nothing in the format says where a file ends, so one
that was cut between two lines looks whole.

Source: jsonlines.org; RFC 8259. NaN and Infinity are read, which Python and others write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from entrypoints.errors import corrupt
from entrypoints.records import gunzip
from entrypoints.records.cursor import Cursor
from entrypoints.records.refusing import refusal
from entrypoints.records.text import lines
from entrypoints.sample import DATA, KEY, ByteStream, Sample

BOUNDARIES = True

_BOM = b"\xef\xbb\xbf"
_decode = json.JSONDecoder().raw_decode


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """The values of the lines of a stream, gzip-compressed or not. Positions as `gunzip.split_either`'s.

    Raises CorruptError, naming a line's offset, for what is no JSON.
    """
    return gunzip.split_either(_plain, stream, key, cursor)


def _plain(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    offset = cursor.start
    inner = Cursor(offset)
    for line in lines.plain(stream, key, inner):
        for value, after in _values(line[DATA], offset, key):
            # Of several values in a line the last one ends it.
            cursor.position = after or inner.position
            sample: Sample = {} if key is None else {KEY: key}
            if isinstance(value, dict):
                sample.update(value)
            else:
                sample[DATA] = value
            yield sample
        offset = inner.position


def _values(line: bytes, offset: int, key: str | None) -> Iterator[tuple[Any, int]]:
    """A line's values, each with the offset at which the next one begins, 0 for the last."""
    try:
        text = line.decode().strip("\ufeff \t\r")
        while text:
            value, end = _decode(text)
            rest = text[end:].lstrip("\ufeff \t\r")
            if rest and not (key is None and isinstance(value, dict) and rest.startswith("{")):
                raise ValueError(f"more follows behind the value, at character {len(text) - len(rest)}")
            # What is left of the line ends where the line does, but for its blanks.
            yield value, offset + len(line.rstrip(b" \t\r" + _BOM)) - len(rest.encode()) if rest else 0
            text = rest
    except (ValueError, RecursionError) as error:
        raise corrupt(key, offset, f"this line is no JSON in UTF-8, or cut: {error}") from error


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Writes samples as lines, each field a member; how many. A sample with nothing but `data` is written as that value.

    Raises SampleError, a ValueError, for what JSON cannot hold, bytes for one.
    """
    count = 0
    for sample in samples:
        value = sample[DATA] if sample.keys() == {DATA} and not isinstance(sample[DATA], dict) else sample
        try:
            line = json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot hold
            line = json.dumps(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise refusal(count, sample, f"{_which(sample)}JSON cannot hold it: {error}") from error
        stream.write(line + b"\n")
        count += 1
    return count


def _which(sample: Sample) -> str:
    """The field that JSON cannot hold, in words."""
    for name, value in sample.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return f"field {name!r} is {type(value).__name__}: "
    return ""
