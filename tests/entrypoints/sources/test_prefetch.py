"""Prefetch: the same bytes in the same order; limits, seeks, errors, early closing, forks."""

from __future__ import annotations

import gc
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patience import PATIENCE, wait_for
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources.pace import pace_of
from sagemaker_channels.sources.prefetch import read_ahead
from sagemaker_channels.sources.stream import Limits

SMALL = Limits(held_bytes=64, piece_bytes=16, objects=8, threads=5)


class Bytes:
    """An object in memory. `before` runs in each fetch, with its start."""

    def __init__(
        self, key: str, data: bytes, ranges: bool = True, before: Callable[[int], object] = lambda start: None
    ) -> None:
        self.key = key
        self.data = data
        self.ranges = ranges
        self.size = len(data) if ranges else None
        self.before = before
        self._pieces: dict[int, int] = {}  # by their starts: a slow request may be made twice

    @property
    def fetched(self) -> int:
        return sum(tuple(self._pieces.values()))

    def fetch(self, start: int, count: int) -> bytes:
        self.before(start)
        piece = self.data[start : start + count]
        self._pieces[start] = len(piece)
        return piece

    def length(self) -> int:
        return len(self.data)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    pace_of.cache_clear()  # else short tests would repeat requests that are slower than in the test before
    before = set(threads())  # of other files' tests, still waiting for a store that is gone
    yield
    wait_for(lambda: not set(threads()) - before)  # A thread may start the next one before it ends.


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 70), st.booleans()), max_size=25),
    st.integers(1, 100),
    st.sampled_from([SMALL, Limits(1, 1, 1, 1), Limits(7, 30, 3, 9), Limits()]),
)
def test_any_objects_are_read_whole_and_in_order(shapes: list[tuple[int, bool]], step: int, limits: Limits) -> None:
    sources = [Bytes(str(n), random.Random(n).randbytes(size), ranges) for n, (size, ranges) in enumerate(shapes)]
    found = []
    for stream in read_ahead(iter(sources), limits, "a test"):
        pieces = []
        while piece := stream.read(step):
            pieces.append(piece)
        stream.close()
        found.append((stream.key, b"".join(pieces)))
    assert found == [(source.key, source.data) for source in sources]


def test_requests_are_made_at_the_same_time() -> None:
    together = threading.Barrier(5, timeout=PATIENCE)
    sources = [Bytes(str(n), b"x", before=lambda start: together.wait()) for n in range(10)]
    assert [stream.read() for stream in read_ahead(iter(sources), SMALL, "a test")] == [b"x"] * 10


def test_prefetched_bytes_are_bounded() -> None:
    lock, most = threading.Lock(), [0]
    read = [0]
    sources = [Bytes(str(n), bytes(50)) for n in range(40)]

    def watch(start: int) -> None:
        with lock:
            most[0] = max(most[0], sum(source.fetched for source in sources) - read[0])

    for source in sources:
        source.before = watch
    for stream in read_ahead(iter(sources), SMALL, "a test"):
        while piece := stream.read(8):
            with lock:
                read[0] += len(piece)
        stream.close()
    assert read[0] == 2000
    assert 16 < most[0] <= SMALL.held_bytes + 3 * SMALL.piece_bytes


def test_objects_known_in_advance_are_bounded() -> None:
    asked = 0

    def endless() -> Iterator[Bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield Bytes(str(asked), b"")

    with closing(read_ahead(endless(), SMALL, "a test")) as streams:
        assert next(streams).read() == b""
        for _ in range(20):
            next(streams).close()
    assert asked <= 21 + SMALL.objects + 1


def test_nothing_is_fetched_before_the_first_read() -> None:
    sources = [Bytes(str(n), b"abc") for n in range(3)]
    with closing(read_ahead(iter(sources), SMALL, "a test")) as streams:
        stream = next(streams)
        assert stream.seek(2) == 2
        time.sleep(0.05)
        assert [source.fetched for source in sources] == [0] * 3
        assert (stream.read(), stream.tell()) == (b"c", 3)
    assert sources[0].fetched == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_object_is_sought_like_a_file(ranges: bool, tmp_path: Path) -> None:
    data = os.urandom(200)
    (tmp_path / "f").write_bytes(data)
    random_numbers = random.Random(5)
    with (
        (tmp_path / "f").open("rb") as file,
        closing(read_ahead(iter([Bytes("k", data, ranges)]), SMALL, "a test")) as streams,
    ):
        stream = next(streams)
        for _ in range(300):
            whence = random_numbers.randrange(3)
            low = {0: 0, 1: -file.tell(), 2: -200}[whence]
            offset = random_numbers.randint(low, 230)
            assert stream.seek(offset, whence) == file.seek(offset, whence)
            count = random_numbers.randrange(60)
            piece = b""
            while len(piece) < count and (more := stream.read(count - len(piece))):
                piece += more
            assert piece == file.read(count)
        with pytest.raises(ValueError, match="negative"):
            stream.seek(-1)


def test_error_is_raised_in_place_of_its_piece() -> None:
    def fail(start: int) -> None:
        if start == 32:
            raise OSError("lost")

    sources = [Bytes("a", bytes(40)), Bytes("b", bytes(60), before=fail), Bytes("c", b"c")]
    streams = read_ahead(iter(sources), SMALL, "a test")
    assert len(next(streams).read()) == 40
    second = next(streams)
    assert len(second.read(16)) + len(second.read(16)) == 32
    for _ in range(2):  # An error is not an end: the next read raises it again.
        with pytest.raises(OSError, match="lost"):
            second.read(16)
    second.close()
    assert next(streams).read() == b"c"


def test_listing_error_is_raised_after_the_listed_objects() -> None:
    def listing() -> Iterator[Bytes]:
        yield Bytes("a", b"a")
        yield Bytes("b", b"b")
        raise ChannelError("the listing broke")

    found = []
    with pytest.raises(ChannelError, match="the listing broke"):
        for stream in read_ahead(listing(), SMALL, "a test"):
            found.append(stream.read())
            stream.close()
    assert found == [b"a", b"b"]


def test_closing_early_ends_the_threads_and_the_listing() -> None:
    ended = []
    sources = [Bytes(str(n), bytes(100)) for n in range(30)]

    def listing() -> Iterator[Bytes]:
        try:
            yield from sources
        finally:
            ended.append(True)

    streams = read_ahead(listing(), SMALL, "a test")
    stream = next(streams)
    assert stream.read(1) == b"\0"
    streams.close()
    wait_for(lambda: not threads())
    assert ended == [True]
    # What is cut off is an error, never a short object.
    with pytest.raises(ChannelError, match="object '0': its stream was closed"):
        stream.readall()
    stream.close()
    assert stream.read() == b""


def test_dropped_streams_release_their_bytes() -> None:
    sources = [Bytes(str(n), bytes(100)) for n in range(30)]
    keys = []
    for stream in read_ahead(iter(sources), SMALL, "a test"):
        keys.append(stream.key)
        stream.read(1)
    del stream
    gc.collect()
    assert keys == [source.key for source in sources]


def test_threads_end_after_the_last_stream_was_dropped_unread() -> None:
    [stream] = read_ahead(iter([Bytes("a", bytes(1000))]), SMALL, "a test")
    stream.read(1)
    del stream  # the fixture sees the threads end


def test_stream_ends_when_the_next_is_requested() -> None:
    streams = read_ahead(iter([Bytes(str(n), bytes(100)) for n in range(2)]), SMALL, "a test")
    first = next(streams)
    assert len(first.read(1)) == 1
    second = next(streams)
    with pytest.raises(ChannelError, match="object '0': its stream was closed before its end"):
        first.readall()
    assert len(second.readall()) == 100


def test_last_stream_is_read_after_the_pipeline_ended() -> None:
    [stream] = read_ahead(iter([Bytes("a", bytes(1000))]), SMALL, "a test")
    assert len(stream.readall()) == 1000


def test_forked_child_cannot_continue_its_parents_stream() -> None:
    with closing(read_ahead(iter([Bytes(str(n), bytes(100)) for n in range(9)]), SMALL, "a test")) as streams:
        stream = next(streams)
        stream.read(1)
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                stream.readall()
            except ChannelError as error:
                os.write(into, str(error).encode())
            stream.close()
            streams.close()
            os._exit(0)
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            assert b"before the process was forked" in pipe.read()
        os.waitpid(child, 0)
        assert len(stream.readall()) == 99


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the kernel has no huge pages")
def test_large_whole_object_is_in_memory_with_huge_pages() -> None:
    data = os.urandom(1 << 20) * 16
    [stream] = read_ahead(iter([Bytes("a", data)]), Limits(), "a test")
    whole = stream.readall()
    assert whole == data
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)[1:]
    [flags] = [
        re.findall("VmFlags:(.*)", mapping)[0].split()
        for mapping in mappings
        if int(mapping.split("-")[0], 16) <= id(whole) + len(whole) // 2 < int(mapping.split()[0].split("-")[1], 16)
    ]
    assert "hg" in flags
