"""A job's metrics, read from its lines by the regular expressions of its MetricDefinitions, as SageMaker does.

They are reported at the job's end, and drawn into a PNG or SVG file. CloudWatch has them as well, but minutes later and only one
value per minute.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.console import Console, shown_path
from launcher.jobs.lines import searchable
from launcher.plot import new_figure, save

_MOST_POINTS = 4_000  # per series: more than a plot has pixels, and a bound on memory
_STEP = re.compile(r"^(.*[:/_ ])?(global_?step|step|steps|iteration|iter)$", re.IGNORECASE)


@dataclass
class Series:
    """One metric over time. A long series keeps every n-th value; `last`, `least` and `most` are of all values."""

    # (milliseconds since 1970, value, the training's step at that time or None if it is unknown)
    points: list[tuple[int, float, float | None]] = field(default_factory=list)
    count: int = 0
    last: float = math.nan
    least: float = math.nan  # of the finite values
    most: float = math.nan
    every: int = 1  # one of so many values is kept

    def add(self, time: int, value: float, step: float | None) -> None:
        if self.count % self.every == 0:
            self.points.append((time, value, step))
            if len(self.points) >= _MOST_POINTS:
                self.points = self.points[::2]
                self.every *= 2
        self.count += 1
        self.last = value
        if math.isfinite(value):
            self.least = value if math.isnan(self.least) else min(self.least, value)
            self.most = value if math.isnan(self.most) else max(self.most, value)


class Metrics:
    """All metrics of a job, collected line by line. Warns about definitions that Python cannot use, and leaves them out."""

    def __init__(self, definitions: Sequence[Mapping[str, str]], warn: Callable[[str], None]) -> None:
        self._patterns: list[tuple[str, re.Pattern[str]]] = []
        # The step is read first, so that a line that holds both step and loss is of that step.
        for definition in sorted(definitions, key=lambda each: not _STEP.match(each["Name"])):
            try:
                self._patterns.append((definition["Name"], re.compile(definition["Regex"])))
            except re.error as error:
                why = f"Python cannot compile its regex ({error}); the metric is not shown here"
                warn(f"metric {definition['Name']}: {why}")
        self._warn = warn
        self._bad: set[str] = set()
        self._step: dict[str, float] = {}  # by host
        self.series: dict[str, Series] = {}

    def note(self, time: int, host: str, text: str) -> None:
        text = searchable(text)
        for name, pattern in self._patterns:
            if (found := pattern.search(text)) is None:
                continue
            written = found[1] if pattern.groups else found[0]
            try:
                value = float(written)
            except (TypeError, ValueError):
                if name not in self._bad:  # only once, although each line has another value
                    self._bad.add(name)
                    self._warn(f"metric {name}: expected a number, got {written!r}; correct its regex")
                continue
            if _STEP.match(name):
                self._step[host] = value
            self.series.setdefault(name, Series()).add(time, value, self._step.get(host))

    @property
    def last(self) -> dict[str, float]:
        return {name: series.last for name, series in self.series.items()}

    def panels(self) -> dict[str, Series]:
        """Return the series to draw: all but the step, which is the x axis of the others."""
        others = {name: series for name, series in self.series.items() if not _STEP.match(name)}
        return others or self.series


def plot(jobs: Mapping[str, Mapping[str, Series]], file: Path, console: Console, *, is_timed: bool = True) -> None:
    """Draw the series of one or several jobs into `file`, a panel for each metric, and report that, or that there are none.

    Without `is_timed`, the times are the numbers of lines. Raises RefusedError if the file cannot be written.
    """
    metrics = dict.fromkeys(metric for series in jobs.values() for metric in series)
    if not metrics:
        console.say(f"{file}: not drawn; no metrics were found; metric_definitions finds them in the lines")
        return
    columns = min(len(metrics), 2)
    rows = math.ceil(len(metrics) / columns)
    figure = new_figure(5.5 * columns, 2.6 * rows + 0.4)
    figure.suptitle(", ".join(jobs), fontsize=10, wrap=True)
    begun = {job: min(each.points[0][0] for each in series.values()) for job, series in jobs.items() if series}
    for index, metric in enumerate(metrics, start=1):
        shown = {job: series[metric] for job, series in jobs.items() if metric in series}
        axes = figure.add_subplot(rows, columns, index)
        _draw(axes, shown, begun if is_timed else None)
        axes.set_title(metric)
        if len(jobs) > 1:
            axes.legend(fontsize=7)
    save(figure, file)
    console.say(f"plot {shown_path(file)}")


def _draw(axes: Any, jobs: Mapping[str, Series], begun: Mapping[str, int] | None) -> None:
    """Draw jobs' series over their steps if all have them, else over the time since `begun`, or over lines if that is None."""
    has_steps = all(step is not None for series in jobs.values() for _, _, step in series.points)
    for job, series in jobs.items():
        times, values, over = zip(*series.points, strict=True)
        if not has_steps:
            over = times if begun is None else tuple((time - begun[job]) / 60_000 for time in times)
        axes.plot(over, values, linewidth=1.2, marker="." if len(over) < 30 else None, label=job)
    axes.set_xlabel("step" if has_steps else "line" if begun is None else "time (min)")
    axes.grid(alpha=0.3)
