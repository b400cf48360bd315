"""The cost of a CreateTrainingJob request per hour, and at most.

The duration of a training is unknown beforehand, but the request bounds it: MaxRuntimeInSeconds for all attempts together
(StoppingCondition in the service model), then KeepAlivePeriodInSeconds, in which a warm pool costs as much as training.
Managed spot training costs at most that; AWS reports the saving only afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from launcher.cost.prices import Lookup, Price, instance_price, volume_price
from launcher.request.instance_types import instance_type as facts_of
from launcher.request.view import RULE_LISTS, machine_sets

_ONE_DAY = 86_400  # StoppingCondition.MaxRuntimeInSeconds: "The default value is 1 day"
_HOUR = 3600
# As in EBS's own example of a volume that exists for a part of a month (https://aws.amazon.com/ebs/pricing/).
_MONTH = 30 * _ONE_DAY
LEFT_OUT = (  # what no estimate counts
    "the upload of the model after the time limit",
    "S3 storage and requests, file systems, data transfer, KMS, logs and metrics",
    "taxes, credits, training plans, savings plans and prices negotiated with AWS",
)


@dataclass(frozen=True)
class Instances:
    """Equal instances of a cluster; the names are those of `--json`."""

    instance_type: str
    instance_count: int
    volume_size_in_gb: int  # billed per instance: 0 for types with their own disks
    price: Price | None


@dataclass(frozen=True)
class Cluster:
    instances: tuple[Instances, ...]
    volume: Price  # per GB and month

    @property
    def volume_gb(self) -> int:
        return sum(each.instance_count * each.volume_size_in_gb for each in self.instances)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The types whose price is unknown."""
        return tuple(dict.fromkeys(each.instance_type for each in self.instances if each.price is None))

    def usd(self, seconds: int, kept_seconds: int = 0) -> dict[str, Decimal | None]:
        """Return what a job of this length costs, in dollars; each amount is None if a price is unknown.

        `per_hour`, `training` and `warm_pool`, in which the instances are kept after the job, are for the instances, `storage` is
        for their volumes over the whole time.
        """
        prices = [each.price.usd * each.instance_count for each in self.instances if each.price is not None]
        per_hour, whole = sum(prices, Decimal(0)), seconds + kept_seconds
        storage = self.volume.usd * self.volume_gb * whole / _MONTH
        amounts: dict[str, Decimal | None] = {
            "per_hour": per_hour,
            "training": per_hour * seconds / _HOUR,
            "warm_pool": per_hour * kept_seconds / _HOUR,
            "storage": storage,
            "altogether": per_hour * whole / _HOUR + storage,
        }
        return dict.fromkeys(amounts) if self.unknown else amounts


@dataclass(frozen=True)
class Estimate:
    region: str | None
    clusters: tuple[Cluster, ...]  # of which AWS chooses one
    dearest: Cluster
    max_seconds: int
    keep_alive_seconds: int
    is_default_time: bool  # whether max_seconds is AWS's default
    is_spot: bool

    @property
    def usd(self) -> dict[str, Decimal | None]:
        """The highest amounts; each is None if the price of any cluster is unknown."""
        return self.dearest.usd(self.max_seconds, self.keep_alive_seconds)

    @property
    def instances(self) -> tuple[Instances, ...]:
        return tuple(each for cluster in self.clusters for each in cluster.instances)

    @property
    def borrowed_from(self) -> tuple[str, ...]:
        """The other regions whose prices are used because those of the job's region are unknown."""
        prices = [each.price for each in self.instances if each.price is not None]
        return tuple(sorted({price.region for price in prices} - {self.region})) if self.region else ()

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for cluster in self.clusters for name in cluster.unknown))


def estimate(request: Mapping[str, Any], region: str | None, lookup: Lookup = instance_price) -> Estimate | None:
    """Estimate the cost of a CreateTrainingJob request in a region, by default us-east-1.

    Returns None if the job is not billed by the instance hour, for a reason that `why_not` returns.
    """
    if why_not(request) is not None:
        return None
    resources = request.get("ResourceConfig", {})
    limit = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    seconds, kept = _ONE_DAY if limit is None else limit, resources.get("KeepAlivePeriodInSeconds") or 0
    # Rules that name an instance type run there as long as the job at most; built-in ones cost nothing (developer guide).
    rules = [rule for member in RULE_LISTS for rule in request.get(member, ()) if rule.get("InstanceType")]
    clusters = tuple(_cluster([*parts, *rules], resources, region, lookup) for parts in _choices(resources))
    return Estimate(
        region=region,
        clusters=clusters,
        # A cluster with an unknown price may be the dearest.
        dearest=max(clusters, key=lambda cluster: cluster.usd(seconds, kept)["altogether"] or Decimal("Infinity")),
        max_seconds=seconds,
        keep_alive_seconds=kept,
        is_default_time=limit is None,
        is_spot=bool(request.get("EnableManagedSpotTraining")),
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
    return [[machine for _, machine in each] for each in machine_sets(resources)]


def _cluster(
    parts: list[Mapping[str, Any]], resources: Mapping[str, Any], region: str | None, lookup: Lookup
) -> Cluster:
    """Return the cluster with its prices; storage that is a part of the instance is not billed."""
    instances = []
    for part in parts:
        if name := part.get("InstanceType"):
            size = 0 if facts_of(name).storage == "NVMe" else resources.get("VolumeSizeInGB") or 0
            instances.append(Instances(name, part.get("InstanceCount") or 1, size, lookup(name, region)))
    return Cluster(tuple(instances), volume_price(region))


def cluster_of(resources: Mapping[str, Any], region: str | None) -> Cluster | None:
    """Return the cluster of an existing job; None if it has none, or AWS has not chosen one yet."""
    choices = _choices(resources)
    if len(choices) != 1 or not all(part.get("InstanceType") for part in choices[0]):
        return None
    return _cluster(choices[0], resources, region, instance_price)
