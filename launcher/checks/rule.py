"""What a rule is: a small function from a draft of the request to what breaks the rule, and the example that proves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from launcher.errors import Path
from launcher.spec import JobSpec

Found = tuple[Path, str]  # the place in the spec; what is wrong, why, and what to do


@dataclass(frozen=True)
class Entry:
    """One InputDataConfig entry of a draft."""

    name: str
    request: Mapping[str, Any]

    def path(self, key: str) -> Path:
        """The place of one of this channel's keys in the spec."""
        return ("channels", self.name, key)

    def get(self, member: str) -> Any:
        """A member of the entry itself or of its data source; None where it is not given."""
        source = self.request.get("DataSource", {})
        for level in (self.request, source.get("S3DataSource", {}), source.get("FileSystemDataSource", {})):
            if member in level:
                return level[member]
        return None

    @property
    def is_file_system(self) -> bool:
        """Whether it lies on EFS or FSx rather than in S3."""
        return "FileSystemDataSource" in self.request.get("DataSource", {})


@dataclass(frozen=True)
class Draft:
    """A request that is being checked, and the spec it was made from."""

    spec: JobSpec
    request: Mapping[str, Any]

    def get(self, dotted: str) -> Any:
        """A member by its path, such as `StoppingCondition.MaxRuntimeInSeconds`; None where any part is absent."""
        value: Any = self.request
        for member in dotted.split("."):
            value = value.get(member) if isinstance(value, Mapping) else None
        return value

    @property
    def entries(self) -> Iterator[Entry]:
        """The channels that SageMaker brings, each with its mode filled in from the job's."""
        for entry in self.request.get("InputDataConfig", ()):
            mode = entry.get("InputMode", self.get("AlgorithmSpecification.TrainingInputMode"))
            yield Entry(entry["ChannelName"], {**entry, "InputMode": mode})

    @property
    def instance_count(self) -> int:
        """Hosts of the job; 1 where the request does not say."""
        groups = self.get("ResourceConfig.InstanceGroups")
        if groups is not None:
            return sum(group.get("InstanceCount", 0) for group in groups)
        count = self.get("ResourceConfig.InstanceCount")
        return 1 if count is None else int(count)


@dataclass(frozen=True)
class Rule:
    """One row of the table of rules; the function's docstring says why the rule is there and where it is written."""

    code: str
    severity: Literal["error", "warning"]
    find: Callable[[Draft], Iterator[Found]]
    wrong: str  # YAML laid over `examples.BASE` that breaks this rule and no other
    right: str  # YAML laid over it that keeps this rule
