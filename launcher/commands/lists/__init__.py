"""`launch lst`: the commands on `.lst` lists, and what they share."""

from __future__ import annotations

import click

from launcher.commands.lists import edit, look, make

lst = click.Group("lst", help="Make, check, compare and change `.lst` lists of images and labels.")
for name, card in {
    "make": make.Make,
    "check": look.Check,
    "diff": look.DiffLists,
    "merge": make.Merge,
    "split-class": edit.SplitClass,
    "merge-classes": edit.MergeClasses,
    "relabel": edit.Relabel,
    "stats": look.Stats,
}.items():
    lst.add_command(card.as_click(name))
