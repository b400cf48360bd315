"""Files of a remote file system, as objects to fetch."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sagemaker_channels.sources.prefetch import read_ahead
from sagemaker_channels.sources.remote_file import RemoteFile, file_system, is_remote
from sagemaker_channels.sources.stream import Limits


def test_remote_file_is_fetched_in_pieces(tmp_path: Path) -> None:
    data = os.urandom(100)
    (tmp_path / "a").write_bytes(data)
    source = RemoteFile(str(tmp_path / "a"), "a")
    assert (source.fetch(0, 60), source.fetch(60, 60)) == (data[:60], data[60:])
    assert source.fetch(100, 60) == b""
    assert source.length() == 100
    source.close()


def test_failed_close_of_an_ending_mount_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel frees the number all the same; a second close would close a file of another thread."""
    (tmp_path / "a").write_bytes(b"abc")
    source, close, closed = RemoteFile(str(tmp_path / "a"), "a"), os.close, []

    def failing(descriptor: int) -> None:
        close(descriptor)
        closed.append(descriptor)
        raise OSError(errno.EBADF, "Bad file descriptor")  # as rclone answers

    assert source.fetch(0, 1) == b"a"
    monkeypatch.setattr(os, "close", failing)
    source.close()
    source.close()
    monkeypatch.undo()
    assert len(closed) == 1
    assert source.fetch(1, 1) == b"b"
    source.close()


def test_removed_file_raises_file_not_found(tmp_path: Path) -> None:
    [stream] = read_ahead(iter([RemoteFile(str(tmp_path / "a"), "a")]), Limits(), "a test")
    with pytest.raises(FileNotFoundError):
        stream.read()


@pytest.mark.linux
def test_file_system_of_a_path_is_found(tmp_path: Path) -> None:
    assert file_system(Path("/proc/self")) == "proc"
    assert not is_remote(tmp_path)
