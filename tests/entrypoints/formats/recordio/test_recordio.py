"""RecordIO: records come back as they went in, whole or in parts, and what is cut or damaged is an error with its offset."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import recordio
from sagemaker_channels.formats.cursor import Cursor
from stream_pieces import Pieces

MAGIC = struct.pack("<I", 0xCED7230A)


def record(flag: int, payload: bytes) -> bytes:
    """One record by the format's description, without the writer under test."""
    return MAGIC + struct.pack("<I", flag << 29 | len(payload)) + payload + bytes(-len(payload) % 4)


def written(*payloads: bytes) -> bytes:
    stream = io.BytesIO()
    assert recordio.write(stream, payloads) == len(payloads)
    return stream.getvalue()


def read(data: bytes) -> list[bytes]:
    return [sample["data"] for sample in recordio.FORMAT.split(io.BytesIO(data), "o.rec")]


pieces = st.one_of(st.just(MAGIC), st.binary(max_size=9), st.binary(min_size=4, max_size=4))


@given(st.lists(st.lists(pieces, max_size=6).map(b"".join), max_size=6), st.integers(1, 40))
def test_written_payloads_are_read_back_in_any_pieces(payloads: list[bytes], size: int) -> None:
    data = written(*payloads)
    assert list(recordio.payloads(Pieces(data, size))) == payloads


def test_written_bytes_are_those_of_mxnets_writer() -> None:
    assert written(b"abcde") == record(0, b"abcde")
    assert written(b"") == record(0, b"")
    # As MXNet's writer: split at every aligned magic word, which itself is left out.
    assert written(b"1234" + MAGIC + b"5678" + MAGIC) == record(1, b"1234") + record(2, b"5678") + record(3, b"")
    assert written(b"123" + MAGIC) == record(0, b"123" + MAGIC)


def test_magic_word_inside_a_whole_record_is_data() -> None:
    assert read(record(0, MAGIC * 3) + record(0, b"x")) == [MAGIC * 3, b"x"]


def test_empty_record_does_not_end_the_stream() -> None:
    assert read(record(0, b"") + record(0, b"") + record(0, b"z")) == [b"", b"", b"z"]
    assert read(b"") == []


def test_key_of_each_sample_is_the_objects() -> None:
    assert list(recordio.FORMAT.split(io.BytesIO(record(0, b"x")), "o.rec")) == [{"__key__": "o.rec", "data": b"x"}]
    assert list(recordio.FORMAT.split(io.BytesIO(record(0, b"x")), None)) == [{"data": b"x"}]


@pytest.mark.parametrize("size", [3, 1 << 20])
def test_cut_anywhere_is_an_error(size: int) -> None:
    records = [record(0, b"abcde"), record(1, b"1234"), record(2, b""), record(3, b"567"), record(0, b"")]
    data = b"".join(records)
    ends = {0, len(records[0]), len(data) - 8, len(data)}  # where no record is open
    for cut in range(len(data) + 1):
        stream = Pieces(data[:cut], size)
        if cut in ends:
            list(recordio.payloads(stream))
        else:
            with pytest.raises(CorruptError, match=r"byte \d+: not RecordIO, or damaged: the stream ends"):
                list(recordio.payloads(stream))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            record(0, b"x") + b"\0" * 8,
            "object 'o.rec', byte 12: .*expected the magic word 0xced7230a, found 0x00000000",
        ),
        (record(0, b"x") + record(2, b""), "byte 12: .*continuation flag 2 outside a record in parts"),
        (record(3, b""), "byte 0: .*continuation flag 3 outside"),
        (record(1, b"") + record(0, b""), "byte 8: .*continuation flag 0 inside the one that begins at byte 0"),
        (record(1, b"") + record(1, b""), "byte 8: .*continuation flag 1 inside"),
        (record(5, b""), "byte 0: .*continuation flag 5"),
        (b"{}", "byte 0: .*6 bytes before the end of a record's header"),
    ],
)
def test_damage_names_its_offset(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError, match=message):
        read(data)


def test_records_before_the_damage_are_yielded() -> None:
    found = []
    with pytest.raises(CorruptError):
        for payload in recordio.payloads(io.BytesIO(record(0, b"a") + record(0, b"b") + b"junk")):
            found.append(payload)  # noqa: PERF402 - a list() would lose what came
    assert found == [b"a", b"b"]


def test_records_larger_than_the_window_are_read() -> None:
    payloads = [bytes([number]) * (number * 700_001) for number in range(1, 6)]
    assert read(written(*payloads)) == payloads


def test_writing_a_too_long_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordio, "MAX_LENGTH", 10)
    with pytest.raises(ValueError, match=r"11 bytes; .* at most 10"):
        written(b"x" * 11)


class Lending(io.BytesIO):
    """A stream that lends its bytes, and counts what is read of it."""

    reads = copied = 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer)
        self.reads, self.copied = self.reads + 1, self.copied + count
        return count

    def lend(self, size: int) -> memoryview:
        self.reads += 1
        return memoryview(self.read(size))


def test_payloads_of_other_readers_are_not_copied() -> None:
    stream = Lending(written(*[bytes(4_000_000)] * 8))
    every = list(recordio.FORMAT.split(stream, None, Cursor(turns=(0, 8))))
    assert [len(each.get("data", b"")) for each in every] == [4_000_000, *[0] * 7]
    assert stream.copied <= 4_000_000


def test_large_payload_is_read_at_once() -> None:
    """Records that were copied piece by piece, from the window to memory that grew, took 3 to 8 times as long."""
    stream = Lending(written(b"a", bytes(range(256)) * 40_000, b"b"))
    assert [each["data"] for each in recordio.FORMAT.split(stream)] == [b"a", bytes(range(256)) * 40_000, b"b"]
    assert stream.reads <= 4  # one window, the rest, one more window, the end
