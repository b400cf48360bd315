"""tar shards: reading resumes behind any sample, whatever headers and members are around it."""

from __future__ import annotations

import io
import tarfile

import pytest

from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import tar
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.sample import Sample
from tar_archives import BLOCK, FILES, SAMPLES, archive, read


def resumed_anywhere(data: bytes) -> tuple[list[Sample], list[int]]:
    """Return an archive's samples and the position behind each; reading resumes from each position with the next sample."""
    cursor = Cursor()
    samples, positions = [], []
    for sample in tar.FORMAT.split(io.BytesIO(data), None, cursor):
        samples.append(sample)
        positions.append(cursor.position)
    for number, position in enumerate(positions, 1):
        assert list(tar.FORMAT.split(io.BytesIO(data), None, Cursor(position))) == samples[number:]
    return samples, positions


def test_hidden_files_are_left_out_anywhere() -> None:
    files = [
        ("._a", b"h"),
        ("a/._1.jpg", b"h"),
        FILES[0],
        ("a/._1.cls", b"h"),
        *FILES[1:],
        (".DS_Store", b"h"),
        ("b/.x.y", b""),
    ]
    assert resumed_anywhere(archive(files))[0] == SAMPLES
    assert read(archive([(".a.jpg", b"h")])) == []


def test_resuming_after_global_headers_yields_the_rest() -> None:
    files = archive([("1.jpg", b"a"), ("2.jpg", b"bc"), ("3.jpg", b"def")])
    info = tarfile.TarInfo("pax_global_header")
    info.type, info.size = tarfile.XGLTYPE, 14
    data = info.tobuf(tarfile.USTAR_FORMAT) + b"14 comment=xy\n".ljust(BLOCK, b"\0") + files
    samples, positions = resumed_anywhere(data)
    assert len(samples) == 3
    assert min(positions) > 0


def test_global_header_with_a_size_for_all_members_is_refused() -> None:
    """No writer makes one; it could be obeyed only by reading from the beginning whenever a reader resumes."""
    info = tarfile.TarInfo("pax_global_header")
    info.type, info.size = tarfile.XGLTYPE, 9
    sized = info.tobuf(tarfile.USTAR_FORMAT) + b"9 size=3\n".ljust(BLOCK, b"\0")
    with pytest.raises(CorruptError, match=r"byte 0: an extended header that gives all members one path or one size"):
        read(sized + archive([("1.jpg", b"abc")]))


def test_resuming_after_links_and_directories_yields_the_rest() -> None:
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
    samples, _ = resumed_anywhere(stream.getvalue())
    assert [sample["__key__"] for sample in samples] == ["1", "n" * 120, "3"]
