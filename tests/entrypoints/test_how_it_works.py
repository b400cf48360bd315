"""The example of docs/explanation/how-it-works.md prints what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/explanation/how-it-works.md"


def test_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    script, shown = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == shown, done.stderr
    letters = [word for line in shown.splitlines() if "of 4" in line for word in line.split()[4:]]
    assert sorted(letters) == sorted(f"{name}{line}" for name in "abcdef" for line in range(5))
