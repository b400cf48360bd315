"""Files that `launch lst` replaces: all of them or none, whatever happens meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from list_command import Launch
from patience import PATIENCE
from sagemaker_channels.samples.lst import read_lst


def test_failing_command_leaves_the_old_files(lst: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full after the list was read: a limit on the size of files has the same effect."""
    lst("make", "photos")
    before = {file: file.read_bytes() for file in Path().glob("*.*")}
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); from launcher import cli\n"
        "cli.main(['lst', 'edit', 'photos.lst', '--set', 'dog=cat'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 3
    assert "photos.lst: cannot be written: File too large; no file is changed" in done.stderr
    assert {file: file.read_bytes() for file in Path().glob("*.*")} == before


def test_interrupted_command_leaves_the_old_file(lst: Launch) -> None:
    os.mkfifo("more.lst")
    Path("a.lst").write_text("0\t0\ta.jpg\n")
    words = [sys.executable, "-m", "launcher", "lst", "edit", "a.lst", "more.lst", "-o", "a.lst"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process, Path("more.lst").open("w"):
        process.send_signal(signal.SIGINT)  # it has opened the FIFO, and waits for its lines
        assert process.wait(timeout=PATIENCE) == 130
    assert Path("a.lst").read_text() == "0\t0\ta.jpg\n"
    assert sorted(file.name for file in Path().iterdir()) == ["a.lst", "more.lst", "photos"]


def test_replaced_list_keeps_its_mode_and_its_link(lst: Launch) -> None:
    lst("make", "photos", "-o", "real/a.lst")
    Path("real/a.lst").chmod(0o640)
    Path("a.lst").symlink_to("real/a.lst")
    lst("edit", "a.lst", "--set", "1=0")
    assert Path("a.lst").is_symlink()
    assert Path("real/a.lst").stat().st_mode & 0o777 == 0o640
    assert {line.labels for line in read_lst("real/a.lst").values()} == {(0.0,)}
