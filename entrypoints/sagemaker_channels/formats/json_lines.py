"""JSON lines, parsed: each line's object is a sample, its members the fields; any other value becomes the field `data`.

The content type `application/jsonlines` yields lines as bytes (`lines.py`); ask for `format="jsonl"` to parse them. A member
`__key__` is the sample's key. A line ends at a line feed only: U+2028 and U+0085 are text. Blank lines and byte order marks are
skipped. In a Pipe, the last line of an object without a line feed and the first line of the next are one line: several objects in
one line are separated there, and are an error everywhere else. A file that was cut between two lines looks complete.

Source: jsonlines.org; RFC 8259. NaN and Infinity are read, which Python and other writers produce.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from sagemaker_channels.errors import CorruptError, foreign
from sagemaker_channels.formats import lines
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import DATA, KEY, ByteStream, Sample

_BOM = b"\xef\xbb\xbf"
_decode = json.JSONDecoder().raw_decode


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    offset = cursor.start
    inner = Cursor(offset)
    for line in lines.plain(stream, key, inner):
        try:
            for value, after in _values(line[DATA], offset, key):
                cursor.position = after or inner.position  # the last of several values ends the line
                sample: Sample = {} if key is None else {KEY: key}
                if isinstance(value, dict):
                    sample.update(value)
                else:
                    sample[DATA] = value
                yield sample
        except CorruptError as error:
            cursor.skip(error)
            cursor.position = inner.position
        offset = inner.position


def _values(line: bytes, offset: int, key: str | None) -> Iterator[tuple[Any, int]]:
    """Yield a line's values, each with the offset at which the next one begins, 0 for the last."""
    try:
        text = line.decode().strip("\ufeff \t\r")
        while text:
            value, end = _decode(text)
            rest = text[end:].lstrip("\ufeff \t\r")
            if rest and not (key is None and isinstance(value, dict) and rest.startswith("{")):
                raise ValueError(f"more text follows the value, at character {len(text) - len(rest)}")
            # The rest ends where the line ends, except for blanks.
            yield value, offset + len(line.rstrip(b" \t\r" + _BOM)) - len(rest.encode()) if rest else 0
            text = rest
    except (ValueError, RecursionError) as error:
        raise foreign("a line of JSON in UTF-8", key, offset, error) from None


def _encode(sample: Sample) -> list[bytes]:
    """Return a line in which each field is a member; of a sample with nothing but `data`, a line of that value."""
    value = sample[DATA] if sample.keys() == {DATA} and not isinstance(sample[DATA], dict) else sample
    try:
        return [json.dumps(value, ensure_ascii=False).encode(), b"\n"]
    except (TypeError, ValueError) as error:
        wrong = [f"field {name!r} is bytes: " for name, field in sample.items() if isinstance(field, bytes)]
        raise ValueError(f"{''.join(wrong[:1])}JSON cannot hold it: {error}") from error


FORMAT = Format(
    name="jsonl",
    sample="JSON lines: the members of a line's object",
    read=_read,
    write=partial(write_each, _encode),
    ending=".jsonl",
    after_damage="the next line",
    example=lambda _, data: {"x": data.decode("latin-1")},
)
