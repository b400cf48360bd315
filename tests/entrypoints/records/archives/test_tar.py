"""tar shards: what any writer writes is read whole, in any pieces, and what is cut or damaged is an error with its offset."""

from __future__ import annotations

import gzip
import io
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset import TarWriter
from webdataset.tariterators import group_by_keys, tar_file_expander

from entrypoints.errors import CorruptError
from entrypoints.records.archives import tar, tar_write
from entrypoints.records.cursor import Cursor
from entrypoints.sample import Sample

BLOCK = 512
FILES = [
    ("a/1.jpg", b"\xff" * 700),
    ("a/1.cls", b"3"),
    ("a/2.jpg", b""),
    ("b.seg.png", bytes(512)),
    ("b.txt", b"x" * 513),
]
SAMPLES = [
    {"__key__": "a/1", "jpg": b"\xff" * 700, "cls": b"3"},
    {"__key__": "a/2", "jpg": b""},
    {"__key__": "b", "seg.png": bytes(512), "txt": b"x" * 513},
]


class Dribble(io.BytesIO):
    """A stream that gives a few bytes at a time, as a pipe may."""

    def __init__(self, data: bytes, seed: int = 0) -> None:
        super().__init__(data)
        self.random = random.Random(seed)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return super().readinto(buffer[: self.random.choice((1, 7, 511, 512, 513, 5000))])


def archive(files: Iterable[tuple[str, bytes]], form: int = tarfile.USTAR_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as output:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            output.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def written(samples: Iterable[Sample]) -> bytes:
    stream = io.BytesIO()
    tar_write.write(stream, samples)
    return stream.getvalue()


def read(data: bytes) -> list[Sample]:
    return list(tar.FORMAT.split(io.BytesIO(data), "shard.tar"))


def patched(data: bytes, offset: int, field: bytes) -> bytes:
    """An archive with some header bytes replaced and the first header's checksum made right again."""
    data = data[:offset] + field + data[offset + len(field) :]
    blank = data[:148] + b" " * 8 + data[156:BLOCK]
    return data[:148] + b"%06o\0 " % sum(blank) + data[156:]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tarfile_is_read(form: int) -> None:
    assert read(archive(FILES, form)) == SAMPLES


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    "name", ["d/" * 100 + "1.jpg", "x" * 300 + ".jpg", "ü" * 60 + ".jpg", "a" * 96 + ".jpg", "a" * 97 + ".jpg"]
)
def test_long_and_foreign_names(form: int, name: str) -> None:
    assert read(archive([(name, b"1")], form)) == [{"__key__": name[:-4], "jpg": b"1"}]


def test_ustar_prefix() -> None:
    name = "d" * 100 + "/" + "e" * 90 + ".jpg"
    assert read(archive([(name, b"1")])) == [{"__key__": name[:-4], "jpg": b"1"}]


def test_what_gnu_tar_writes_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name, data in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "c.jpg").symlink_to("b.txt")
    (folder / "d.jpg").hardlink_to(folder / "b.txt")
    for form in ("v7", "oldgnu", "gnu", "ustar", "posix"):
        command = [
            "tar",
            f"--format={form}",
            "--sort=name",
            "-C",
            str(folder),
            "-c",
            "a",
            "b.seg.png",
            "b.txt",
            "c.jpg",
            "d.jpg",
        ]
        data = subprocess.run(command, check=True, capture_output=True).stdout
        # The directory and the links are no files.
        assert sorted(read(data), key=lambda sample: sample["__key__"]) == SAMPLES, form


def test_sparse_files_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "hole.bin").open("wb") as stream:
        stream.seek(1 << 20)
        stream.write(b"end")
    for form in ("gnu", "posix"):
        command = ["tar", f"--format={form}", "--sparse", "-C", str(tmp_path), "-c", "hole.bin"]
        data = subprocess.run(command, check=True, capture_output=True).stdout
        with pytest.raises(CorruptError, match=r"'shard.tar', byte \d+: a sparse file"):
            read(data)


@pytest.mark.parametrize("seed", range(5))
def test_in_any_pieces(seed: int) -> None:
    assert list(tar.FORMAT.split(Dribble(archive(FILES, tarfile.PAX_FORMAT), seed))) == SAMPLES


def test_joined_archives_with_padding_between() -> None:
    one = archive(FILES)
    assert read(one + bytes(BLOCK * 7) + one + one) == SAMPLES * 3
    assert read(bytes(BLOCK * 3) + one) == SAMPLES


def test_a_group_ends_with_its_archive() -> None:
    first, second = archive([("1.jpg", b"a")]), archive([("1.cls", b"b")])
    assert read(first + second) == [{"__key__": "1", "jpg": b"a"}, {"__key__": "1", "cls": b"b"}]


def test_only_neighbours_are_a_group() -> None:
    files = [("1.jpg", b"a"), ("2.jpg", b"b"), ("1.cls", b"c")]
    assert [sample["__key__"] for sample in read(archive(files))] == ["1", "2", "1"]


def test_names_without_an_extension() -> None:
    assert read(archive([("dir.d/1", b"a")])) == [{"__key__": "dir.d/1", "data": b"a"}]


def test_hidden_files_are_left_out_wherever_they_stand() -> None:
    files = [
        ("._a", b"h"),
        ("a/._1.jpg", b"h"),
        FILES[0],
        ("a/._1.cls", b"h"),
        *FILES[1:],
        (".DS_Store", b"h"),
        ("b/.x.y", b""),
    ]
    data = archive(files)
    assert read(data) == SAMPLES
    cursor = Cursor()
    positions = [cursor.position for _ in tar.FORMAT.split(io.BytesIO(data), None, cursor)]
    for number, position in enumerate(positions, 1):
        assert list(tar.FORMAT.split(io.BytesIO(data), None, Cursor(position))) == SAMPLES[number:]
    assert read(archive([(".a.jpg", b"h")])) == []


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_of_links_is_told_once(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "shard.tar", mode="w") as output:
        output.addfile(tarfile.TarInfo("1.jpg"))
        for name in ("2.jpg", "3.jpg"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "1.jpg"
            output.addfile(info)
    script = (
        "import io, sys; from entrypoints.records.archives import tar; data = open(sys.argv[1], 'rb').read()\n"
        "for _ in range(2): print(*tar.FORMAT.split(io.BytesIO(data), 'shard.tar'))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "shard.tar")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "{'__key__': '1', 'jpg': b''}\n" * 2
    assert done.stderr == (
        "object 'shard.tar', byte 512: '2.jpg' is a link, which holds no bytes: this and all other links are skipped; to store "
        "the files instead, write the archive with tar --dereference --hard-dereference\n"
    )


def test_no_bytes_are_no_samples() -> None:
    assert read(b"") == []
    assert read(archive([])) == []


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_cut_anywhere_is_an_error(form: int) -> None:
    data = archive([("a/1.jpg", b"\xff" * 700), ("n" * 120 + ".jpg" if form else "a/2.jpg", b"1")], form)
    complete = read(data)
    whole = len(data.rstrip(b"\0")) // BLOCK * BLOCK + BLOCK  # where the end marker begins
    for cut in range(1, whole + BLOCK):
        found: list[Sample] = []
        with pytest.raises(CorruptError, match=r"byte \d+"):
            found.extend(tar.FORMAT.split(io.BytesIO(data[:cut])))
    # A whole block of the end marker shows that nothing is missing.
    for cut in (whole + BLOCK, whole + BLOCK + 1, len(data)):
        assert read(data[:cut]) == complete


def test_a_damaged_header_is_an_error() -> None:
    data = archive(FILES)
    for place in (0, 60, 124, 150, 156, 257, 345, 511):
        damaged = bytearray(data)
        damaged[place] ^= 0x15
        with pytest.raises(CorruptError, match=r"object 'shard.tar', byte 0: .*checksum"):
            read(bytes(damaged))


def test_damage_behind_the_first_member_names_its_offset() -> None:
    data = bytearray(archive(FILES))
    data[3 * BLOCK] ^= 1  # the second header: after one header and two blocks of content
    with pytest.raises(CorruptError, match=f"byte {3 * BLOCK}:"):
        read(bytes(data))


def test_what_follows_an_archive_is_no_tar() -> None:
    with pytest.raises(CorruptError, match=r"10240: 7 bytes follow"):
        read(archive(FILES) + b"garbage")
    with pytest.raises(CorruptError, match=r"10240: not a tar header"):
        read(archive(FILES) + b"g" * 600)


def test_a_header_that_was_overwritten_by_zeros_is_an_error() -> None:
    data = archive([("1.jpg", b"a"), ("2.jpg", b""), ("3.jpg", b"c")])
    with pytest.raises(CorruptError, match=r"byte 1024: a single block of zeros, but an archive ends with two"):
        read(data[:1024] + bytes(BLOCK) + data[1536:])
    with pytest.raises(CorruptError, match=r"byte 0: 300 bytes are not a tar"):
        read(bytes(300))


def test_a_file_that_is_named_as_a_directory_is_an_error() -> None:
    info = tarfile.TarInfo("d/")
    assert read(patched(archive([]), 0, info.tobuf(tarfile.USTAR_FORMAT)[:BLOCK])) == []  # so v7 has directories
    info.size = 1
    with pytest.raises(CorruptError, match=r"byte 0: member 'd/' has a directory's name, but 1 bytes: it is damaged"):
        read(info.tobuf(tarfile.USTAR_FORMAT) + b"x".ljust(BLOCK, b"\0") + bytes(1024))


def test_the_same_field_twice_is_an_error() -> None:
    with pytest.raises(CorruptError, match=r"byte 1024: member '1.jpg' repeats field 'jpg' of sample '1'"):
        read(archive([("1.jpg", b"a"), ("1.jpg", b"b")]))


def test_a_size_in_binary_and_signed_checksums() -> None:
    data = archive([("1.jpg", b"abc")])
    assert read(patched(data, 124, b"\x80" + (3).to_bytes(11, "big"))) == [{"__key__": "1", "jpg": b"abc"}]
    foreign = archive([("\xfc.jpg", b"abc")], tarfile.GNU_FORMAT)
    signed = int(foreign[148:154], 8) - 256 * sum(byte > 127 for byte in foreign[:100])
    assert read(foreign[:148] + b"%06o\0 " % signed + foreign[156:]) == [{"__key__": "\xfc", "jpg": b"abc"}]


def test_extended_headers_as_solaris_writes_them() -> None:
    record = b"22 path=a/" + b"n" * 7 + b".jpg\n"
    info = tarfile.TarInfo("short.jpg")
    info.type, info.size = b"X", len(record)
    extended = info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(BLOCK, b"\0")
    assert read(extended + archive([("n.jpg", b"1")])) == [{"__key__": "a/" + "n" * 7, "jpg": b"1"}]


def test_an_extended_header_wants_its_member() -> None:
    data = archive([("n" * 120 + ".jpg", b"1")], tarfile.PAX_FORMAT)
    with pytest.raises(CorruptError, match=r"byte 1024: the archive ends after an extended header"):
        read(data[:1024] + bytes(1024))
    # Also where it says nothing that matters here, as webdataset's.
    info = tarfile.TarInfo("1.jpg")
    info.mtime = 1.5
    data = info.tobuf(tarfile.PAX_FORMAT)
    with pytest.raises(CorruptError, match=r"byte 1024: the archive ends after an extended header"):
        read(data[:1024] + bytes(1024))


@pytest.mark.parametrize(
    "record",
    [
        b"12 path=x\n",
        b"x path=x\n",
        b"9 path=xy",
        b"13 size=-123\n",
        b" path=x\n",
        b"5011 size=" + b"9" * 5000 + b"\n",
    ],
)
def test_a_damaged_extended_header(record: bytes) -> None:
    info = tarfile.TarInfo("PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    extended = info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(BLOCK, b"\0")
    with pytest.raises(CorruptError, match=r"byte 0: "):
        read(extended + archive([("1.jpg", b"1")]))


def test_gzip_around_it() -> None:
    data = archive(FILES)
    assert read(gzip.compress(data)) == SAMPLES
    assert read(gzip.compress(data) + gzip.compress(data)) == SAMPLES * 2
    assert list(tar.FORMAT.split(Dribble(gzip.compress(data)))) == SAMPLES


def test_gzip_cut_or_damaged() -> None:
    data = gzip.compress(archive([("1.jpg", random.Random(1).randbytes(5000))]))
    for cut in range(11, len(data), 7):
        with pytest.raises(CorruptError, match=r"byte"):
            read(data[:cut])
    damaged = bytearray(data)
    damaged[-6] ^= 1  # of the CRC
    with pytest.raises(CorruptError, match=r"gzip stream is damaged"):
        read(bytes(damaged))


names = st.text(st.characters(exclude_characters="/.\0", exclude_categories=["Cs"]), min_size=1, max_size=80)
groups = st.dictionaries(names, st.binary(max_size=2000), min_size=1, max_size=3)


@given(st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), groups, max_size=5))
def test_what_is_written_comes_back(content: dict[str, dict[str, bytes]]) -> None:
    samples: list[Sample] = [
        {"__key__": key, **fields} for key, fields in content.items() if not set(fields) & {"__key__"}
    ]
    data = written(samples)
    assert read(data) == samples
    with tarfile.open(fileobj=io.BytesIO(data)) as other:
        assert [member.name for member in other] == [
            f"{sample['__key__']}.{field}" for sample in samples for field in sample if field != "__key__"
        ]


def test_webdataset_reads_the_same() -> None:
    data = written(SAMPLES)
    files = tar_file_expander([{"url": "shard.tar", "stream": io.BytesIO(data)}])
    found = [
        {k: v for k, v in sample.items() if k not in ("__url__", "__local_path__")} for sample in group_by_keys(files)
    ]
    assert found == SAMPLES


def test_the_same_samples_give_the_same_bytes_and_a_bad_key_is_refused() -> None:
    assert written(SAMPLES) == written(SAMPLES)
    for sample in ({"jpg": b""}, {"__key__": "a/1.x", "jpg": b""}, {"__key__": "", "jpg": b""}):
        with pytest.raises(ValueError, match=r"sample 0.*: its __key__ names its files in the archive"):
            written([sample])


def test_what_webdataset_writes() -> None:
    random.seed(3)
    samples: list[dict[str, Any]] = [
        {"__key__": f"a/{n:04d}", "bin": random.randbytes(random.choice((0, 1, 511, 512, 5000))), "cls": b"%d" % n}
        for n in range(40)
    ]
    for compress in (False, True):
        stream = io.BytesIO()
        with TarWriter(stream, encoder=False, compress=compress) as writer:
            for sample in samples:
                writer.write(sample)
        assert read(stream.getvalue()) == samples
        half = len(stream.getvalue()) // 2
        with pytest.raises(CorruptError, match=r"byte \d+"):
            read(stream.getvalue()[:half])


def test_gzip_of_several_members_with_headers_across_them() -> None:
    data = archive(FILES)
    for piece in (1, 100, 512, 700):
        pieces = [data[start : start + piece] for start in range(0, 5000, piece)]
        rest = data[len(pieces) * piece :]
        compressed = b"".join(map(gzip.compress, [*pieces, b"", rest]))
        assert read(compressed) == SAMPLES
        assert read(compressed + bytes(100)) == SAMPLES
        with pytest.raises(CorruptError, match="gzip stream is damaged"):
            read(compressed + b"junk")


def test_no_change_of_a_header_gives_fewer_samples_or_another_error() -> None:
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        data = archive([("n" * 100 + ".jpg" if form else "a.jpg", b"1"), ("b.jpg", b"2")], form)
        count = len(read(data))
        for place in range(len(data.rstrip(b"\0"))):
            for change in (1, 0x15, 0x80):
                damaged = bytearray(data)
                damaged[place] ^= change
                try:
                    assert len(read(bytes(damaged))) == count
                except CorruptError:
                    continue


def test_going_on_after_what_was_said_for_the_rest_of_the_archive() -> None:
    files = archive([("1.jpg", b"a"), ("2.jpg", b"bc"), ("3.jpg", b"def")])
    info = tarfile.TarInfo("pax_global_header")
    info.type, info.size = tarfile.XGLTYPE, 14
    data = info.tobuf(tarfile.USTAR_FORMAT) + b"14 comment=xy\n".ljust(BLOCK, b"\0") + files
    cursor = Cursor()
    complete = [(sample, cursor.position) for sample in tar.FORMAT.split(io.BytesIO(data), None, cursor)]
    assert len(complete) == 3
    for number, (_, position) in enumerate(complete):
        assert position > 0
        assert list(tar.FORMAT.split(io.BytesIO(data), None, Cursor(position))) == [
            s for s, _ in complete[number + 1 :]
        ]
    # Sizes said for all that follow: only who has read them can go on.
    sized = info.tobuf(tarfile.USTAR_FORMAT) + b"9 size=3\n".ljust(BLOCK, b"\0")
    info.size = 9
    sized = info.tobuf(tarfile.USTAR_FORMAT) + sized[BLOCK:]
    empty = archive([("1.jpg", b""), ("2.jpg", b"")])
    data = (
        sized
        + empty[:BLOCK]
        + b"abc".ljust(BLOCK, b"\0")
        + empty[BLOCK : 2 * BLOCK]
        + b"def".ljust(BLOCK, b"\0")
        + bytes(1024)
    )
    cursor = Cursor()
    samples = tar.FORMAT.split(io.BytesIO(data), None, cursor)
    assert next(samples) == {"__key__": "1", "jpg": b"abc"}
    assert cursor.position < 0
    assert list(tar.FORMAT.split(io.BytesIO(data), None, Cursor(cursor.position))) == [{"__key__": "2", "jpg": b"def"}]
    assert list(samples) == [{"__key__": "2", "jpg": b"def"}]


def test_links_and_directories_between_samples_do_not_move_the_place_to_go_on() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as output:
        for name, kind in (
            ("1.jpg", b"0"),
            ("l" * 120, b"2"),
            ("d", b"5"),
            ("n" * 120 + ".jpg", b"0"),
            ("h", b"1"),
            ("3.jpg", b"0"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "1.jpg" if kind in b"12" else ""
            output.addfile(info)
    cursor = Cursor()
    found = [
        (sample["__key__"], cursor.position) for sample in tar.FORMAT.split(io.BytesIO(stream.getvalue()), None, cursor)
    ]
    assert [name for name, _ in found] == ["1", "n" * 120, "3"]
    for number, (_, position) in enumerate(found):
        rest = tar.FORMAT.split(io.BytesIO(stream.getvalue()), None, Cursor(position))
        assert [sample["__key__"] for sample in rest] == [name for name, _ in found[number + 1 :]]
