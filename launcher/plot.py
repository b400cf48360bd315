"""Pictures in PNG or SVG files, drawn by matplotlib, which is optional: what every `--plot FILE` shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launcher.errors import InputError, RefusedError

ENDINGS = (".png", ".svg")


def check_plot(file: Path) -> None:
    """Raise RefusedError if `file` cannot be drawn: before the work whose result it shows."""
    if file.suffix.lower() not in ENDINGS:
        raise InputError(f"--plot {file}: expected a file name that ends in {' or '.join(ENDINGS)}")
    if not file.absolute().parent.is_dir():
        raise RefusedError(f"--plot {file}: there is no folder {file.absolute().parent}; create it first")
    new_figure(1, 1)


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure of this size in inches. Raises RefusedError if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure  # pyplot would look for a display
    except ImportError as error:
        remedy = "install it: pip install 'sagemaker-launch[plot]'"
        raise RefusedError(f"--plot needs matplotlib ({error}); {remedy}") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, file: Path) -> None:
    """Write a figure, its axes in the style of all pictures. Raises RefusedError if the file cannot be written."""
    for axes in figure.axes:
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
        axes.title.set_size(9)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set_size(8)
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise RefusedError(f"--plot {file}: cannot be written: {error.strerror}") from None
