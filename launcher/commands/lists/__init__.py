"""`launch lst`: the commands on `.lst` lists of images and labels."""

from __future__ import annotations

import click

from launcher.commands.lists.edit import edit
from launcher.commands.lists.look import check, diff
from launcher.commands.lists.make import make

lst = click.Group(
    "lst", [make, check, diff, edit], help="Make, check, compare and edit `.lst` lists of images and labels."
)
