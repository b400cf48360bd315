"""Rows in columns, printed as lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click

from launcher.console import print_line

STATUS_COLOURS = {
    **dict.fromkeys(("Queued", "Stopping", "Stopped", "Deleting", "Unknown"), "yellow"),
    **dict.fromkeys(("Failed", "not created"), "red"),
    "InProgress": "cyan",
    "Completed": "green",
}


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, has_titles: bool = False) -> None:
    """Print rows to stdout in columns, cells with a status in its colour.

    On a terminal, and elsewhere with `has_titles`, they have titles. A terminal that is too narrow gets the first columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    is_terminal = sys.stdout.isatty()
    if is_terminal or has_titles:
        widths = [max(width, len(title)) for width, title in zip(widths, titles, strict=True)]
        room = shutil.get_terminal_size().columns
        while is_terminal and len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > room:
            widths.pop()
        print_line(_columns(titles, widths), dim=True)
    for row in rows:
        print_line(_columns(row, widths), keep_colours=True)


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    padded[-1] = padded[-1].rstrip()
    styled = [click.style(text, fg=STATUS_COLOURS.get(cell)) for text, cell in zip(padded, cells, strict=False)]
    return "  ".join(styled)
