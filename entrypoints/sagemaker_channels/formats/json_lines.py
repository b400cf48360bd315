"""JSON lines, parsed: each line's object is a sample, its members the fields; any other value becomes the field `data`.

The content type `application/jsonlines` yields lines as bytes (`lines.py`); ask for `format="jsonl"` to parse them. A member
`__key__` is the sample's key. A line ends at a line feed only: U+2028 and U+0085 are text. Blank lines and byte order marks are
skipped. In a Pipe, the last line of an object without a line feed and the first line of the next are one line, which is an error.
A file that was cut between two lines looks complete.

Source: jsonlines.org; RFC 8259. NaN and Infinity are read, which Python and other writers produce.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from sagemaker_channels.errors import corrupt
from sagemaker_channels.formats import lines
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import DATA, KEY, ByteStream, Sample

_decode = json.JSONDecoder().raw_decode  # json.loads takes a third more time


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    offset = cursor.start
    inner = Cursor(offset)
    for line in lines.plain(stream, key, inner):
        try:
            text = line[DATA].decode().strip("\ufeff \t\r")
            value, end = _decode(text) if text else (None, 0)
            if end < len(text):
                joined = "; end each object of a Pipe by a line feed" if key is None else ""
                raise ValueError(f"more text follows the value, at character {end}{joined}")
        except (ValueError, RecursionError) as error:
            cursor.skip(corrupt(key, offset, f"this line is not JSON in UTF-8, or is cut: {error}"))
            text = ""
        offset = cursor.position = inner.position
        if text:
            sample: Sample = {} if key is None else {KEY: key}
            sample.update(value if isinstance(value, dict) else {DATA: value})
            yield sample


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
