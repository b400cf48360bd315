"""What a rule is: a small function from a draft of the request to what breaks the rule, and the example that proves it.

Rules look at the request, so that what `request:` says counts as well, and name places of the spec (`places` finds those
in `request:`). Any member can be absent or empty when they run, but none has the wrong type, and none is one that the model
does not know: what is wrong in this way is taken out before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from entrypoints import contract
from launcher.errors import SpecPath
from launcher.request.images import built_in_algorithm
from launcher.request.instance_types import InstanceType, instance_type
from launcher.spec.job import JobSpec

Found = tuple[SpecPath, str]  # the place in the spec; what is wrong, why, and what to do

# Where a training script is named: with any of these a built-in algorithm's image runs the script instead.
_SCRIPT_NAMES = ("sagemaker_program", "SAGEMAKER_PROGRAM")

_MANY_CHANNELS = 200  # AWS takes 20


class Entry(NamedTuple):
    """One InputDataConfig entry of a draft."""

    name: str
    request: Mapping[str, Any]
    job: Mapping[str, Any]
    """The AlgorithmSpecification, whose mode counts for channels that name none."""

    def path(self, key: str) -> SpecPath:
        """The place of one of this channel's keys in the spec."""
        return ("channels", self.name, key)

    @property
    def whole(self) -> SpecPath:
        """The place of this channel in the spec."""
        return ("channels", self.name)

    def get(self, member: str) -> Any:
        """A member of the entry itself or of its data source; None where it is not given."""
        source = self.request.get("DataSource", {})
        for level in (self.request, source.get("S3DataSource", {}), source.get("FileSystemDataSource", {})):
            if member in level:
                return level[member]
        return self.job.get("TrainingInputMode") if member == "InputMode" else None

    @property
    def is_file_system(self) -> bool:
        """Whether it lies on EFS or FSx rather than in S3."""
        return "FileSystemDataSource" in self.request.get("DataSource", {})

    @property
    def is_sharded(self) -> bool:
        """Whether each host gets a share of the objects; SageMaker's default is that each gets all."""
        return bool(self.get("S3DataDistributionType") == contract.SHARDED)

    @property
    def content_type(self) -> str:
        """The MIME type in lower case without its parameters; empty where none is given."""
        return (self.get("ContentType") or "").partition(";")[0].strip().lower()


@dataclass(frozen=True)
class Draft:
    """A request that is being checked, and the spec it was made from."""

    spec: JobSpec
    request: Mapping[str, Any]
    is_named: bool = False
    """Whether the job's name was given in place of the spec's."""

    def get(self, dotted: str) -> Any:
        """A member by its path, such as `StoppingCondition.MaxRuntimeInSeconds`; None where any part is absent."""
        value: Any = self.request
        for member in dotted.split("."):
            value = value.get(member) if isinstance(value, Mapping) else None
        return value

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """The channels that SageMaker brings.

        Not more than can be meant: a file of 1 MB can hold ten thousand, and to judge each would take seconds.
        """
        job = self.get("AlgorithmSpecification") or {}
        entries = self.request.get("InputDataConfig", ())[:_MANY_CHANNELS]
        return [Entry(entry.get("ChannelName", ""), entry, job) for entry in entries]

    def entry(self, name: str) -> Entry | None:
        """The channel of a name."""
        return next((entry for entry in self.entries if entry.name == name), None)

    @cached_property
    def groups(self) -> Sequence[Mapping[str, Any]]:
        """The instance groups of a heterogeneous cluster; none is no group."""
        return self.get("ResourceConfig.InstanceGroups") or ()

    @cached_property
    def instance_count(self) -> int | None:
        """Hosts of the job, if the request says it: of all groups, or of the largest of the instance preferences."""
        resources = self.get("ResourceConfig") or {}
        if self.groups:
            return _hosts(self.groups)
        preferred = [each.get("InstanceCount") for each in resources.get("InstancePreferences", ())]
        counts = [count for count in (resources.get("InstanceCount"), *preferred) if count is not None]
        return max(counts, default=None)

    def hosts_of(self, entry: Entry) -> int | None:
        """The hosts that a channel is for: those of its instance groups, where it names any, or all."""
        names = entry.get("InstanceGroupNames")
        if names and self.groups:
            return _hosts([group for group in self.groups if group.get("InstanceGroupName") in names])
        return self.instance_count

    @cached_property
    def instance_types(self) -> Sequence[tuple[SpecPath, InstanceType]]:
        """Every instance type that the job runs on or may run on, with its place in the spec."""
        resources = self.get("ResourceConfig") or {}
        above: SpecPath = ("resource_config",)
        said = [((*above, "instance_type"), resources.get("InstanceType"))]
        for key, member in (("instance_groups", "InstanceGroups"), ("instance_preferences", "InstancePreferences")):
            for index, each in enumerate(resources.get(member, ())):
                said.append(((*above, key, index, "instance_type"), each.get("InstanceType")))
        return [(path, instance_type(name)) for path, name in said if name]

    @property
    def is_serverless(self) -> bool:
        """Whether SageMaker chooses machine and image itself."""
        return "ServerlessJobConfig" in self.request

    @property
    def is_spot(self) -> bool:
        """Whether it runs on spot instances."""
        return bool(self.request.get("EnableManagedSpotTraining"))

    @property
    def image(self) -> str:
        """The training image's URI; empty where there is none."""
        return self.get("AlgorithmSpecification.TrainingImage") or ""

    @cached_property
    def built_in(self) -> str | None:
        """The built-in algorithm that runs, such as `image-classification`; None where a script or another image does."""
        named = {*self.request.get("HyperParameters", ()), *self.request.get("Environment", ())}
        own = self.spec.code is not None or self.get("AlgorithmSpecification.ContainerEntrypoint")
        return None if own or named.intersection(_SCRIPT_NAMES) else built_in_algorithm(self.image)


def _hosts(groups: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(group.get("InstanceCount", 0)) for group in groups)


class Rule(NamedTuple):
    """One row of the table of rules; the function's docstring says why the rule is there and where it is written."""

    code: str
    severity: Literal["error", "warning"]
    find: Callable[[Draft], Iterator[Found]]
    wrong: str  # YAML laid over `examples.BASE` that breaks this rule and no other
    right: str  # YAML laid over it that keeps this rule
