"""Follow a job to its end: its statuses, its lines, its metrics; then say how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launcher.aws.account import Account
from launcher.console import Console
from launcher.jobs.outcome import Outcome


@dataclass(frozen=True)
class View:
    """What of a job is shown while it is followed."""

    logs: bool = True  # else its statuses only
    since: int | None = None  # milliseconds since 1970; earlier lines are left out
    host: str | None = None  # `algo-2`: this host's lines only
    on_line: Callable[[int, str, str], None] | None = None  # gets (timestamp, host, message) in the console's place
    plot: Path | None = None  # where the metrics are drawn at the end


def follow(account: Account, name: str, console: Console, view: View | None = None) -> Outcome:
    """Show what the job does until it has ended; Ctrl-C leaves it running and returns too, with `exit_code` 130.

    Raises RefusedError where there is no such job or AWS cannot be asked.
    """
    raise NotImplementedError
