"""The rows as tables for docs/benchmarks.md: speed beside packages, speed beside the machine's limit, resuming, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rounds import Row

HEADINGS = "| work | ours | beside | limit | ratio | target |\n|---|---|---|---|---|---|"
_SECONDS = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
_OURS_OR_LIMIT = ("limit", "direct", "plain loop", "plain read", "queue", "the whole save")  # peers that are no package
BEGIN, END = "<!-- bench: made by `make bench` -->\n", "<!-- end of the bench -->"


def measured(machine: Mapping[str, Any]) -> str:
    """When, where and how the rows were measured."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Measured on {machine['date']} with {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB and"
        f" Python {machine['python']}; medians of {machine['rounds']} rounds; load {machine['load_at_start']} at the start."
        f" Versions: {versions}."
    )


def line(row: Row) -> str:
    """A row of a table of speeds."""
    target = f"{row['target']:g}" if row["target"] else ""
    limit = "" if row["limit"] is None else _figure(row["limit"], row["unit"])
    beside = f"{row['peer_name']} {_figure(row['peer'], row['unit'])}"
    work, ours = row["work"], _figure(row["ours"], row["unit"])
    return f"| {work} | {ours} | {beside} | {limit} | {row['ratio']:.3g} | {target} |"


def _resume_line(row: Row) -> str:
    ours, peer = _figure(row["ours"], row["unit"]), _figure(row["peer"], row["unit"])
    return f"| {row['work'].removeprefix('resume at sample 1,000,000, ')} | {ours} | {peer} | {row['ratio']:,.0f} |"


def _memory_line(row: Row) -> str:
    limit = "" if row["limit"] is None else _figure(row["limit"], row["unit"])
    return f"| {row['work'].removeprefix('memory over 10 GB: ')} | {_figure(row['ours'], row['unit'])} | {limit} |"


def _figure(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:,.0f} {unit}"
    scale, name = next(((scale, name) for scale, name in _SECONDS if value * scale >= 1), _SECONDS[-1])
    return f"{value * scale:.3g} {name}"


_RESUME = "| format | resume | read that far instead | ratio |\n|---|---|---|---|"
_MEMORY = "| data and reader | memory above the imports | two samples |\n|---|---|---|"


def _table_of(row: Row) -> tuple[int, str, str, Callable[[Row], str]]:
    """Place, title, headings and line of the table that a row belongs to."""
    if row.get("benchmark") == "memory":
        return 3, "Memory while reading 10 GB (target: at most 300 MB)", _MEMORY, _memory_line
    if row.get("benchmark") == "resume":
        return 2, "Resuming at sample 1,000,000 (target: 100 times as fast)", _RESUME, _resume_line
    if row["peer_name"] in _OURS_OR_LIMIT:
        return 1, "Speed beside what the machine allows", HEADINGS, line
    return 0, "Speed beside other packages", HEADINGS, line


def tables(rows: Sequence[Row]) -> str:
    """All rows, in a table for each kind."""
    found: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        place, title, headings, form = _table_of(row)
        found.setdefault((place, f"## {title}\n\n{headings}"), []).append(form(row))
    return "\n\n".join("\n".join([head, *lines]) for (_, head), lines in sorted(found.items()))


def write_table(page: Path, machine: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write the tables between the page's marks."""
    text = page.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    if not mark or END not in rest:
        raise SystemExit(f"{page} has no {BEGIN.strip()} with {END} behind it")
    page.write_text(
        f"{before}{BEGIN}{measured(machine)}\n\n{tables(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8"
    )
