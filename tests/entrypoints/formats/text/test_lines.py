"""Lines end at a line feed and nowhere else, whatever the pieces in which they come."""

from __future__ import annotations

import io
import json

from hypothesis import assume, given
from hypothesis import strategies as st

from sagemaker_channels.formats import lines, signatures
from stream_pieces import Pieces


def read(data: bytes, size: int = 1 << 20) -> list[bytes]:
    return [sample["data"] for sample in lines.FORMAT.split(Pieces(data, size))]


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))),
    st.integers(1, 9),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_lines_are_read_in_any_pieces(wanted: list[bytes], size: int, end: bytes) -> None:
    data = b"".join(line + end for line in wanted)
    assume(signatures.found_in(data) is None)
    assert read(data, size) == wanted


def test_only_the_line_ending_is_removed() -> None:
    assert read(b"") == []
    assert read(b"\n") == [b""]
    assert read(b"a\n\nb\n") == [b"a", b"", b"b"]
    assert read(b"a\nb") == [b"a", b"b"]
    assert read(b"a\r\r\nb\rc\r") == [b"a\r", b"b\rc\r"]  # nothing but the ending goes


def test_unicode_line_separators_do_not_end_a_line() -> None:
    document = json.dumps({"text": "a\u2028b\u0085c\x0bd"}, ensure_ascii=False).encode()
    assert read(document + b"\n" + document) == [document, document]


def test_line_longer_than_a_chunk_is_read_whole() -> None:
    line = b"0123456789" * 300_000
    assert read(line + b"\nend", 1000) == [line, b"end"]


def test_key_of_each_line_is_the_objects() -> None:
    assert list(lines.FORMAT.split(io.BytesIO(b"a\n"), "t.csv")) == [{"__key__": "t.csv", "data": b"a"}]
