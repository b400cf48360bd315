"""The rows as the README has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rounds import Row

HEADINGS = "| work | ours | beside | limit | ratio | target |\n|---|---|---|---|---|---|"
_SECONDS = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
BEGIN, END = "<!-- bench: made by `make bench` -->\n", "<!-- end of the bench -->"


def said(machine: Mapping[str, Any]) -> str:
    """The machine in a sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Measured on {machine['date']}: {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, Python"
        f" {machine['python']}, {versions}; medians of {machine['rounds']} rounds; {machine['load_at_start']} processes were"
        " busy when it began."
    )


def line(row: Row) -> str:
    """A row of the table."""
    target = f"{row['target']:g}" if row["target"] else ""
    limit = "" if row["limit"] is None else _figure(row["limit"], row["unit"])
    beside = f"{row['peer_name']} {_figure(row['peer'], row['unit'])}"
    work, ours = row["work"], _figure(row["ours"], row["unit"])
    return f"| {work} | {ours} | {beside} | {limit} | {row['ratio']:.3g} | {target} |"


def _figure(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:,.0f} {unit}"
    scale, name = next(((scale, name) for scale, name in _SECONDS if value * scale >= 1), _SECONDS[-1])
    return f"{value * scale:.3g} {name}"


def write_table(readme: Path, machine: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Puts what was found between the README's marks."""
    text = readme.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    if not mark or END not in rest:
        raise SystemExit(f"{readme} has no {BEGIN.strip()} with {END} behind it")
    table = "\n".join([said(machine), "", HEADINGS, *map(line, rows)])
    readme.write_text(f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
