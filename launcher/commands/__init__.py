"""The commands: one card per module, and one row in this table. A module is imported when its command is called.

A card is a class derived from `launcher.commands.card.Command`. Not here: what a command shows of AWS or of a job (`jobs`,
`cost`). A command of two words belongs to a group.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "run": "launcher.commands.run:Run",
    "status": "launcher.commands.status:Status",
    "logs": "launcher.commands.logs:Logs",
    "list": "launcher.commands.list_jobs:ListJobs",
    "clean": "launcher.commands.clean:Clean",
    "stop": "launcher.commands.stop:Stop",
    "rerun": "launcher.commands.rerun:Rerun",
    "diff": "launcher.commands.diff:Diff",
    "cost": "launcher.commands.cost:Cost",
    "shell": "launcher.commands.shell:Shell",
    "measure": "launcher.commands.measure:Measure",
    "advise": "launcher.commands.advise:Advise",
    "reshard": "launcher.commands.reshard:Reshard",
    "toy-data": "launcher.commands.toy_data:ToyData",
    "lst make": "launcher.commands.lists.make:Make",
    "lst check": "launcher.commands.lists.look:Check",
    "lst diff": "launcher.commands.lists.look:DiffLists",
    "lst merge": "launcher.commands.lists.make:Merge",
    "lst split-class": "launcher.commands.lists.edit:SplitClass",
    "lst merge-classes": "launcher.commands.lists.edit:MergeClasses",
    "lst relabel": "launcher.commands.lists.edit:Relabel",
    "lst stats": "launcher.commands.lists.look:Stats",
}
GROUPS: Mapping[str, str] = {"lst": "Make, check, compare and change `.lst` lists of images and labels."}
