"""tar shards: what any writer writes is read whole, in any pieces, from any position."""

from __future__ import annotations

import gzip
import io
import random
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset import TarWriter
from webdataset.tariterators import group_by_keys, tar_file_expander

from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import tar
from sagemaker_channels.sample import Sample
from tar_archives import BLOCK, FILES, SAMPLES, Dribble, archive, patched, read, timed_archive, written


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archive_of_tarfile_is_read_in_every_dialect(form: int) -> None:
    assert read(archive(FILES, form)) == SAMPLES


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    "name", ["d/" * 100 + "1.jpg", "x" * 300 + ".jpg", "ü" * 60 + ".jpg", "a" * 96 + ".jpg", "a" * 97 + ".jpg"]
)
def test_long_or_non_ascii_name_is_read(form: int, name: str) -> None:
    assert read(archive([(name, b"1")], form)) == [{"__key__": name[:-4], "jpg": b"1"}]


def test_name_with_a_ustar_prefix_is_read() -> None:
    name = "d" * 100 + "/" + "e" * 90 + ".jpg"
    assert read(archive([(name, b"1")])) == [{"__key__": name[:-4], "jpg": b"1"}]


def test_archive_of_gnu_tar_is_read_in_every_dialect(tmp_path: Path) -> None:
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


def test_listings_of_directories_in_an_incremental_archive_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(b"image")
    command = ["tar", "--listed-incremental", str(tmp_path / "state"), "-C", str(tmp_path), "-c", "a"]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    assert data[156:157] == b"D" and read(data) == [{"__key__": "a/1", "jpg": b"image"}]


@pytest.mark.parametrize("seed", range(5))
def test_archive_read_in_small_pieces_yields_the_same_samples(seed: int) -> None:
    assert list(tar.FORMAT.split(Dribble(archive(FILES, tarfile.PAX_FORMAT), seed))) == SAMPLES


def test_extended_headers_with_the_time_alone_are_skipped_but_not_what_follows() -> None:
    data = timed_archive(6)
    wanted = [{"__key__": f"{number:03d}", "bin": bytes([number]) * 700} for number in range(6)]
    assert read(data) == wanted
    assert [*tar.FORMAT.split(Dribble(data))] == wanted
    member = 3 * BLOCK + 1024
    for end in range(1, 6 * member, 100):
        with pytest.raises(CorruptError):
            read(data[:end])
    time = 4 * member + BLOCK
    assert data[time : time + 9] == b"23 mtime="
    for damaged in (b"23.mtime=", b"24 mtime=", b"23 size=x"):
        with pytest.raises(
            CorruptError, match=f"byte {4 * member}: (this extended header is damaged|the size .* is not a number)"
        ):
            read(data[:time] + damaged + data[time + 9 :])
    path = b"23 path=renamed-it.xyz\n"
    assert read(data[:time] + path + data[time + len(path) :])[4]["__key__"] == "renamed-it"
    nothing = data[: 5 * member + 2 * BLOCK] + bytes(2 * BLOCK)
    with pytest.raises(CorruptError, match="the member it describes is missing"):
        read(nothing)


def test_joined_archives_with_padding_between_are_all_read() -> None:
    one = archive(FILES)
    assert read(one + bytes(BLOCK * 7) + one + one) == SAMPLES * 3
    assert read(bytes(BLOCK * 3) + one) == SAMPLES


def test_sample_does_not_span_joined_archives() -> None:
    first, second = archive([("1.jpg", b"a")]), archive([("1.cls", b"b")])
    assert read(first + second) == [{"__key__": "1", "jpg": b"a"}, {"__key__": "1", "cls": b"b"}]


def test_only_neighbouring_members_are_one_sample() -> None:
    files = [("1.jpg", b"a"), ("2.jpg", b"b"), ("1.cls", b"c")]
    assert [sample["__key__"] for sample in read(archive(files))] == ["1", "2", "1"]


def test_name_without_an_extension_is_field_data() -> None:
    assert read(archive([("dir.d/1", b"a")])) == [{"__key__": "dir.d/1", "data": b"a"}]


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_first_link_is_logged_once(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "shard.tar", mode="w") as output:
        output.addfile(tarfile.TarInfo("1.jpg"))
        for name in ("2.jpg", "3.jpg"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "1.jpg"
            output.addfile(info)
    script = (
        "import io, sys; from sagemaker_channels.formats import tar; data = open(sys.argv[1], 'rb').read()\n"
        "for _ in range(2): print(*tar.FORMAT.split(io.BytesIO(data), 'shard.tar'))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "shard.tar")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "{'__key__': '1', 'jpg': b''}\n" * 2
    assert done.stderr == (
        "object 'shard.tar', byte 512: '2.jpg' is a link, which holds no bytes: this and all other links are skipped; to store "
        "the files instead, write the archive with tar --dereference --hard-dereference\n"
    )


def test_empty_stream_or_archive_has_no_samples() -> None:
    assert read(b"") == []
    assert read(archive([])) == []


def test_binary_size_and_signed_checksum_are_read() -> None:
    data = archive([("1.jpg", b"abc")])
    assert read(patched(data, 124, b"\x80" + (3).to_bytes(11, "big"))) == [{"__key__": "1", "jpg": b"abc"}]
    foreign = archive([("\xfc.jpg", b"abc")], tarfile.GNU_FORMAT)
    signed = int(foreign[148:154], 8) - 256 * sum(byte > 127 for byte in foreign[:100])
    assert read(foreign[:148] + b"%06o\0 " % signed + foreign[156:]) == [{"__key__": "\xfc", "jpg": b"abc"}]


def test_extended_header_of_solaris_is_read() -> None:
    record = b"22 path=a/" + b"n" * 7 + b".jpg\n"
    info = tarfile.TarInfo("short.jpg")
    info.type, info.size = b"X", len(record)
    extended = info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(BLOCK, b"\0")
    assert read(extended + archive([("n.jpg", b"1")])) == [{"__key__": "a/" + "n" * 7, "jpg": b"1"}]


names = st.text(st.characters(exclude_characters="/.\0", exclude_categories=["Cs"]), min_size=1, max_size=80)


groups = st.dictionaries(names, st.binary(max_size=2000), min_size=1, max_size=3)


@given(st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), groups, max_size=5))
def test_written_samples_are_read_back(content: dict[str, dict[str, bytes]]) -> None:
    samples: list[Sample] = [
        {"__key__": key, **fields} for key, fields in content.items() if not set(fields) & {"__key__"}
    ]
    data = written(samples)
    assert read(data) == samples
    with tarfile.open(fileobj=io.BytesIO(data)) as other:
        assert [member.name for member in other] == [
            f"{sample['__key__']}.{field}" for sample in samples for field in sample if field != "__key__"
        ]


def test_webdataset_reads_the_same_samples() -> None:
    data = written(SAMPLES)
    files = tar_file_expander([{"url": "shard.tar", "stream": io.BytesIO(data)}])
    found = [
        {k: v for k, v in sample.items() if k not in ("__url__", "__local_path__")} for sample in group_by_keys(files)
    ]
    assert found == SAMPLES


def test_written_bytes_are_reproducible_and_bad_keys_refused() -> None:
    assert written(SAMPLES) == written(SAMPLES)
    for sample in ({"jpg": b""}, {"__key__": "a/1.x", "jpg": b""}, {"__key__": "", "jpg": b""}):
        with pytest.raises(ValueError, match=r"sample 0.*: its __key__ names its files in the archive"):
            written([sample])


def test_archive_of_webdataset_is_read() -> None:
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


def test_gzip_members_may_end_inside_tar_headers() -> None:
    data = archive(FILES)
    for piece in (1, 100, 512, 700):
        pieces = [data[start : start + piece] for start in range(0, 5000, piece)]
        rest = data[len(pieces) * piece :]
        compressed = b"".join(map(gzip.compress, [*pieces, b"", rest]))
        assert read(compressed) == SAMPLES
        assert read(compressed + bytes(100)) == SAMPLES
        with pytest.raises(CorruptError, match="gzip stream is damaged"):
            read(compressed + b"junk")
