"""The cost of a job that ended: billed seconds, times instances, times the price of an hour.

BillableTimeInSeconds is wall-clock time of one instance. For managed spot training it is less than the training's duration:
the saving is in the seconds, not in the price (DescribeTrainingJob in the service model).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from launcher.cost.estimate import HOUR, MONTH, Cluster, cluster_of
from launcher.cost.money import dollars, rate
from launcher.cost.table import Lookup, instance_price, volume_price


@dataclass(frozen=True)
class JobCost:
    """The estimated cost of a job that ended."""

    usd: Decimal | None  # None if a price is unknown
    text: str
    """One line, as printed after the word `cost`."""

    def as_data(self) -> dict[str, Any]:
        """Return the cost for `--json`."""
        return {"usd": None if self.usd is None else float(self.usd), "is_estimate": True, "text": self.text}


def estimate_of_job(
    description: Mapping[str, Any], region: str | None, lookup: Lookup = instance_price
) -> JobCost | None:
    """Return the cost of a described job; None if AWS reports no billed time, or does not bill by the instance."""
    seconds, resources = description.get("BillableTimeInSeconds"), description.get("ResourceConfig") or {}
    cluster = cluster_of(resources, region, lookup)
    if seconds is None or cluster is None or resources.get("TrainingPlanArn"):
        return None
    per_hour = cluster.per_hour
    if per_hour is None:
        unknown = ", ".join(dict.fromkeys(each.instance_type for each in cluster.instances if each.price is None))
        return JobCost(None, f"unknown, since no price is known for {unknown}; {seconds:,} s were billed per instance")
    kept = (description.get("WarmPoolStatus") or {}).get("ResourceRetainedBillableTimeInSeconds") or 0
    usd = per_hour * (seconds + kept) / HOUR
    stored, volume = Decimal(0), volume_price(region)
    if volume is not None:
        stored = volume.usd * cluster.volume_gb * (seconds + kept) / MONTH
    about = "" if usd + stored < Decimal("0.01") else "about "
    parts = [f"{about}{dollars(usd + stored)}, an estimate: {seconds:,} s billed x {_shown(cluster)}"]
    if kept:
        parts.append(f"{kept:,} s more as a warm pool")
    if stored:
        parts.append(f"{dollars(stored)} for {cluster.volume_gb:,} GB of storage")
    saving = _spot_saving(description)
    if saving:
        parts.append(saving)
    return JobCost(usd + stored, "; ".join(parts))


def _shown(cluster: Cluster) -> str:
    rows = [
        f"{each.count} {each.instance_type} at {rate(each.price.usd)}/h ({each.price})"
        for each in cluster.instances
        if each.price is not None
    ]
    return " + ".join(rows)


def _spot_saving(description: Mapping[str, Any]) -> str:
    """Return the saving by AWS's formula, (1 - BillableTimeInSeconds / TrainingTimeInSeconds) * 100."""
    took = description.get("TrainingTimeInSeconds")
    if not description.get("EnableManagedSpotTraining") or not took:
        return ""
    return f"spot saved {max(0.0, 1 - description['BillableTimeInSeconds'] / took):.0%} of on-demand"
