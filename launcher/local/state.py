"""One local run: its plan, options, hosts, folder, console and runner, and what is known of it so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.console import Console
from launcher.local.leftovers import unlock
from launcher.local.workspace import Host, LocalOptions, entries_of
from launcher.planning import Plan
from launcher.request.view import groups_of

if TYPE_CHECKING:
    from launcher.local.containers import Containers
    from launcher.local.processes import Processes


class Transitions(list[dict[str, str]]):
    """The job's secondary statuses, as in SageMaker's SecondaryStatusTransitions."""

    def begin(self, status: str) -> None:
        """Enter a status, which ends the one before."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        if self:
            self[-1]["EndTime"] = now
        self.append({"Status": status, "StartTime": now})


@dataclass(frozen=True)
class LocalRun:
    """One run: its plan, options, folder, hosts and console."""

    plan: Plan
    options: LocalOptions
    folder: Path
    hosts: tuple[Host, ...]
    console: Console
    runner: Processes | Containers
    scratch: Path  # a folder outside of the run's, with a short path, that is removed with all in it
    transitions: Transitions = field(default_factory=Transitions)
    asked: Mapping[str, Any] = field(default_factory=dict)  # the spec's request, masked, without --channel's places
    named: Callable[[str], str] = str  # rewrites a message so that it names the user's own files
    # Reference -> value; never in the run's folder.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    # What is as in SageMaker, and what is not: each thing Here and InSageMaker, empty if unknown, and whether these are the Same.
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, what: str, here: str, there: str, *, same: bool) -> None:
        """Note a fact for the report; of several hosts' facts, one that differs from SageMaker stays."""
        if what not in self.facts or self.facts[what]["Same"] is not False:
            self.facts[what] = {"Here": here, "InSageMaker": there, "Same": same if there else None}

    @property
    def s3_folder(self) -> Path:
        """The folder that stands for S3 when the job writes."""
        return self.folder / "s3"

    def stored(self, uri: str) -> Path:
        """Return the path of `s3://bucket/prefix/` below the folder that stands for S3."""
        parts = uri.partition("://")[2].split("/")
        return self.s3_folder.joinpath(*(part for part in parts if part not in ("", ".", "..")))

    def host_folder(self, host: Host) -> Path:
        return self.folder / host.name

    def root(self, host: Host) -> Path:
        """Return the folder that is the host's /opt/ml."""
        return self.host_folder(host) / "ml"

    def channels(self, host: Host) -> list[dict[str, Any]]:
        """Return the InputDataConfig entries that a host gets, each with its mode filled in from the job's."""
        return [entry for entry in entries_of(self.plan.request) if host.name in self.sharing(entry)]

    def sharing(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the hosts that share a channel: all, or those of its instance groups."""
        groups = groups_of(entry)
        return tuple(host.name for host in self.hosts if not groups or host.group in groups)

    def finish(self) -> None:
        """Make all that the ended hosts wrote readable and removable for this user."""
        self.runner.finish(self.folder)
        unlock(self.folder)
