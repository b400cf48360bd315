"""tar shards that are cut, damaged or of kinds that a stream cannot restore are errors that name the offset."""

from __future__ import annotations

import gzip
import io
import random
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import tar
from sagemaker_channels.sample import Sample
from tar_archives import BLOCK, FILES, Dribble, archive, patched, read


def test_sparse_files_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "hole.bin").open("wb") as stream:
        stream.seek(1 << 20)
        stream.write(b"end")
    for form in ("gnu", "posix"):
        command = ["tar", f"--format={form}", "--sparse", "-C", str(tmp_path), "-c", "hole.bin"]
        data = subprocess.run(command, check=True, capture_output=True).stdout
        with pytest.raises(CorruptError, match=r"'shard.tar', byte \d+: a sparse file"):
            read(data)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_cut_anywhere_is_an_error(form: int) -> None:
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


def test_damaged_header_is_an_error() -> None:
    data = archive(FILES)
    for place in (0, 60, 124, 150, 156, 257, 345, 511):
        damaged = bytearray(data)
        damaged[place] ^= 0x15
        with pytest.raises(CorruptError, match=r"object 'shard.tar', byte 0: .*checksum"):
            read(bytes(damaged))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers())
def test_damage_is_the_same_whether_members_are_whole_in_memory_or_not(form: int, seed: int) -> None:
    """Members that are whole in the window are read by a loop of their own."""
    output, chance = io.BytesIO(), random.Random(seed)
    with tarfile.open(fileobj=output, mode="w", format=form) as archive:
        for number in range(9):
            info = tarfile.TarInfo(chance.choice(["", "long/" * 30]) + f"{number}.bin")
            info.size, info.mtime = chance.choice([0, 1, 512, 700]), chance.choice([1, 1.5, 2.5, 1.25])
            info.type = chance.choice([tarfile.REGTYPE] * 8 + [tarfile.AREGTYPE, tarfile.CONTTYPE])
            archive.addfile(info, io.BytesIO(chance.randbytes(info.size)))
    data = bytearray(output.getvalue())
    blocks = len(data.rstrip(b"\0")) // BLOCK
    for _ in range(chance.randrange(1, 3)):
        place = chance.randrange(blocks) * BLOCK
        data[place + chance.randrange(BLOCK)] ^= chance.choice([1, 255])
        if chance.random() < 0.3:
            data[place : place + BLOCK] = bytes(BLOCK)
    outcomes = []
    for stream in (io.BytesIO(data), Dribble(bytes(data))):
        samples: list[Sample] = []
        reason = ""
        try:
            samples.extend(tar.FORMAT.split(stream, "shard.tar"))
        except CorruptError as error:
            reason = str(error)
        outcomes.append((samples, reason))
    assert outcomes[0] == outcomes[1]


def test_damage_after_the_first_member_names_its_offset() -> None:
    data = bytearray(archive(FILES))
    data[3 * BLOCK] ^= 1  # the second header: after one header and two blocks of content
    with pytest.raises(CorruptError, match=f"byte {3 * BLOCK}:"):
        read(bytes(data))


def test_other_bytes_after_an_archive_are_an_error() -> None:
    with pytest.raises(CorruptError, match=r"10240: 7 bytes follow"):
        read(archive(FILES) + b"garbage")
    with pytest.raises(CorruptError, match=r"10240: not a tar header"):
        read(archive(FILES) + b"g" * 600)


def test_header_overwritten_by_zeros_is_an_error() -> None:
    data = archive([("1.jpg", b"a"), ("2.jpg", b""), ("3.jpg", b"c")])
    with pytest.raises(CorruptError, match=r"byte 1024: a single block of zeros, but an archive ends with two"):
        read(data[:1024] + bytes(BLOCK) + data[1536:])
    with pytest.raises(CorruptError, match=r"byte 0: not a tar, or damaged: it has 300 bytes"):
        read(bytes(300))


def test_shard_of_nothing_but_zeros_is_an_error_but_an_empty_archive_is_not() -> None:
    with pytest.raises(CorruptError, match=r"byte 0: more than 10,240 bytes of zeros and no member"):
        read(bytes(1 << 20))
    assert read(archive([])) == []


def test_file_named_as_a_directory_is_an_error() -> None:
    info = tarfile.TarInfo("d/")
    assert read(patched(archive([]), 0, info.tobuf(tarfile.USTAR_FORMAT)[:BLOCK])) == []  # so v7 has directories
    info.size = 1
    with pytest.raises(CorruptError, match=r"byte 0: member 'd/' has a directory's name, but 1 bytes: it is damaged"):
        read(info.tobuf(tarfile.USTAR_FORMAT) + b"x".ljust(BLOCK, b"\0") + bytes(1024))


def test_same_field_twice_is_an_error() -> None:
    with pytest.raises(CorruptError, match=r"byte 1024: member '1.jpg' repeats field 'jpg' of sample '1'"):
        read(archive([("1.jpg", b"a"), ("1.jpg", b"b")]))


def test_extended_header_without_its_member_is_an_error() -> None:
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
def test_damaged_extended_header_is_an_error(record: bytes) -> None:
    info = tarfile.TarInfo("PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    extended = info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(BLOCK, b"\0")
    with pytest.raises(CorruptError, match=r"byte 0: "):
        read(extended + archive([("1.jpg", b"1")]))


def test_cut_or_damaged_gzip_is_an_error() -> None:
    data = gzip.compress(archive([("1.jpg", random.Random(1).randbytes(5000))]))
    for cut in range(11, len(data), 7):
        with pytest.raises(CorruptError, match=r"byte"):
            read(data[:cut])
    damaged = bytearray(data)
    damaged[-6] ^= 1  # of the CRC
    with pytest.raises(CorruptError, match=r"gzip stream is damaged"):
        read(bytes(damaged))


def test_changed_header_byte_never_loses_samples_silently() -> None:
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
