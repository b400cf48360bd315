"""A job's metrics, read from its lines by the regular expressions of its MetricDefinitions, as SageMaker does.

CloudWatch has them as well, but minutes later and only one value per minute.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_MOST_POINTS = 4_000  # per series: more than a plot has pixels, and a bound on memory
_STEP = re.compile(r"^(.*[:/_ ])?(global_?step|step|steps|iteration|iter)$", re.IGNORECASE)

Patterns = Sequence[tuple[str, re.Pattern[str]]]


def patterns(definitions: Sequence[Mapping[str, str]], warn: Callable[[str], None]) -> Patterns:
    """Return the definitions' names and expressions; warn about one that Python cannot compile and leave it out."""
    found = []
    for definition in definitions:
        try:
            found.append((definition["Name"], re.compile(definition["Regex"])))
        except re.error as error:
            warn(
                f"metric {definition['Name']}: Python cannot compile its regex ({error}); the metric is not shown here"
            )
    return found


def readings(expressions: Patterns, text: str, on_bad: Callable[[str, object], None]) -> Iterator[tuple[str, float]]:
    """Yield the metrics in one line as (name, value); call `on_bad` with name and text if the text is not a number."""
    for name, pattern in expressions:
        if (found := pattern.search(text)) is None:
            continue
        value = found[1] if pattern.groups else found[0]
        try:
            yield name, float(value)
        except (TypeError, ValueError):
            on_bad(name, value)


@dataclass
class Series:
    """One metric over time. A long series keeps every n-th value; `last`, `least` and `most` are of all values."""

    times: list[int] = field(default_factory=list)  # milliseconds since 1970
    values: list[float] = field(default_factory=list)
    steps: list[float | None] = field(default_factory=list)  # the training's step at that time, None if unknown
    count: int = 0
    last: float = math.nan
    last_time: int = 0
    least: float = math.nan  # of the finite values
    most: float = math.nan
    every: int = 1  # one of so many values is kept

    def add(self, time: int, value: float, step: float | None) -> None:
        """Add a value; `time` is in milliseconds since 1970."""
        if self.count % self.every == 0:
            self.times.append(time)
            self.values.append(value)
            self.steps.append(step)
            if len(self.times) >= _MOST_POINTS:
                self.times, self.values, self.steps = self.times[::2], self.values[::2], self.steps[::2]
                self.every *= 2
        self.count += 1
        self.last, self.last_time = value, time
        if math.isfinite(value):
            self.least = value if math.isnan(self.least) else min(self.least, value)
            self.most = value if math.isnan(self.most) else max(self.most, value)


class Metrics:
    """All metrics of a job, collected line by line."""

    def __init__(self, definitions: Sequence[Mapping[str, str]], warn: Callable[[str], None]) -> None:
        # The step is read first, so that a line that holds both step and loss is of that step.
        self._patterns = sorted(patterns(definitions, warn), key=lambda item: not _STEP.match(item[0]))
        self._warn = warn
        self._bad: set[str] = set()
        self._step: dict[str, float] = {}  # by host
        self.series: dict[str, Series] = {}

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def note(self, time: int, host: str, text: str) -> None:
        """Add the metrics of a line; `time` is in milliseconds since 1970."""
        for name, value in readings(self._patterns, text, self._on_bad):
            if _STEP.match(name):
                self._step[host] = value
            self.series.setdefault(name, Series()).add(time, value, self._step.get(host))

    def _on_bad(self, name: str, value: object) -> None:
        if name not in self._bad:  # only once, although each line has another value
            self._bad.add(name)
            self._warn(f"metric {name}: expected a number, got {value!r}; correct its regex")

    @property
    def last(self) -> dict[str, float]:
        """Return the last value of each metric."""
        return {name: series.last for name, series in self.series.items()}

    def panels(self) -> dict[str, Series]:
        """Return the series to draw: all but the step, which is the x axis of the others."""
        others = {name: series for name, series in self.series.items() if not _STEP.match(name)}
        return others or self.series
