"""The commands, each a function with click's decorators, and one row in this table.

A module is imported when its command is called. Not here: what a command shows of AWS or of a job (`jobs`, `cost`).
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "init": "launcher.commands.init:init",
    "submit": "launcher.commands.submit:submit",
    "local": "launcher.commands.local:local",
    "status": "launcher.commands.jobs:status",
    "top": "launcher.commands.top:top",
    "logs": "launcher.commands.logs:logs",
    "list": "launcher.commands.jobs:list_jobs",
    "clean": "launcher.commands.local:clean",
    "stop": "launcher.commands.jobs:stop",
    "rerun": "launcher.commands.rerun:rerun",
    "import": "launcher.commands.import_spec:import_spec",
    "diff": "launcher.commands.diff:diff",
    "compare": "launcher.commands.compare:compare",
    "cost": "launcher.commands.cost:cost",
    "exec": "launcher.commands.exec:execute",
    "measure": "launcher.commands.measure:measure",
    "peek": "launcher.commands.peek:peek",
    "advise": "launcher.commands.advise:advise",
    "reshard": "launcher.commands.reshard:reshard",
    "toy-data": "launcher.commands.toy_data:toy_data",
    "lst": "launcher.commands.lists:lst",
}
