"""`launch lst`: the commands on `.lst` lists of images and labels."""

from __future__ import annotations

import click

from launcher.commands.lists.change import edit, make
from launcher.commands.lists.look import check, diff

lst = click.Group(
    "lst", [make, check, diff, edit], help="Make, check, compare and edit `.lst` lists of images and labels."
)
