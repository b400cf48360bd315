"""A typed view of a request, for whatever reads one: rules, account checks, the local run, the cost.

Only this module and the storage kinds know how an InputDataConfig entry nests its data source. Any member can be absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, NamedTuple, cast

from launcher.errors import SpecPath
from launcher.request.image_uris import built_in_algorithm
from launcher.request.instance_types import InstanceType, instance_type
from launcher.request.origin import Origin
from launcher.spec.aws_model import ALGORITHM, shapes
from launcher.spec.job import JobSpec
from launcher.spec.model import aws_name, value_at
from sagemaker_channels import contract

# Where a training script is named: with any of these a built-in algorithm's image runs the script instead.
_SCRIPT_NAMES = ("sagemaker_program", "SAGEMAKER_PROGRAM")

IMAGE: SpecPath = (ALGORITHM, "TrainingImage")
_MANY_CHANNELS = 200  # AWS takes 20
_OF_GROUPS = "ResourceConfig.InstanceGroups."


def s3_source(entry: Mapping[str, Any]) -> dict[str, Any]:
    source: dict[str, Any] = entry.get("DataSource", {}).get("S3DataSource", {})
    return source


def file_system_source(entry: Mapping[str, Any]) -> dict[str, Any]:
    source: dict[str, Any] = entry.get("DataSource", {}).get("FileSystemDataSource", {})
    return source


def machine_sets(resources: Mapping[str, Any]) -> list[list[tuple[SpecPath, dict[str, Any]]]]:
    """Return the sets of machines of which AWS chooses one for a ResourceConfig: all its groups, or each of its preferences.

    Each machine has its place in the spec's `resource_config`, and the members that hold for it there. A described job has the one
    that AWS has chosen.
    """
    common = {name: value for name, value in resources.items() if not isinstance(value, list)}
    if chosen := resources.get("SelectedInstanceType"):
        count = resources.get("SelectedInstanceCount") or resources.get("InstanceCount")
        return [[((), {**common, "InstanceType": chosen, "InstanceCount": count})]]

    def listed(member: str, key: str) -> list[tuple[SpecPath, dict[str, Any]]]:
        return [((key, index), {**common, **each}) for index, each in enumerate(resources.get(member) or ())]

    if groups := listed("InstanceGroups", "instance_groups"):
        return [groups]
    return [[each] for each in listed("InstancePreferences", "instance_preferences") or [((), common)]]


def leaves(value: Any, path: SpecPath = ()) -> Iterator[tuple[SpecPath, Any]]:
    """Yield the values of a request that are neither mappings nor lists, each with its path."""
    if isinstance(value, Mapping | list):
        for name, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(item, (*path, name))
    else:
        yield path, value


def with_source(entry: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    ((kind, source),) = entry["DataSource"].items()
    return {**entry, "DataSource": {kind: {**source, **changes}}}


def groups_of(entry: Mapping[str, Any]) -> list[str]:
    """Return the instance groups that an InputDataConfig entry names; without any, all of the job's get the channel."""
    names: list[str] = s3_source(entry).get("InstanceGroupNames", [])
    return names


def is_sharded(entry: Mapping[str, Any]) -> bool:
    """Return whether each host gets a shard of the objects; SageMaker's default is that each gets all."""
    return s3_source(entry).get("S3DataDistributionType") == contract.SHARDED


def media_type(content_type: str | None) -> str:
    """Return a content type in lower case without its parameters; empty if there is none."""
    return (content_type or "").partition(";")[0].strip().lower()


RULE_LISTS = ("DebugRuleConfigurations", "ProfilerRuleConfigurations")  # members, whose rules run beside the job


class Entry(NamedTuple):
    name: str
    request: Mapping[str, Any]
    job: Mapping[str, Any]
    """The AlgorithmSpecification, whose mode counts for channels that name none."""
    whole: SpecPath
    """Its place in the request."""
    note: Callable[[SpecPath], None]
    """That of its draft."""

    def path(self, member: str) -> SpecPath:
        """Return the place of one of its members, or of its data source's, whether it is there or not."""
        member = aws_name(member)
        sources = self.request.get("DataSource", {})
        source: str | None = next((each for each in sources if member in sources[each]), next(iter(sources), None))
        if source is None or member in shapes()["Channel"]["members"]:
            return (*self.whole, member)
        return (*self.whole, "DataSource", source, member)

    def get(self, member: str) -> Any:
        """Return a member of the entry itself or of its data source; None if it is missing."""
        self.note(self.path(member))
        for level in (self.request, s3_source(self.request), file_system_source(self.request)):
            if member in level:
                return level[member]
        if member != "InputMode":
            return None
        self.note((ALGORITHM, "TrainingInputMode"))
        return self.job.get("TrainingInputMode")

    @property
    def mode(self) -> str | None:
        """Its InputMode: its own, else the job's."""
        return cast("str | None", self.get("InputMode"))

    @property
    def is_file_system(self) -> bool:
        return "FileSystemDataSource" in (self.get("DataSource") or {})

    @property
    def is_sharded(self) -> bool:
        return is_sharded(self.request)

    @property
    def is_augmented(self) -> bool:
        """Whether it is an augmented manifest, which includes the labels."""
        return bool(self.get("S3DataType") == "AugmentedManifestFile")

    @property
    def content_type(self) -> str:
        return media_type(self.get("ContentType"))


@dataclass(frozen=True)
class Draft:
    """A request that is being checked, and the spec it was made from."""

    spec: JobSpec
    request: Mapping[str, Any]
    is_named: bool = False
    """Whether the job's name was given in place of the spec's."""
    today: date | None = None
    """The day to judge images by; None if it is unknown."""
    origin: Origin = field(default_factory=Origin)
    """Where the request's members are written in the spec."""
    wrong: Mapping[SpecPath, SpecPath] = field(default_factory=dict)
    """Members whose value is missing or wrong because of an error, each with the place of the error in the spec."""
    causes: set[SpecPath] = field(default_factory=set)
    """The places of those that were asked for."""

    def note(self, path: SpecPath) -> None:
        """Add to `causes` if a member that is asked for, or one around it, is wrong."""
        if self.wrong:
            ends = [path[:end] for end in range(1, len(path) + 1)]
            self.causes.update(self.wrong[each] for each in ends if each in self.wrong)

    def get(self, dotted: str) -> Any:
        """Return a member by its path, such as `StoppingCondition.MaxRuntimeInSeconds`; None where any part is absent."""
        path = tuple(dotted.split("."))
        self.note(path)
        return value_at(self.request, path)

    def each(self, *members: str) -> Iterator[tuple[SpecPath, Any]]:
        """Yield the values of members, each with its path in the request.

        Paths such as `VpcConfig.Subnets` lead through every item of the lists on their way.
        """
        for member in members:
            yield from self._values(self.request, member.split("."), ())

    def settings(self) -> Iterator[tuple[SpecPath, str]]:
        """Yield the values of environment and hyperparameters, each with its path in the request."""
        for member in ("Environment", "HyperParameters"):
            for name, value in (self.get(member) or {}).items():
                yield (member, name), str(value)

    def _values(self, value: Any, members: list[str], path: SpecPath) -> Iterator[tuple[SpecPath, Any]]:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._values(item, members, (*path, index))
        elif members and isinstance(value, Mapping):
            place = (*path, members[0])
            self.note(place)
            yield from self._values(value.get(members[0]), members[1:], place)
        elif not members and value is not None:
            yield path, value

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """The channels of the request, at most 200.

        A file of 1 MB can have ten thousand, and to check each would take seconds.
        """
        job = self.get("AlgorithmSpecification") or {}
        found: list[Entry] = []
        for at, entry in enumerate((self.get("InputDataConfig") or ())[:_MANY_CHANNELS]):
            found.append(Entry(entry.get("ChannelName", ""), entry, job, ("InputDataConfig", at), self.note))
            self.note(found[-1].path("ChannelName"))
        return found

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    @cached_property
    def groups(self) -> Sequence[Mapping[str, Any]]:
        return self.get("ResourceConfig.InstanceGroups") or ()

    @cached_property
    def instance_count(self) -> int | None:
        """Hosts of the job, if the request says it: of all groups, or of the largest of the instance preferences."""
        if self.groups:
            return sum(int(count) for _, count in self.each(_OF_GROUPS + "InstanceCount"))
        counts = self.each("ResourceConfig.InstanceCount", "ResourceConfig.InstancePreferences.InstanceCount")
        return max((int(count) for _, count in counts), default=None)

    def host_count(self, entry: Entry) -> int | None:
        """Return the number of hosts that a channel is for: those of its instance groups if it names any, else all."""
        names = entry.get("InstanceGroupNames")
        if not names or not self.groups:
            return self.instance_count
        groups = {path[:3] for path, name in self.each(_OF_GROUPS + "InstanceGroupName") if name in names}
        return sum(int(count) for path, count in self.each(_OF_GROUPS + "InstanceCount") if path[:3] in groups)

    @cached_property
    def instance_types(self) -> Sequence[tuple[SpecPath, InstanceType]]:
        """Every instance type that the job runs on or may run on, with its path in the request."""
        places = ("InstanceType", "InstanceGroups.InstanceType", "InstancePreferences.InstanceType")
        found = self.each(*(f"ResourceConfig.{place}" for place in places))
        return [(path, instance_type(name)) for path, name in found if name]

    @property
    def is_serverless(self) -> bool:
        """Whether SageMaker chooses machine and image itself."""
        return self.get("ServerlessJobConfig") is not None

    @property
    def is_spot(self) -> bool:
        return bool(self.get("EnableManagedSpotTraining"))

    @property
    def image(self) -> str:
        return self.get("AlgorithmSpecification.TrainingImage") or ""

    @cached_property
    def built_in(self) -> str | None:
        """The built-in algorithm that runs, such as `image-classification`; None where a script or another image does."""
        named = {*(self.get("HyperParameters") or ()), *(self.get("Environment") or ())}
        own = self.spec.code is not None or self.get("AlgorithmSpecification.ContainerEntrypoint")
        return None if own or named.intersection(_SCRIPT_NAMES) else built_in_algorithm(self.image)
