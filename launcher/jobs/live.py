"""The table of metrics below a job's lines, on a terminal only.

It is cleared before lines are written and drawn again after them, so that the lines themselves go to stdout unchanged.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from launcher.console import rich_console
from launcher.jobs.logs.metrics import Metrics


class LiveTable:
    """A table of metrics, shown from the first value on except during `aside`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._shown: Any = None
        self._possible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the table while something is written."""
        self.close()
        yield
        self._draw()

    def close(self) -> None:
        """Clear the table."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def _draw(self) -> None:
        if not self._possible or not self._metrics.series:
            return
        from rich.live import Live

        # A new table each time, since rich would clear as many lines as the last one had, which now hold other text.
        self._shown = Live(
            _table(self._metrics),
            console=rich_console(sys.stderr),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._shown.start(refresh=True)


def _table(metrics: Metrics) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("metric", no_wrap=True)
    for title in ("last", "least", "most", "values"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, series in metrics.series.items():
        table.add_row(name, *map(_short, (series.last, series.least, series.most)), str(series.count))
    return table


def _short(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else str(value)
