"""Files that `launch lst` replaces: all of them or none, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from list_command import Launch
from patience import PATIENCE
from sagemaker_channels.samples.lst import read_lst

INTERRUPTED = """
import os, sys
from launcher import cli
place, number, *words = sys.argv[1:]
renames = iter(range(1, 100))
def interrupt(event, values):
    if event == "os.rename" and next(renames) == int(place):
        os.kill(os.getpid(), int(number))
sys.addaudithook(interrupt)
cli.main(["lst", "merge-classes", *words])
"""
NAMES = ("train.lst", "validation.lst", "classes.txt")


def merge_dogs(folder: str) -> list[str]:
    train, validation, classes = (f"{folder}/{name}" for name in NAMES)
    return [train, validation, "--classes", classes, "--class", "dog", "--into", "cat"]


def test_failing_command_leaves_the_old_files(lst: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full after the list was read: a limit on the size of files has the same effect."""
    lst("make", "photos")
    before = {file: file.read_bytes() for file in Path().glob("*.*")}
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); from launcher import cli\n"
        "cli.main(['lst', 'merge-classes', 'photos.lst', '--classes', 'classes.txt', '--class', 'dog', '--into', 'cat'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 3
    assert "photos.lst: cannot be written: File too large; no file is changed" in done.stderr
    assert {file: file.read_bytes() for file in Path().glob("*.*")} == before


def test_change_interrupted_between_two_files_is_complete_or_absent(lst: Launch) -> None:
    """Interrupt the command before a rename: of the folder with the new files (1), and of a file in it (2 to 4)."""
    lst("make", "photos", "--split", "0.5,0.5", "-o", "old")
    shutil.copytree("old", "new")
    lst("merge-classes", *merge_dogs("new"))
    for place, number, code, became in (
        ("1", signal.SIGKILL, -9, "old"),
        ("2", signal.SIGKILL, -9, "new"),
        ("3", signal.SIGINT, 0, "new"),
        ("4", signal.SIGKILL, -9, "new"),
    ):
        shutil.copytree("old", place)
        words = [sys.executable, "-c", INTERRUPTED, place, str(int(number)), *merge_dogs(place)]
        done = subprocess.run(words, capture_output=True, check=False, timeout=PATIENCE)
        assert done.returncode == code, done.stderr
        said = lst("stats", f"{place}/train.lst")
        assert (f"{place}: completed an interrupted change of" in said) == (became == "new" and code != 0)
        assert [Path(place, name).read_text() for name in NAMES] == [Path(became, name).read_text() for name in NAMES]
    assert [*Path("1").glob(".*")]
    lst("merge-classes", *merge_dogs("1"))  # the next change removes what the killed one left
    assert [path for place in "1234" for path in Path(place).glob(".*")] == []


def test_interrupted_command_leaves_the_old_file(lst: Launch) -> None:
    os.mkfifo("more.lst")
    Path("a.lst").write_text("0\t0\ta.jpg\n")
    words = [sys.executable, "-m", "launcher", "lst", "merge", "a.lst", "more.lst", "-o", "a.lst"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process, Path("more.lst").open("w"):
        process.send_signal(signal.SIGINT)  # it has opened the FIFO, and waits for its lines
        assert process.wait(timeout=PATIENCE) == 130
    assert Path("a.lst").read_text() == "0\t0\ta.jpg\n"
    assert sorted(file.name for file in Path().iterdir()) == ["a.lst", "more.lst", "photos"]


def test_list_that_another_process_has_changed_is_not_replaced(lst: Launch) -> None:
    os.mkfifo("classes.txt")
    Path("a.lst").write_text("0\t0\ta.jpg\n1\t1\tb.jpg\n")
    words = ["a.lst", "--classes", "classes.txt", "--class", "1", "--into", "0"]
    command = [sys.executable, "-m", "launcher", "lst", "merge-classes", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with Path("classes.txt").open("w") as stream:  # the list has been read
            Path("a.lst").write_text("0\t0\tchanged.jpg\n")
            Path("classes.txt").unlink()
            stream.write("cat\ndog\n")
        said = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, Path("a.lst").read_text()) == (3, "0\t0\tchanged.jpg\n")
    assert "another process has changed it meanwhile" in said


def test_replaced_list_keeps_its_mode_and_its_link(lst: Launch) -> None:
    lst("make", "photos", "-o", "real/a.lst")
    Path("real/a.lst").chmod(0o640)
    Path("a.lst").symlink_to("real/a.lst")
    lst("merge-classes", "a.lst", "--class", "1", "--into", "0")
    assert Path("a.lst").is_symlink()
    assert Path("real/a.lst").stat().st_mode & 0o777 == 0o640
    assert {line.labels for line in read_lst("real/a.lst").values()} == {(0.0,)}
