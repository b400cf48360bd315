"""The tables and the chart of docs/benchmarks.md show the results of the last `make bench`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "tests/benchmarks"


def test_page_shows_the_last_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from table import write_table

    results = json.loads((BENCHMARKS / "results.json").read_text())
    readme = Path(shutil.copy(ROOT / "docs/benchmarks.md", tmp_path))
    write_table(readme, results["machine"], results["rows"])
    assert readme.read_text() == (ROOT / "docs/benchmarks.md").read_text(), "make bench"


def test_chart_shows_the_last_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from chart import BARS, LABEL_CHARACTERS, draw

    rows = json.loads((BENCHMARKS / "results.json").read_text())["rows"]
    assert {(row["work"], row["peer_name"]) for row in rows} >= BARS.keys()
    assert max(map(len, BARS.values())) <= LABEL_CHARACTERS
    draw(rows, tmp_path / "speed.svg")
    assert (tmp_path / "speed.svg").read_text() == (ROOT / "docs/speed.svg").read_text(), "make bench"


def test_figures_have_units_of_their_magnitude(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from table import line

    row = {
        "work": "w",
        "ours": 0.0123,
        "peer_name": "p",
        "peer": 2.5,
        "limit": 4e-9,
        "unit": "s",
        "ratio": 203.25,
        "target": 5,
    }
    assert line(row) == "| w | 12.3 ms | p 2.5 s | 4 ns | 203 | 5 |"
    rate = {**row, "ours": 1234.4, "peer": 9.6, "limit": None, "unit": "MB/s", "target": 0}
    assert line(rate) == "| w | 1,234 MB/s | p 10 MB/s |  | 203 |  |"


def test_readme_without_marks_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from table import write_table

    readme = tmp_path / "README.md"
    readme.write_text("no marks\n")
    with pytest.raises(SystemExit, match="has no <!-- bench"):
        write_table(readme, {}, [])
    assert readme.read_text() == "no marks\n"


def test_page_shows_the_last_figures_of_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from ways import FILE, write_ways

    readme = Path(shutil.copy(ROOT / "docs/benchmarks.md", tmp_path))
    write_ways(readme, json.loads(FILE.read_text()))
    assert readme.read_text() == (ROOT / "docs/benchmarks.md").read_text(), "make measure"
