"""A plot of a job's metrics in a PNG or SVG file: one panel per metric, over the training's step if that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.errors import RefusedError
from launcher.jobs.logs.metrics import Series

ENDINGS = (".png", ".svg")


def check(file: Path) -> None:
    """Raise RefusedError if `file` cannot be drawn: before a job is followed for hours."""
    if file.suffix.lower() not in ENDINGS:
        raise RefusedError(f"--plot {file}: expected a file name that ends in {' or '.join(ENDINGS)}")
    if not file.absolute().parent.is_dir():
        raise RefusedError(f"--plot {file}: there is no folder {file.absolute().parent}; create it first")
    _figure_class()


def plot(series: Mapping[str, Series], title: str, file: Path) -> bool:
    """Draw `series` into `file`; return False if there are none. Raises RefusedError if the file cannot be written."""
    if not series:
        return False
    columns = min(len(series), 1 if len(series) == 1 else 2)
    rows = math.ceil(len(series) / columns)
    figure = _figure_class()(figsize=(5.5 * columns, 2.6 * rows + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    begun = min(points.times[0] for points in series.values())
    for index, (name, points) in enumerate(series.items()):
        _draw(figure.add_subplot(rows, columns, index + 1), name, points, begun)
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise RefusedError(f"--plot {file}: cannot be written: {error.strerror}") from None
    return True


def _draw(axes: Any, name: str, points: Series, begun: int) -> None:
    if all(step is not None for step in points.steps):
        over, label = [float(step or 0) for step in points.steps], "step"
    else:
        seconds = [(time - begun) / 1000 for time in points.times]
        unit, size = next((u, s) for u, s in (("h", 3600), ("min", 60), ("s", 1)) if s == 1 or seconds[-1] > 3 * s)
        over, label = [second / size for second in seconds], f"time ({unit})"
    axes.plot(over, points.values, linewidth=1.2, marker="." if len(over) < 30 else None)
    axes.set_title(name, fontsize=9)
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure  # pyplot would look for a display
    except ImportError as error:
        raise RefusedError(
            f"--plot needs matplotlib ({error}); install it: pip install 'sagemaker-launch[plot]'"
        ) from None
    return Figure
