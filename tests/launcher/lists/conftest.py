"""A folder of photos, and the commands on lists in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from list_command import Launch


@pytest.fixture
def lst(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """The command, in a folder with photos of 20 cats and 10 dogs, and a few other files."""
    for name in (
        *(f"cat/{n}.jpg" for n in range(20)),
        *(f"dog/{n}.PNG" for n in range(10)),
        "dog/notes.txt",
        ".x/a.jpg",
    ):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).touch()
    monkeypatch.chdir(tmp_path)
    return Launch(capsys)
