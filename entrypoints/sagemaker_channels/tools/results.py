"""What a measurement has found, and its summary: a row for each way, sorted by speed."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

FILE = "measure.json"  # below the job's output data
_FEW_STEPS = 100  # fewer say little about 100 steps

Results = dict[str, Any]

# The columns: title, the run's figure, and how it is shown.
_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("samples/s", "samples_per_second", "{:,.1f}".format),
    ("MB/s", "megabytes_per_second", "{:,.1f}".format),
    ("first batch s", "first_batch", "{:.2f}".format),
    ("s/100 steps", "mean_100", "{:.2f}".format),
    ("variance", "variance_100", "{:.2g}".format),
    ("p50 ms", "p50_ms", "{:.1f}".format),
    ("p99 ms", "p99_ms", "{:.1f}".format),
    ("CPU s", "cpu_seconds", "{:.1f}".format),
    ("memory MB", "memory_mb", "{:,.0f}".format),
    ("data share", "data_share", "{:.0%}".format),
)


def summary(results: Results) -> list[dict[str, Any]]:
    """Return each way's medians over its rounds, the fastest way first; those without a run are last, with the reason."""
    rows = [_row(way) for way in results["ways"]]
    return sorted(rows, key=lambda row: -row.get("samples_per_second", -1))


def _row(way: Mapping[str, Any]) -> dict[str, Any]:
    about = {key: way[key] for key in ("name", "title", "row", "error") if way.get(key) is not None}
    runs = [_figures(run, way["bytes"]) for run in way["runs"]]
    if not runs:
        return about
    speeds = [run["samples_per_second"] for run in runs]
    columns = {key: [run[key] for run in runs if run.get(key) is not None] for _, key, _ in _COLUMNS}
    medians = {key: statistics.median(values) for key, values in columns.items() if values}
    if "memory" in way:
        medians["memory_mb"] = way["memory"] / 1e6
    return {**about, "rounds": len(runs), **medians, "slowest": min(speeds), "fastest": max(speeds)}


def _figures(run: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return a run's figures in the units of the columns."""
    figures = dict(run, samples_per_second=run["samples"] / run["seconds"])
    figures["megabytes_per_second"] = size / run["seconds"] / 1e6
    for name in ("p50", "p99"):
        figures[f"{name}_ms"] = None if run.get(name) is None else 1000 * run[name]
    return figures


def table(results: Results) -> list[str]:
    rows = summary(results)
    columns = [column for column in _COLUMNS if any(column[1] in row for row in rows)]
    lines = [["way", *(title for title, _, _ in columns)]]
    lines += [
        [row["name"], *(form(row[key]) if key in row else "" for _, key, form in columns)]
        for row in rows
        if "rounds" in row
    ]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    text = [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in lines
    ]
    errors = [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    steps = min((run["steps"] for way in results["ways"] for run in way["runs"] if "steps" in run), default=_FEW_STEPS)
    few = f"an epoch has only {steps} steps, too few for s/100 steps and p99; measure more samples, or pass a smaller --batch-size"
    notes = [few] if steps < _FEW_STEPS else []
    return [*(text if len(lines) > 1 else ()), *errors, *notes] or ["no round has been measured"]


def mark_different(ways: Sequence[dict[str, Any]]) -> None:
    """Give each way whose samples are not those of most ways an error; each way, if no two of them agree."""
    read = [way for way in ways if "digest" in way]
    digests = Counter(way["digest"] for way in read).most_common()
    if len(digests) < 2:
        return
    usual, agreeing = digests[0]
    for way in read:
        if way["digest"] != usual or agreeing == 1:
            others = [each for each in read if each["digest"] != way["digest"]]
            other = next((each for each in others if each["digest"] == usual), others[0])
            way["error"] = (
                f"its {way['samples']:,} samples of {way['bytes']:,} bytes are not those of {other['name']}:"
                f" {other['samples']:,} of {other['bytes']:,} bytes"
            )
