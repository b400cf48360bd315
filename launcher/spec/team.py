"""What a team's files demand of every job: values that may not be changed, keys that must be there, accounts and regions.

`launcher.parsing.team_files` reads the files, and `launcher.rules.team_rules` compares a spec with this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from launcher.errors import Location, SpecPath

MAX_COST: SpecPath = ("max_cost",)
OUTPUT: SpecPath = ("output_data_config", "s3_output_path")


class Demand(NamedTuple):
    path: SpecPath
    value: Any
    at: Location


class Allowed(NamedTuple):
    """The only accounts or regions that a job may run in."""

    names: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class Team:
    """The files below a spec, and what they demand. Each file's demands hold, whatever the others allow."""

    files: tuple[str, ...] = ()
    """All files with defaults, the lowest first: of the SDK, of the machine, of the team."""
    locked: tuple[Demand, ...] = ()
    """Values, as a field of JobSpec has them, that may not be changed; a locked `max_cost` is the most that a spec may set."""
    required: tuple[Demand, ...] = ()
    """Keys that must have a value; it must match as a whole if there is a regular expression."""
    accounts: tuple[Allowed, ...] = ()
    regions: tuple[Allowed, ...] = ()
    unread: tuple[Location, ...] = ()
    """The variables that name a configuration of the SDK in S3, which is not read."""
