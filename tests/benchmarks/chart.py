"""The rows as a chart: how many times better than what it is held against each work of ours is, with its target."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from rounds import Row


def draw(rows: Sequence[Row], path: Path) -> None:
    """Writes an .svg with a bar for each row, on a scale where each step to the right is ten times as much."""
    import matplotlib as mpl

    mpl.use("svg")
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it asks for fonts that nothing here uses
    mpl.rcParams["svg.fonttype"] = "none"  # text as text, which takes a tenth of the room
    mpl.rcParams["svg.hashsalt"] = "bench"  # so that the same figures make the same file
    from matplotlib import pyplot

    names = [f"{row['work']}  ({row['peer_name']})" for row in rows]
    places = range(len(rows))
    figure, axes = pyplot.subplots(figsize=(11, 1 + 0.26 * len(rows)), layout="constrained")
    colours = ["#2f7d5b" if row["ratio"] >= row["target"] else "#c8803c" for row in rows]
    axes.barh(places, [row["ratio"] for row in rows], color=colours, height=0.7)
    aims = [(row["target"], place) for row, place in zip(rows, places, strict=True) if row["target"]]
    axes.plot([aim for aim, _ in aims], [place for _, place in aims], "|", color="black", markersize=11, label="target")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("times as good as what is in brackets, by medians of the same rounds")
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    import json

    here = Path(__file__).parent
    draw(json.loads((here / "results.json").read_text())["rows"], here / "results.svg")
