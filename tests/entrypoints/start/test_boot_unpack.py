"""The code archive is unpacked whole and into its folder, or not at all."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from boot import BootError, unpack


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def file(name: str, content: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.mode = mode
    return member, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def test_unpack_keeps_files_folders_and_modes(tmp_path: Path) -> None:
    members = [special("empty", tarfile.DIRTYPE), file("./sub/é.txt", b"inside"), file("run", b"#!", 0o6755)]
    unpack(archive(tmp_path / "code.tar.gz", *members), tmp_path / "code")
    assert (tmp_path / "code/empty").is_dir()
    assert (tmp_path / "code/sub/é.txt").read_bytes() == b"inside"
    assert (tmp_path / "code/run").stat().st_mode & 0o7777 == 0o755  # never with the set-user-id bit


@pytest.mark.parametrize(
    "member",
    [
        file("../outside"),
        file("sub/../../outside"),
        file("/absolute"),
        special("link", tarfile.SYMTYPE, "/etc"),
        special("link", tarfile.SYMTYPE, "good"),
        special("link", tarfile.LNKTYPE, "../outside"),
        special("pipe", tarfile.FIFOTYPE),
        special("device", tarfile.CHRTYPE),
    ],
    ids=lambda member: f"{member[0].name} {member[0].linkname}",
)
def test_unsafe_member_is_refused_and_nothing_is_written(member: tuple[tarfile.TarInfo, bytes], tmp_path: Path) -> None:
    path = archive(tmp_path / "code.tar.gz", file("good"), member)
    with pytest.raises(BootError, match=r"code\.tar\.gz: ") as raised:
        unpack(path, tmp_path / "code")
    assert member[0].name in str(raised.value)
    assert {each.name for each in tmp_path.iterdir()} == {"code.tar.gz"}


def damaged(whole: bytes) -> dict[str, bytes]:
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    return {
        "empty": b"",
        "text": b"<Error>AccessDenied</Error>",
        "cut": whole[: len(whole) // 2],
        "cut in the checksum": whole[:-4],
        "changed": bytes(flipped),
        "no tar inside": gzip.compress(b"x" * 2000),
    }


@pytest.mark.parametrize("kind", list(damaged(b"x" * 10)))
def test_damaged_archive_is_refused(kind: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "code.tar.gz", *[file(f"{number}.py", bytes(range(256)) * 40) for number in range(30)])
    path.write_bytes(damaged(path.read_bytes())[kind])
    with pytest.raises(BootError, match=r"code\.tar\.gz is damaged: .*; submit the job again"):
        unpack(path, tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_missing_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BootError, match=r"code\.tar\.gz cannot be unpacked .*No such file"):
        unpack(tmp_path / "code.tar.gz", tmp_path / "code")
