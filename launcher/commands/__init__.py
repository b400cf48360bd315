"""The commands: each module turns its arguments into one effect, and is imported when it is asked for.

A module has a click command of the name `command`. A new one is a file and a row here.
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
