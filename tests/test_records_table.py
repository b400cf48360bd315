"""What holds for every format of the table, and how a content type finds its format."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from entrypoints.errors import ChannelError
from entrypoints.records import FORMATS, SHORT_NAMES, Format, format_of, lines, objects, recordio, tar, tar_write
from entrypoints.sample import Sample


def tar_bytes(payloads: Iterable[bytes]) -> bytes:
    stream = io.BytesIO()
    tar_write.write(stream, ({"__key__": f"{number:06d}", "bin": data} for number, data in enumerate(payloads)))
    return stream.getvalue()


def recordio_bytes(payloads: Iterable[bytes]) -> bytes:
    stream = io.BytesIO()
    recordio.write(stream, payloads)
    return stream.getvalue()


# How an object with these payloads looks in each format. A format that is missing here fails its tests.
WRITERS: dict[Format, Callable[[Iterable[bytes]], bytes]] = {
    tar: tar_bytes,
    recordio: recordio_bytes,
    lines: lambda payloads: b"".join(payload + b"\n" for payload in payloads),
    objects: b"".join,
}
every_format = pytest.mark.parametrize("form", list(SHORT_NAMES.values()), ids=list(SHORT_NAMES))
joinable = {name: form for name, form in SHORT_NAMES.items() if form.BOUNDARIES}
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


def values(samples: Iterable[Sample]) -> list[bytes]:
    return [value for sample in samples for name, value in sample.items() if name != "__key__"]


@every_format
def test_payloads_come_back(form: Format) -> None:
    payloads = [b"a", b"", b"bcd" * 100]
    data = WRITERS[form](payloads)
    expected = payloads if form.BOUNDARIES else [b"".join(payloads)]
    assert values(form.split(io.BytesIO(data), "key")) == expected


@every_format
def test_no_bytes_are_no_samples_but_for_whole_objects(form: Format) -> None:
    assert values(form.split(io.BytesIO(b""), None)) == ([] if form.BOUNDARIES else [b""])


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
