"""What holds for every format of the table."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import CONTENT_TYPES, FORMATS, SHORT_NAMES, Format, format_of, objects
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.protobuf_record import Blob
from sagemaker_channels.sample import Sample

ATTRIBUTES = format_of("augmented; attributes=x")  # the format augmented needs names
FORMS = {**SHORT_NAMES, "augmented": ATTRIBUTES}
every_format = pytest.mark.parametrize("form", list(FORMS.values()), ids=list(FORMS))
joinable = {name: form for name, form in FORMS.items() if form.boundaries}
every_joinable_format = pytest.mark.parametrize("form", list(joinable.values()), ids=list(joinable))
WITH_TABLE = [name for name, form in FORMS.items() if not form.boundaries and form.write]  # of contents, at the end


def written(form: Format, payloads: Iterable[bytes]) -> bytes:
    """An object with these payloads, by the format's card."""
    samples = [form.example(number, data) for number, data in enumerate(payloads)]
    stream = io.BytesIO()
    if form == objects.FORMAT:
        stream.writelines(sample["data"] for sample in samples)
    else:
        assert form.write is not None, f"the card of {form.name} needs a writer: these tests read what it writes"
        assert form.write(stream, samples) == len(samples)
    return stream.getvalue()


class Repeated:
    """One piece of data over and over, without holding it all."""

    def __init__(self, data: bytes, times: int) -> None:
        self.data, self.times = data, times
        self.rest = memoryview(b"")

    def readinto(self, buffer: memoryview) -> int:
        if not self.rest and self.times:
            self.times -= 1
            self.rest = memoryview(self.data)
        count = min(len(self.rest), len(buffer))
        buffer[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count

    def read(self, size: int = -1, /) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(memoryview(buffer))])

    def close(self) -> None:
        self.times = 0


class Unseekable:
    """A stream that gives a few bytes at a time and cannot seek, as a pipe."""

    def __init__(self, data: bytes) -> None:
        self.stream = io.BytesIO(data)

    def readinto(self, buffer: memoryview) -> int:
        return self.stream.readinto(buffer[:1000])

    def read(self, size: int = -1, /) -> bytes:
        return self.stream.read(size if size < 0 else min(size, 1000))

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.stream.close()


class Lending(Unseekable):
    """A stream that lends its bytes, as a ring does, and writes others over them in the next call."""

    lent = memoryview(bytearray())

    def lend(self, size: int) -> memoryview:
        self.lent[:] = b"?" * len(self.lent)
        self.lent = memoryview(bytearray(self.stream.read(min(size, 5000))))
        return self.lent

    def read(self, size: int = -1, /) -> bytes:
        return self.lend(size).tobytes()

    def readinto(self, buffer: memoryview) -> int:
        piece = self.lend(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


class Seekable(io.BytesIO):
    """A stream that counts what is read of it, and lets one seek only before that."""

    taken = 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        assert self.taken == 0
        return super().seek(offset, whence)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer)
        self.taken += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def values(samples: Iterable[Sample]) -> list[bytes]:
    """The payloads that the samples were made of."""
    return [value for sample in samples for value in _values(sample)]


def _values(sample: Mapping[str, Any]) -> Iterator[bytes]:
    for name, value in sample.items():
        if isinstance(value, Blob):
            yield from value.values
        elif isinstance(value, dict):
            yield from _values(value)
        elif name != "__key__":
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, (bytes, str)):
                    yield item if isinstance(item, bytes) else item.encode("latin-1")


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_card_is_complete(form: Format) -> None:
    """What a new card can forget without failing elsewhere."""
    assert [form.name] == [each.name for each in FORMATS if each.name == form.name], "another card has this name"
    assert len(CONTENT_TYPES) == sum(len(each.content_types) for each in FORMATS), "two cards have one content type"
    assert form.sample.strip("."), "say what a sample is: it is a row of the table in docs/reference/formats.md"
    assert form.write is not None or form.ending is None, "the ending is that of write_shards, which needs a writer"
    assert (form.framing is None) == (form.decode is None), "framing finds the records that decode decodes"
    assert bool(form.options) == (form.with_options is not None), "options need a function that chooses them"


@every_format
def test_written_payloads_are_read_back(form: Format) -> None:
    payloads = [b"a", b"", b"bcd" * 100]
    data = written(form, payloads)
    expected = payloads if form != objects.FORMAT else [b"".join(payloads)]
    assert values(form.split(io.BytesIO(data), "key")) == expected


@every_format
def test_empty_stream_has_no_samples_except_as_whole_object(form: Format) -> None:
    assert values(form.split(io.BytesIO(b""), None)) == ([b""] if form == objects.FORMAT else [])


@every_joinable_format
def test_joined_objects_yield_the_samples_of_both(form: Format) -> None:
    first, second = [b"1", b"2"], [b"3"]
    joined = written(form, first) + written(form, second)
    assert values(form.split(io.BytesIO(joined), None)) == first + second


@every_joinable_format
def test_memory_does_not_grow_with_the_stream(form: Format) -> None:
    stream = Repeated(written(form, [b"x" * 10_000] * 100), times=100)
    tracemalloc.start()
    try:
        count = sum(1 for _ in form.split(stream, None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak < 8 << 20  # of 100 MB


PAYLOADS = [b"a", b"", b"bcd" * 1000, b"e" * 35_615, b"f" * 100_000, b"", b"g" * 3, *(b"%d" % n for n in range(30))]


def with_positions(form: Format, stream: Any, start: int = 0) -> list[tuple[list[bytes], int]]:
    """The payloads of each sample and the position after it."""
    cursor = Cursor(start)
    samples = [(sample, cursor.position) for sample in form.split(stream, "key", cursor)]
    return [(values([sample]), position) for sample, position in samples]


@pytest.mark.parametrize("kind", [Seekable, Unseekable, Lending])
@every_format
def test_resuming_from_any_position_yields_the_rest(form: Format, kind: Callable[[bytes], Any]) -> None:
    data = written(form, PAYLOADS)
    if form.boundaries:
        data += written(form, [b"of a second object"])
    if form.name in WITH_TABLE:
        kind = io.BytesIO
    complete = with_positions(form, kind(data))
    assert len(complete) == (1 if form == objects.FORMAT else len(PAYLOADS) + form.boundaries)
    assert with_positions(form, kind(data), 0) == complete
    for number, (_, position) in enumerate(complete):
        assert with_positions(form, kind(data), position) == complete[number + 1 :]


@every_joinable_format
@pytest.mark.parametrize("kind", [io.BytesIO, Unseekable])
def test_resuming_in_a_compressed_object_yields_the_rest(form: Format, kind: Callable[[bytes], Any]) -> None:
    data = written(form, PAYLOADS)
    # Three members, with records across them.
    compressed = b"".join(map(gzip.compress, (data[:7], data[7:40_000], data[40_000:])))
    complete = with_positions(form, kind(compressed))
    assert [payload for payloads, _ in complete for payload in payloads] == PAYLOADS
    for number, (_, position) in enumerate(complete):
        assert with_positions(form, kind(compressed), position) == complete[number + 1 :]
    with pytest.raises(CorruptError, match="resume"):
        with_positions(form, kind(compressed), complete[-1][1] - 10_000_000)
    with pytest.raises(CorruptError, match=r"resume|start the epoch again"):
        with_positions(form, kind(written(form, [b"a"])), complete[-1][1])


@every_joinable_format
def test_cut_or_damaged_compressed_object_is_an_error(form: Format) -> None:
    compressed = gzip.compress(written(form, [b"%d" % number for number in range(3000)]), 9)
    damaged = bytearray(compressed)
    damaged[-6] ^= 1  # of the CRC
    twice = gzip.compress(compressed)
    for data in (
        compressed[:-1],
        compressed[: len(compressed) // 2],
        compressed[:12],
        bytes(damaged),
        compressed + b"junk",
        twice,
    ):
        with pytest.raises(CorruptError, match=r"object 'key', byte \d+: .*(gzip|not a tar|not TFRecord)"):
            list(form.split(io.BytesIO(data), "key"))


@pytest.mark.parametrize("name", ["objects", *WITH_TABLE])
def test_whole_objects_and_formats_with_a_table_are_never_unzipped(name: str) -> None:
    form = SHORT_NAMES[name]
    compressed = gzip.compress(written(form, [b"a", b"b"]))
    if form == objects.FORMAT:
        assert values(form.split(io.BytesIO(compressed), "key")) == [compressed]
    else:
        with pytest.raises(CorruptError, match=r"object 'key', byte"):
            list(form.split(io.BytesIO(compressed), "key"))


@every_joinable_format
def test_resuming_reads_only_the_remaining_bytes(form: Format) -> None:
    data = written(form, [b"x" * 10_000] * 1000)
    complete = with_positions(form, io.BytesIO(data))
    stream = Seekable(data)
    assert len(with_positions(form, stream, complete[-3][1])) == 2
    assert stream.taken < 40_000


@every_joinable_format
def test_resuming_in_a_shorter_object_is_an_error(form: Format) -> None:
    data = written(form, [b"a", b"b"])
    for kind in (io.BytesIO, Unseekable):
        with pytest.raises(CorruptError, match=r"object 'key', byte .* resume here, but the object is shorter"):
            with_positions(form, kind(data), len(data) + 1)
