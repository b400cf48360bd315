"""The cost of a CreateTrainingJob request per hour, and at most.

The duration of a training is unknown beforehand, but the request bounds it: MaxRuntimeInSeconds for all attempts together
(StoppingCondition in the service model), then KeepAlivePeriodInSeconds, in which a warm pool costs as much as training.
Managed spot training costs at most that; AWS reports the saving only afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from launcher.cost.table import Lookup, Price, instance_price, volume_price
from launcher.request.instance_types import instance_type as facts_of
from launcher.request.view import RULE_LISTS, file_system_source

_ONE_DAY = 86_400  # StoppingCondition.MaxRuntimeInSeconds: "The default value is 1 day"
_HOUR = 3600
# As in EBS's own example of a volume that exists for a part of a month (https://aws.amazon.com/ebs/pricing/).
_MONTH = 30 * _ONE_DAY
_ALWAYS_LEFT_OUT = (
    "the upload of the model after the time limit",
    "S3 storage and requests, data transfer, KMS, logs and metrics",
    "taxes, credits, savings plans and prices negotiated with AWS",
)
Range = tuple[Decimal, Decimal]  # the least and the most


@dataclass(frozen=True)
class Instances:
    """Equal instances of a cluster."""

    instance_type: str
    count: int
    volume_gb: int  # billed per instance: 0 for types with their own disks
    price: Price | None


@dataclass(frozen=True)
class Cluster:
    """The instances that run a job together."""

    instances: tuple[Instances, ...]

    @property
    def volume_gb(self) -> int:
        """Return the billed storage of all instances together."""
        return sum(each.count * each.volume_gb for each in self.instances)

    def for_instances(self, seconds: int) -> Decimal | None:
        """Return dollars for all instances, without their volumes; None if a price is unknown."""
        per_hour = Decimal(0)
        for each in self.instances:
            if each.price is None:
                return None
            per_hour += each.price.usd * each.count
        return per_hour * seconds / _HOUR

    def for_volumes(self, seconds: int, volume: Price) -> Decimal:
        """Return dollars for the volumes of all instances."""
        return volume.usd * self.volume_gb * seconds / _MONTH

    def altogether(self, seconds: int, volume: Price) -> Decimal | None:
        """Return dollars for instances and volumes; None if a price is unknown."""
        usd = self.for_instances(seconds)
        return None if usd is None else usd + self.for_volumes(seconds, volume)


@dataclass(frozen=True)
class Estimate:
    """The cost of a job. Each amount is (least, most), which differ if AWS may choose one of several clusters."""

    region: str | None
    clusters: tuple[Cluster, ...]
    volume: Price  # per GB and month
    max_seconds: int
    keep_alive_seconds: int
    is_default_time: bool  # whether max_seconds is AWS's default
    is_spot: bool
    left_out: tuple[str, ...]
    per_hour: Range | None  # for the instances; None if a price is unknown, as in the next two and in `maximum`
    most_for_training: Range | None  # for the instances until the time limit
    most_for_keep_alive: Range | None  # for the instances of the warm pool after the training
    most_for_volumes: Range | None  # for storage over the whole time, including the warm pool's
    maximum: Range | None  # for everything that is counted

    @property
    def instances(self) -> tuple[Instances, ...]:
        """Return the instances of all clusters, in the request's order."""
        return tuple(each for cluster in self.clusters for each in cluster.instances)

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Return every type once."""
        return tuple(dict.fromkeys(each.instance_type for each in self.instances))

    @property
    def borrowed_from(self) -> tuple[str, ...]:
        """Return the other regions whose prices are used because those of the job's region are unknown."""
        prices = [each.price for each in self.instances if each.price is not None]
        return tuple(sorted({price.region for price in prices} - {self.region})) if self.region else ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the types whose price is unknown."""
        return tuple(dict.fromkeys(each.instance_type for each in self.instances if each.price is None))


def estimate(request: Mapping[str, Any], region: str | None, lookup: Lookup = instance_price) -> Estimate | None:
    """Estimate the cost of a CreateTrainingJob request in a region, by default us-east-1.

    Returns:
        The estimate; None if the job is not billed by the instance hour, for a reason that `why_not` returns.
    """
    if why_not(request) is not None:
        return None
    resources = request.get("ResourceConfig", {})
    limit = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    clusters = tuple(_cluster(parts, resources, region, lookup) for parts in _choices(resources))
    volume = volume_price(region)
    max_seconds = _ONE_DAY if limit is None else limit
    kept = resources.get("KeepAlivePeriodInSeconds") or 0
    return Estimate(
        region=region,
        clusters=clusters,
        volume=volume,
        max_seconds=max_seconds,
        keep_alive_seconds=kept,
        is_default_time=limit is None,
        per_hour=_range(cluster.for_instances(_HOUR) for cluster in clusters),
        most_for_training=_range(cluster.for_instances(max_seconds) for cluster in clusters),
        most_for_keep_alive=_range(cluster.for_instances(kept) for cluster in clusters),
        most_for_volumes=_range(cluster.for_volumes(max_seconds + kept, volume) for cluster in clusters),
        maximum=_range(cluster.altogether(max_seconds + kept, volume) for cluster in clusters),
        is_spot=bool(request.get("EnableManagedSpotTraining")),
        left_out=(*_left_out(request), *_ALWAYS_LEFT_OUT),
    )


def why_not(request: Mapping[str, Any]) -> str | None:
    """Return why a job is not billed by the instance hour; None if it is."""
    resources = request.get("ResourceConfig", {})
    if "ServerlessJobConfig" in request:
        return "a serverless job is billed by the tokens that it trains on, whose price is unknown here"
    if resources.get("TrainingPlanArn"):
        return "a training plan is paid for in advance, whatever runs in it"
    if not any(part.get("InstanceType") for parts in _choices(resources) for part in parts):
        return "the request names no instance type"
    return None


def _choices(resources: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """Return the clusters that AWS may choose for a ResourceConfig, each a list of InstanceType and InstanceCount."""
    if resources.get("SelectedInstanceType"):  # as DescribeTrainingJob reports the chosen preference
        count = resources.get("SelectedInstanceCount") or resources.get("InstanceCount")
        return [[{"InstanceType": resources["SelectedInstanceType"], "InstanceCount": count}]]
    if resources.get("InstanceGroups"):
        return [resources["InstanceGroups"]]
    if resources.get("InstancePreferences"):
        default = {"InstanceCount": resources.get("InstanceCount")}
        return [[{**default, **preference}] for preference in resources["InstancePreferences"]]
    return [[resources]]


def _cluster(
    parts: list[Mapping[str, Any]], resources: Mapping[str, Any], region: str | None, lookup: Lookup
) -> Cluster:
    """Return the cluster with its prices; instances with their own disks have no billed storage."""
    rows = [(part["InstanceType"], part.get("InstanceCount") or 1) for part in parts if part.get("InstanceType")]
    gigabytes = resources.get("VolumeSizeInGB") or 0
    sizes = [0 if facts_of(name).storage == "NVMe" else gigabytes for name, _ in rows]
    found = zip(rows, sizes, strict=True)
    return Cluster(tuple(Instances(name, count, size, lookup(name, region)) for (name, count), size in found))


def cluster_of(resources: Mapping[str, Any], region: str | None, lookup: Lookup = instance_price) -> Cluster | None:
    """Return the cluster of an existing job; None if it has none, or AWS has not chosen one yet."""
    choices = _choices(resources)
    if len(choices) != 1 or not all(part.get("InstanceType") for part in choices[0]):
        return None
    return _cluster(choices[0], resources, region, lookup)


def uncounted_rules(request: Mapping[str, Any]) -> list[str]:
    """Return the debugger and profiler rules that cost something themselves, which no estimate counts.

    Built-in rules run "at no additional cost" (developer guide, "Use built-in profiler rules managed by Amazon SageMaker
    Debugger"); a rule that names an instance type is a processing job of its own.
    """
    rules = [rule for member in RULE_LISTS for rule in request.get(member, ()) if rule.get("InstanceType")]
    named = [(rule.get("RuleConfigurationName", "?"), rule["InstanceType"]) for rule in rules]
    return [f"the processing job of rule {name} on {instance_type}" for name, instance_type in named]


def _left_out(request: Mapping[str, Any]) -> list[str]:
    """Return what the estimate does not count of this job."""
    found = uncounted_rules(request)
    if any(file_system_source(entry) for entry in request.get("InputDataConfig", ())):
        found.append("the file system that it reads")
    preferences = request.get("ResourceConfig", {}).get("InstancePreferences") or ()
    if any(preference.get("TrainingPlanArns") for preference in preferences):
        found.append("the advance payment for instances of a training plan")
    return found


def _range(amounts: Iterable[Decimal | None]) -> Range | None:
    """Return the least and the most of one or more amounts; None if one is unknown."""
    known: list[Decimal] = []
    for amount in amounts:
        if amount is None:
            return None
        known.append(amount)
    return min(known), max(known)
