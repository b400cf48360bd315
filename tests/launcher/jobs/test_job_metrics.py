"""A job's metrics: read from its lines by SageMaker's rules, bounded in memory, drawn into files."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from launcher.console import Console, shown_path
from launcher.errors import RefusedError
from launcher.jobs.metrics import Metrics, Series, plot
from launcher.plot import check_plot

DEFINITIONS = [
    {"Name": "train:loss", "Regex": r"loss=([-0-9.naif]+)"},
    {"Name": "accuracy", "Regex": r"acc: [0-9.]+"},
    {"Name": "train:step", "Regex": r"step (\d+)"},
]


def metrics(warned: list[str] | None = None) -> Metrics:
    return Metrics(DEFINITIONS, (warned if warned is not None else []).append)


def test_metrics_keep_values_with_their_step() -> None:
    read = metrics()
    read.note(1000, "algo-1", "step 1 loss=0.5")
    read.note(2000, "algo-1", "loss=0.25 step 2")
    read.note(3000, "algo-2", "loss=0.125")
    read.note(3000, "algo-2", "nothing")
    loss = read.series["train:loss"]
    assert loss.points == [(1000, 0.5, 1.0), (2000, 0.25, 2.0), (3000, 0.125, None)]
    assert (loss.last, loss.least, loss.most, loss.count) == (0.125, 0.125, 0.5, 3)
    assert list(read.panels()) == ["train:loss"]
    assert read.last == {"train:step": 2.0, "train:loss": 0.125}


def test_value_that_is_not_a_number_is_warned_about_once() -> None:
    warned: list[str] = []
    read = metrics(warned)
    for value in ("0.5", "0.6"):
        read.note(0, "algo-1", f"acc: {value}")
    assert warned == ["metric accuracy: expected a number, got 'acc: 0.5'; correct its regex"]


def test_invalid_regex_is_warned_about_and_others_work() -> None:
    warned: list[str] = []
    read = Metrics([{"Name": "a", "Regex": "(?<x"}, {"Name": "b", "Regex": r"b=(\d+)"}], warned.append)
    read.note(0, "algo-1", "b=3")
    assert read.last == {"b": 3.0}
    assert "metric a: Python cannot compile its regex" in warned[0]


def test_nan_and_infinity_are_shown() -> None:
    read = metrics()
    for text in ("loss=1.5", "loss=nan", "loss=inf"):
        read.note(0, "algo-1", text)
    loss = read.series["train:loss"]
    assert math.isinf(loss.last)
    assert (loss.least, loss.most) == (1.5, 1.5)


def test_metrics_of_a_huge_line_take_no_time_by_the_square_of_its_length() -> None:
    """AWS's own definitions begin with `.*`; by the square of 10 MB, it would take days."""
    warned: list[str] = []
    read = Metrics([{"Name": "loss", "Regex": r".*loss=([0-9.]+).*"}], warned.append)
    read.note(0, "algo-1", "x" * 10_000_000)
    read.note(0, "algo-1", f"loss=0.5 {'x' * 10_000_000}")
    assert (read.last, warned) == ({"loss": 0.5}, [])


def test_long_series_is_thinned_evenly() -> None:
    series = Series()
    for number in range(1_000_000):
        series.add(number, float(number), None)
    times = [time for time, _, _ in series.points]
    assert 1_000 < len(times) <= 4_000
    gaps = {after - before for before, after in pairwise(times)}
    assert gaps == {series.every}
    assert (series.count, series.last, series.least, series.most) == (1_000_000, 999_999.0, 0.0, 999_999.0)


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_plot_of_several_metrics_is_written(tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    read = metrics()
    for number in range(50):
        read.note(number * 60_000, "algo-1", f"step {number} loss={1 / (number + 1)}")
    read.series["other"] = Series([(0, math.nan, None), (60_000, 2.0, None)], 2)
    file = tmp_path / f"plot{ending}"
    check_plot(file)
    plot({"cats-1": read.panels()}, file, Console())
    assert capsys.readouterr().err == f"plot {shown_path(file)}\n"
    if ending == ".png":
        assert file.read_bytes().startswith(b"\x89PNG")
    else:
        axes = [group.get("id") for group in ET.parse(file).getroot().iter("{http://www.w3.org/2000/svg}g")]
        assert {"axes_1", "axes_2"} <= set(axes)


def test_plot_without_metrics_writes_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot({"cats-1": {}}, tmp_path / "plot.png", Console())
    assert "not drawn; no metrics were found" in capsys.readouterr().err
    assert not (tmp_path / "plot.png").exists()


def test_undrawable_plot_is_refused_before_following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"ends in \.png or \.svg"):
        check_plot(tmp_path / "plot.pdf")
    with pytest.raises(RefusedError, match="there is no folder"):
        check_plot(tmp_path / "missing" / "plot.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RefusedError, match=r"pip install 'sagemaker-launch\[plot\]'"):
        check_plot(tmp_path / "plot.png")


def test_unwritable_plot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plot.png").mkdir()
    with pytest.raises(RefusedError, match="cannot be written"):
        plot({"cats-1": {"a": Series([(0, 1.0, None)], 1)}}, tmp_path / "plot.png", Console())
