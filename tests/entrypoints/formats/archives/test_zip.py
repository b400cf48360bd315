"""zip: what real writers write is read whole and in groups; what is cut, damaged, joined or locked is an error."""

from __future__ import annotations

import io
import random
import shutil
import struct
import subprocess
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import zip_archive
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.sample import Sample

FILES = [
    ("a/1.jpg", b"\xff" * 700),
    ("a/1.cls", b"3"),
    ("a/2.jpg", b""),
    ("b.seg.png", random.Random(0).randbytes(300)),
    ("b.txt", b"x" * 5000),
    ("übung/ключ.txt", b"unicode"),
    ("README", b"no dot"),
]
SAMPLES = [
    {"__key__": "a/1", "jpg": b"\xff" * 700, "cls": b"3"},
    {"__key__": "a/2", "jpg": b""},
    {"__key__": "b", "seg.png": random.Random(0).randbytes(300), "txt": b"x" * 5000},
    {"__key__": "übung/ключ", "txt": b"unicode"},
    {"__key__": "README", "data": b"no dot"},
]


class Pieces(io.BytesIO):
    """A stream that can be sought and gives a few bytes at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 7))

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return super().readinto(buffer[:5])


class Pipe(io.BytesIO):
    """A stream of which zipfile knows no place: it writes CRCs and sizes after the members."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation


def archive(
    files: Iterable[tuple[str, bytes]],
    method: int = zipfile.ZIP_DEFLATED,
    comment: bytes = b"",
    stream: io.BytesIO | None = None,
) -> bytes:
    stream = stream or io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as output:
        for name, data in files:
            output.writestr(name, data)
        output.comment = comment
    return stream.getvalue()


def read(data: bytes, start: int = 0) -> list[Sample]:
    return list(zip_archive.FORMAT.split(io.BytesIO(data), "k.zip", Cursor(start)))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("stream", [io.BytesIO, Pieces])
def test_archive_of_zipfile_is_read(method: int, stream: type[io.BytesIO]) -> None:
    assert list(zip_archive.FORMAT.split(stream(archive(FILES, method, b"a comment")))) == SAMPLES


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_with_data_descriptors_are_read(method: int) -> None:
    assert read(archive(FILES, method, stream=Pipe())) == SAMPLES


def test_zip64_archive_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    data = archive(FILES, zipfile.ZIP_STORED)
    assert b"PK\6\6" in data
    assert read(data) == SAMPLES
    assert read(b"#!/bin/sh\n" + data) == SAMPLES


def test_bytes_before_the_archive_are_skipped() -> None:
    assert read(b"#!/bin/sh\nexit\n" + archive(FILES)) == SAMPLES


def test_zeros_after_the_archive_are_ignored_and_other_bytes_refused() -> None:
    # bsdtar fills up what it writes to a pipe to blocks of 10 KiB.
    for comment in (b"", b"a comment"):
        data = archive(FILES, comment=comment)
        assert read(data + bytes(-len(data) % 10240)) == SAMPLES
        for rest in (bytes(100) + b"x", b"x" + bytes(100)):
            with pytest.raises(CorruptError, match=r"expected a zip's end record here"):
                read(data + rest)


def test_members_in_any_order_are_grouped_into_samples() -> None:
    files = [FILES[4], FILES[0], FILES[3], FILES[2], FILES[1]]
    expected = [SAMPLES[2], SAMPLES[0], SAMPLES[1]]
    assert read(archive(files)) == expected


def test_hidden_files_are_left_out_anywhere() -> None:
    files = [("._a", b"h"), ("a/._1.jpg", b"h"), *FILES, (".DS_Store", b"h"), ("__MACOSX/a/._1.jpg", b"h")]
    assert read(archive(files)) == SAMPLES
    assert read(archive([(".a.jpg", b"h")])) == []


def test_hidden_file_is_left_out_even_if_it_is_encrypted() -> None:
    data = bytearray(archive([("._a", b"h"), *FILES]))
    data[data.index(b"PK\1\2") + 8] |= 1  # the flag of encryption, in the table
    assert read(bytes(data)) == SAMPLES


def test_archive_of_infozip_is_read_unless_encrypted(tmp_path: Path) -> None:
    if shutil.which("zip") is None:
        pytest.skip("needs zip")
    for name, data in FILES:
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_bytes(data)
    subprocess.run(["zip", "-qr", "../x.zip", "."], cwd=tmp_path / "d", check=True)
    found = {sample["__key__"]: sample for sample in read((tmp_path / "x.zip").read_bytes())}
    assert found == {sample["__key__"]: sample for sample in SAMPLES}
    subprocess.run(["zip", "-qr", "-P", "secret", "../y.zip", "b.txt"], cwd=tmp_path / "d", check=True)
    with pytest.raises(
        CorruptError, match=r"object 'k.zip', byte 0: member 'b.txt' cannot be read: .*encrypted.*; write it"
    ):
        read((tmp_path / "y.zip").read_bytes())


def test_written_archive_is_read_by_zipfile_and_is_reproducible() -> None:
    first, second = io.BytesIO(), io.BytesIO()
    samples = [{key if key != "data" else "bin": value for key, value in sample.items()} for sample in SAMPLES]
    assert zip_archive.write(first, samples) == len(samples)
    zip_archive.write(second, samples)
    assert first.getvalue() == second.getvalue()
    assert read(first.getvalue()) == samples
    with zipfile.ZipFile(first) as reader:
        assert reader.testzip() is None
        assert reader.read("a/1.jpg") == FILES[0][1]
    with pytest.raises(ValueError, match=r"sample 0 \(__key__ 'a\.b'\): its __key__ names its files"):
        zip_archive.write(io.BytesIO(), [{"__key__": "a.b", "x": b""}])


@pytest.mark.parametrize("files", [FILES, [*FILES[1:], ("a/1.late", b"late")]])
def test_reading_resumes_after_every_sample(files: list[tuple[str, bytes]]) -> None:
    data = archive([("folder/", b""), *files, ("empty/", b"")])
    cursor = Cursor()
    stream = zip_archive.FORMAT.split(io.BytesIO(data), None, cursor)
    positions = [cursor.position for _ in stream]
    every = read(data)
    assert len(every) == 5
    for number, position in enumerate(positions, 1):
        assert read(data, position) == every[number:]
    for place in (9999, -99):
        with pytest.raises(CorruptError, match=r"reading should resume at -?\d+, but this ends at"):
            read(data, place)


def test_directories_and_macos_files_are_skipped_and_links_refused() -> None:
    stream, link = io.BytesIO(), zipfile.ZipInfo(".2.txt")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(stream, "w") as output:
        output.mkdir("a") if hasattr(output, "mkdir") else output.writestr("a/", b"")
        output.writestr("a/1.txt", b"1")
        output.writestr("__MACOSX/a/._1.txt", b"junk")
        output.writestr(link, b"1.txt")
    assert read(stream.getvalue()) == [{"__key__": "a/1", "txt": b"1"}]
    with zipfile.ZipFile(stream, "a") as output:
        link.filename = "a/2.txt"
        output.writestr(link, b"1.txt")
    with pytest.raises(CorruptError, match=r"'a/2.txt' is a symbolic link"):
        read(stream.getvalue())


def test_unsupported_archives_are_refused_with_a_reason() -> None:
    data = bytearray(archive(FILES[:1], zipfile.ZIP_STORED))
    data[data.index(b"PK\1\2") + 10] = 9
    with pytest.raises(CorruptError, match=r"member 'a/1.jpg' cannot be read: .*; write it stored or deflated"):
        read(bytes(data))
    with pytest.raises(CorruptError, match="zips cannot be joined"):
        read(archive(FILES) + archive(FILES))
    inner = archive(FILES[:2])
    outer = archive([("inner.zip", inner), ("x.txt", b"x")], zipfile.ZIP_STORED)
    with pytest.raises(CorruptError, match="inside another"):
        read(outer[: outer.index(inner) + len(inner)])
    with pytest.raises(CorruptError, match="repeats field"), pytest.warns(UserWarning, match="Duplicate"):
        read(archive([("a.x", b"1"), ("a.x", b"2")]))
    with pytest.raises(CorruptError, match=r"byte 1: expected a zip's end record here"):
        read(b"P")


def test_cut_anywhere_is_an_error() -> None:
    data = archive(FILES, comment=b"comment")
    assert read(b"") == []
    for size in range(1, len(data)):
        with pytest.raises(CorruptError, match=r"object 'k.zip', byte \d+: "):
            read(data[:size])


@pytest.mark.parametrize("size", [8, 12])
def test_content_that_the_table_does_not_state_is_an_error(size: int) -> None:
    """Without CRC and stored size, and whether or not the size of its content is stated."""
    data = archive([("a.jpg", b"content")])
    begin = data.index(b"PK\1\2") + 16
    with pytest.raises(CorruptError, match=r"member 'a.jpg' is damaged: its own header differs"):
        read(data[:begin] + bytes(size) + data[begin + size :])


# One bit makes `n0.jpg` a hidden file and the empty `dir.o` a directory.
FLIPPED = [("n0.jpg", b"\xff\xd8"), ("._n.jpg", b"h"), ("dir.o", b""), ("ü.t", b"u"), ("__MACOSX/x", b"m")]


def by_infozip(*arguments: str) -> bytes:
    """What `zip` writes of FLIPPED and of a file whose name is in an old code."""
    if shutil.which("zip") is None:
        pytest.skip("needs zip")
    with tempfile.TemporaryDirectory() as folder:
        for name, data in [*FLIPPED, ("latin\udce9.x", b"l")]:
            file = Path(folder, "in", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        subprocess.run(["zip", "-qr", *arguments, "../x.zip", "."], cwd=f"{folder}/in", check=True)
        return Path(folder, "x.zip").read_bytes()


def by_own_writer() -> bytes:
    stream = io.BytesIO()
    zip_archive.write(stream, [{"__key__": "n0", "jpg": b"\xff\xd8", "cls": b"3"}, {"__key__": "ü", "t": b""}])
    return stream.getvalue()


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "own": by_own_writer,
    "stored": lambda: archive(FLIPPED, zipfile.ZIP_STORED),
    "deflated": lambda: archive(FLIPPED),
    "in another order": lambda: archive([*FLIPPED[::2], *FLIPPED[1::2]]),
    "stored, to a pipe": lambda: archive(FLIPPED, zipfile.ZIP_STORED, stream=Pipe()),
    "deflated, to a pipe": lambda: archive(FLIPPED, stream=Pipe()),
    "zip": by_infozip,
    "zip -fd": lambda: by_infozip("-fd"),  # sizes come behind the members
    "zip -fz": lambda: by_infozip("-fz"),  # zip64
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_flipped_bit_is_an_error_or_changes_nothing(name: str) -> None:
    data = bytearray(ARCHIVES[name]())
    expected, table = read(bytes(data)), data.index(b"PK\1\2")
    errors = 0
    for place in range(len(data)):
        for bit in range(8) if place >= table else (place % 8, 6):
            data[place] ^= 1 << bit
            try:
                assert read(bytes(data)) == expected, (place, bit)
            except CorruptError:
                errors += 1
            data[place] ^= 1 << bit
    assert errors > len(data)


@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
def test_zeroed_crc_and_sizes_in_the_table_are_an_error(stream: type[io.BytesIO]) -> None:
    data = bytearray(archive(FILES[:2], zipfile.ZIP_STORED, stream=stream()))
    entry = data.index(b"PK\1\2")
    data[entry + 16 : entry + 28] = bytes(12)
    with pytest.raises(
        CorruptError, match=r"object 'k.zip', byte 0: member 'a/1.jpg' is damaged: its own header differs from"
    ):
        read(bytes(data))


def test_sizes_beyond_the_archive_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    data = archive(FILES)
    entry = data.index(b"PK\1\2")
    sizes = data.index(struct.pack("<Q", 700), entry)  # of the content, then of what is packed
    for place, reason in ((sizes, "member 'a/1.jpg' has .* bytes"), (sizes + 8, "bytes, more than the archive")):
        with pytest.raises(CorruptError, match=rf"object 'k.zip', byte \d+: .*{reason}"):
            read(data[: place + 7] + b"\x80" + data[place + 8 :])


def test_zip_bomb_is_refused_in_little_memory() -> None:
    data = bytearray(archive([("a.txt", bytes(100 << 20))]))
    for place in (22, data.rindex(b"PK\1\2") + 24):
        struct.pack_into("<I", data, place, 1000)
    tracemalloc.start()
    with pytest.raises(CorruptError, match=r"member 'a\.txt' is damaged: Bad CRC-32"):
        read(bytes(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
