"""The cost of a job that ended: billed seconds, times instances, times the price of an hour.

BillableTimeInSeconds is wall-clock time of one instance. For managed spot training it is less than the training's duration:
the saving is in the seconds, not in the price (DescribeTrainingJob in the service model).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from launcher.cost.estimate import cluster_of
from launcher.cost.show import dollars, rate
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
    kept = (description.get("WarmPoolStatus") or {}).get("ResourceRetainedBillableTimeInSeconds") or 0
    volume = volume_price(region)
    usd = cluster.altogether(seconds + kept, volume)
    if usd is None:
        unknown = ", ".join(dict.fromkeys(each.instance_type for each in cluster.instances if each.price is None))
        return JobCost(None, f"unknown, since no price is known for {unknown}; {seconds:,} s were billed per instance")
    rows = [
        f"{each.count} {each.instance_type} at {rate(each.price.usd)}/h ({each.price})"
        for each in cluster.instances
        if each.price is not None
    ]
    about = "" if usd < Decimal("0.01") else "about "
    parts = [f"{about}{dollars(usd)}, an estimate: {seconds:,} s billed x {' + '.join(rows)}"]
    if kept:
        parts.append(f"{kept:,} s more as a warm pool")
    if stored := cluster.for_volumes(seconds + kept, volume):
        parts.append(f"{dollars(stored)} for {cluster.volume_gb:,} GB of storage")
    if took := description.get("EnableManagedSpotTraining") and description.get("TrainingTimeInSeconds"):
        # AWS's formula of the saving is (1 - BillableTimeInSeconds / TrainingTimeInSeconds) * 100.
        parts.append(f"spot saved {max(0.0, 1 - seconds / took):.0%} of on-demand")
    return JobCost(usd, "; ".join(parts))
