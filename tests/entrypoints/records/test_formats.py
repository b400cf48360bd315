"""What holds for every format of the table, and how a content type finds its format."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from entrypoints.errors import ChannelError, CorruptError
from entrypoints.records import FORMATS, SHORT_NAMES, Format, format_of, name_of, objects
from entrypoints.records.archives import tar, tar_write, zip_members, zip_write
from entrypoints.records.cursor import Cursor
from entrypoints.records.parquet import parquet, parquet_write
from entrypoints.records.recordio import image_recordio, recordio, recordio_protobuf, recordio_protobuf_write
from entrypoints.records.text import augmented, csv_rows, json_lines, lines
from entrypoints.records.tfrecord import example, tfrecord
from entrypoints.sample import Sample
from launcher.checks.job.code import BOUNDED


def tar_bytes(payloads: Iterable[bytes]) -> bytes:
    stream = io.BytesIO()
    tar_write.write(stream, ({"__key__": f"{number:06d}", "bin": data} for number, data in enumerate(payloads)))
    return stream.getvalue()


def written(write: Callable[[io.BytesIO, Any], int]) -> Callable[[Iterable[Any]], bytes]:
    """What a writer makes of samples, as a function."""

    def collect(samples: Iterable[Any]) -> bytes:
        stream = io.BytesIO()
        write(stream, samples)
        return stream.getvalue()

    return collect


ATTRIBUTES = augmented.Augmented(("x",))  # it needs names
# How an object with these payloads looks in each format. A format that is missing here fails its tests.
WRITERS: dict[Format, Callable[[Iterable[bytes]], bytes]] = {
    tar: tar_bytes,
    recordio: written(recordio.write),
    image_recordio: lambda payloads: written(image_recordio.write)({"data": data} for data in payloads),
    recordio_protobuf: lambda payloads: written(recordio_protobuf_write.write)(
        {"features": {"x": recordio_protobuf.Blob([data], "")}} for data in payloads
    ),
    tfrecord: written(tfrecord.write),
    example: lambda payloads: written(example.write)({"x": data} for data in payloads),
    lines: lambda payloads: b"".join(payload + b"\n" for payload in payloads),
    objects: b"".join,
    json_lines: lambda payloads: written(json_lines.write)({"x": data.decode("latin-1")} for data in payloads),
    csv_rows.ROWS: lambda payloads: written(csv_rows.ROWS.write)(
        {"data": [data.decode("latin-1")]} for data in payloads
    ),
    zip_members: lambda payloads: written(zip_write.write)(
        {"__key__": f"{number:06d}", "bin": data} for number, data in enumerate(payloads)
    ),
    ATTRIBUTES: lambda payloads: written(ATTRIBUTES.write)({"x": data} for data in payloads),
    parquet.ROWS: lambda payloads: written(parquet_write.write)({"x": data} for data in payloads),
}
# Formats with a table of contents at the end: they seek as they like, and a Pipe cannot bring them.
WITH_TABLE = (zip_members, parquet.ROWS)
tested = {**SHORT_NAMES, "augmented": ATTRIBUTES}
every_format = pytest.mark.parametrize("form", list(tested.values()), ids=list(tested))
joinable = {name: form for name, form in tested.items() if form.BOUNDARIES}
every_joinable_format = pytest.mark.parametrize("form", list(joinable.values()), ids=list(joinable))


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
        if isinstance(value, recordio_protobuf.Blob):
            yield from value.values
        elif isinstance(value, dict):
            yield from _values(value)
        elif name != "__key__":
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, (bytes, str)):
                    yield item if isinstance(item, bytes) else item.encode("latin-1")


@every_format
def test_payloads_come_back(form: Format) -> None:
    payloads = [b"a", b"", b"bcd" * 100]
    data = WRITERS[form](payloads)
    expected = payloads if form is not objects else [b"".join(payloads)]
    assert values(form.split(io.BytesIO(data), "key")) == expected


@every_format
def test_no_bytes_are_no_samples_but_for_whole_objects(form: Format) -> None:
    assert values(form.split(io.BytesIO(b""), None)) == ([b""] if form is objects else [])


@every_joinable_format
def test_joined_objects_are_the_same_samples(form: Format) -> None:
    first, second = [b"1", b"2"], [b"3"]
    joined = WRITERS[form](first) + WRITERS[form](second)
    assert values(form.split(io.BytesIO(joined), None)) == first + second


@every_joinable_format
def test_memory_stays_flat(form: Format) -> None:
    stream = Repeated(WRITERS[form]([b"x" * 10_000] * 100), times=100)
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
    return [(values([sample]), cursor.position) for sample in form.split(stream, "key", cursor)]


@pytest.mark.parametrize("kind", [Seekable, Unseekable])
@every_format
def test_going_on_from_every_position_gives_what_remains(form: Format, kind: Callable[[bytes], Any]) -> None:
    data = WRITERS[form](PAYLOADS)
    if form.BOUNDARIES:
        data += WRITERS[form]([b"of a second object"])
    if form in WITH_TABLE and kind is Seekable:
        kind = io.BytesIO
    complete = with_positions(form, kind(data))
    assert len(complete) == (1 if form is objects else len(PAYLOADS) + form.BOUNDARIES)
    assert with_positions(form, kind(data), 0) == complete
    for number, (_, position) in enumerate(complete):
        assert with_positions(form, kind(data), position) == complete[number + 1 :]


@every_joinable_format
@pytest.mark.parametrize("kind", [io.BytesIO, Unseekable])
def test_going_on_in_a_compressed_object(form: Format, kind: Callable[[bytes], Any]) -> None:
    data = WRITERS[form](PAYLOADS)
    # Three members, with records across them.
    compressed = b"".join(map(gzip.compress, (data[:7], data[7:40_000], data[40_000:])))
    complete = with_positions(form, kind(compressed))
    assert [payload for payloads, _ in complete for payload in payloads] == PAYLOADS
    for number, (_, position) in enumerate(complete):
        assert with_positions(form, kind(compressed), position) == complete[number + 1 :]
    with pytest.raises(CorruptError, match="go on"):
        with_positions(form, kind(compressed), complete[-1][1] - 10_000_000)
    with pytest.raises(CorruptError, match=r"go on|begin the epoch anew"):
        with_positions(form, kind(WRITERS[form]([b"a"])), complete[-1][1])


@every_joinable_format
def test_a_compressed_object_that_is_cut_or_damaged(form: Format) -> None:
    compressed = gzip.compress(WRITERS[form]([b"%d" % number for number in range(3000)]), 9)
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


@pytest.mark.parametrize("form", [objects, *WITH_TABLE])
def test_what_is_never_unzipped(form: Format) -> None:
    compressed = gzip.compress(WRITERS[form]([b"a", b"b"]))
    if form is objects:
        assert values(form.split(io.BytesIO(compressed), "key")) == [compressed]
    else:
        with pytest.raises(CorruptError, match=r"object 'key', byte"):
            list(form.split(io.BytesIO(compressed), "key"))


@every_joinable_format
def test_going_on_reads_no_more_than_what_remains(form: Format) -> None:
    data = WRITERS[form]([b"x" * 10_000] * 1000)
    complete = with_positions(form, io.BytesIO(data))
    stream = Seekable(data)
    assert len(with_positions(form, stream, complete[-3][1])) == 2
    assert stream.taken < 40_000


@every_joinable_format
def test_going_on_in_a_shorter_object_is_an_error(form: Format) -> None:
    data = WRITERS[form]([b"a", b"b"])
    for kind in (io.BytesIO, Unseekable):
        with pytest.raises(CorruptError, match=r"object 'key', byte .* go on here, but the object is shorter"):
            with_positions(form, kind(data), len(data) + 1)


@pytest.mark.parametrize("name", FORMATS)
def test_content_types_in_any_spelling(name: str) -> None:
    assert format_of(f" {name.upper()} ; charset=utf-8;label_size=1") is FORMATS[name]


@pytest.mark.parametrize(
    "content_type", [None, "", " ", "image/png", "application/x-unknown", "application/x-image; a=b"]
)
def test_everything_else_is_whole_objects(content_type: str | None) -> None:
    assert format_of(content_type) is objects


def test_short_names() -> None:
    assert format_of("Tar") is tar
    with pytest.raises(ChannelError, match=r"format 'tra' is neither a content type nor one of .*; did you mean 'tar'"):
        format_of("tra")


CHOSEN = [
    "csv; header=present",
    'csv; header=present; delimiter=";"',
    'csv; delimiter="\t"',
    'csv; delimiter="\\\\"',
    "parquet; columns=a,b.c",
    'parquet; columns="a b,ü"',
    "augmented; attributes=source-ref,class",
    "recordio-protobuf; batch=7",
]


@pytest.mark.parametrize("name", [*SHORT_NAMES, *CHOSEN])
def test_messages_call_a_format_as_one_writes_it(name: str) -> None:
    assert format_of(name_of(format_of(name))) == format_of(name)
    assert name_of(format_of(name)).replace('"', "") == name.replace('"', "")


@pytest.mark.parametrize(("text", "name"), [("text/csv", "lines"), ("csv; header=absent", "csv"), (None, "objects")])
def test_content_types_are_called_by_their_formats_short_name(text: str | None, name: str) -> None:
    assert name_of(format_of(text)) == name


def test_the_launcher_knows_which_formats_a_pipe_keeps_apart() -> None:
    assert set(BOUNDED) == {content_type for content_type, form in FORMATS.items() if form.BOUNDARIES}
