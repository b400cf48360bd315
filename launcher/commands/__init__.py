"""The commands: one card per module, and one row in this table. A module is imported when its command is called.

A module defines `COMMAND`, a `launcher.commands.card.Command`. Not here: what a command shows of AWS or of a job (`jobs`, `cost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "launcher.commands.run",
        "status": "launcher.commands.status",
        "logs": "launcher.commands.logs",
        "list": "launcher.commands.list_jobs",
        "stop": "launcher.commands.stop",
        "rerun": "launcher.commands.rerun",
        "diff": "launcher.commands.diff",
        "cost": "launcher.commands.cost",
    }
)
