"""An estimate as lines for people, or as data for `--json`, with the source and date of each price; the cost of an ended job.

BillableTimeInSeconds is wall-clock time of one instance. For managed spot training it is less than the training's duration: the
saving is in the seconds, not in the price (DescribeTrainingJob in the service model).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from launcher.console import duration
from launcher.cost.estimate import LEFT_OUT, Cluster, Estimate, Instances, cluster_of
from launcher.cost.prices import HOME_REGION, Price

_WIDTH = 14  # of the titles


def as_text(found: Estimate, name: str) -> list[str]:
    region = found.region or f"{HOME_REGION} (the spec names no region)"
    title = f"What {name} would cost in {region}: an estimate, not AWS's bill"
    return [title, *(f"  {head:<{_WIDTH}}{text}" for head, text in _rows(found))]


def _rows(found: Estimate) -> Iterator[tuple[str, str]]:
    volume, gigabytes = found.dearest.volume, found.dearest.volume_gb
    for index, cluster in enumerate(found.clusters):
        head = "or" if index else "instances"
        for each in cluster.instances:
            yield head, _what_and_price(each, found.region)
            head = "and"
    if (per_hour := found.usd["per_hour"]) is None:
        yield "per hour", _unknown(found)
    else:
        usd = {what: at_most(each) for what, each in found.usd.items() if each is not None}
        yield "per hour", rate(per_hour)
        longest = duration(found.max_seconds) + (", AWS's default" if found.is_default_time else "")
        yield "training", f"{usd['training']}, for {longest} (max_runtime_in_seconds)"
        if found.keep_alive_seconds:
            kept = duration(found.keep_alive_seconds)
            yield "warm pool", f"{usd['warm_pool']}, for {kept} without another job"
        if gigabytes:
            price = f"{rate(volume.usd)} per GB and month, {_place(volume, found.region)}"
            yield "storage", f"{usd['storage']}, for {gigabytes:,} GB at {price}"
        yield "altogether", usd["altogether"]
        if found.is_spot:
            yield "spot", "at most this; AWS reports the saving when the job has ended"
    prices = [each.price for each in found.instances if each.price is not None] + [volume] * bool(gigabytes)
    sources = [f"{price.url}{f' (read in {price.read_in})' if price.read_in else ''}" for price in prices]
    for head, texts in {"not counted": LEFT_OUT, "source": dict.fromkeys(sources)}.items():
        for text in texts:
            yield head, text
            head = ""


def _unknown(found: Estimate | Cluster) -> str:
    return f"unknown, since no price is known for {', '.join(found.unknown)}"


def machines(found: Estimate) -> str:
    return " or ".join(map(machines_of, found.clusters))


def machines_of(cluster: Cluster) -> str:
    """Return the instances of one cluster: `2 x ml.g5.xlarge`."""
    return " and ".join(f"{each.instance_count} x {each.instance_type}" for each in cluster.instances)


def limit(found: Estimate) -> str:
    return f"{duration(found.max_seconds)}{' (AWS default)' if found.is_default_time else ''}"


def cost_in_one_line(found: Estimate) -> str:
    """Return the highest cost of the job in one line."""
    if (usd := found.usd["altogether"]) is None:
        return _unknown(found)
    elsewhere = "".join(f", at {region}'s prices" for region in found.borrowed_from)
    estimate = f"{at_most(usd)}, an estimate{elsewhere}: {machines(found)} for {limit(found)}"
    return f"{estimate}; `launch cost` shows more"


def as_data(found: Estimate) -> dict[str, Any]:
    """Return the estimate for `--json`; amounts in US dollars, null if a price is unknown."""
    usd = found.usd
    return {
        "is_estimate": True,
        "region": found.region,
        "clusters": [
            {"instances": list(map(asdict, each.instances)), "usd_per_hour": each.usd(0)["per_hour"]}
            for each in found.clusters
        ],
        "volume_price": asdict(found.dearest.volume),
        "max_runtime_in_seconds": found.max_seconds,
        "keep_alive_period_in_seconds": found.keep_alive_seconds,
        "is_spot": found.is_spot,
        "usd_per_hour": usd.pop("per_hour"),
        "usd_at_most": usd,
        "unknown_instance_types": list(found.unknown),
        "left_out": list(LEFT_OUT),
    }


def _what_and_price(each: Instances, region: str | None) -> str:
    what = f"{each.instance_count} x {each.instance_type}"
    if each.price is None:
        return f"{what}: no price is known"
    return f"{what} at {rate(each.price.usd)}/h, {_place(each.price, region)}"


def _place(price: Price, region: str | None) -> str:
    """Return the source of a price, and its region if that is not the job's."""
    other = f"as of {price.region}, since none is known for {region}: " if region and price.region != region else ""
    return f"{other}{price.source} of {price.date}"


def dollars(usd: Decimal, rounding: str = ROUND_HALF_UP) -> str:
    """Return `$1,234.50`; an amount below a cent is `less than $0.01`."""
    if 0 < usd < Decimal("0.01"):
        return "less than $0.01"
    return f"${usd.quantize(Decimal('0.01'), rounding):,}"


def rate(usd: Decimal) -> str:
    """Return a price per hour with all its digits, at least two: `$0.7364`, `$63.296`, `$3.20`."""
    exact = usd.normalize()
    return f"${usd:,.2f}" if -int(exact.as_tuple().exponent) < 2 else f"${exact:,f}"


def at_most(usd: Decimal) -> str:
    """Return `at most $3.00` or `less than $0.01`, rounded up so that it is true."""
    shown = dollars(usd, ROUND_CEILING)
    return shown if shown.startswith("less") else f"at most {shown}"


class JobCost(NamedTuple):
    """The estimated cost of a job, of a running one so far."""

    usd: Decimal | None  # None if a price is unknown
    text: str
    """One line, as printed after the word `cost`."""

    def as_data(self) -> dict[str, Any]:
        return {"usd": None if self.usd is None else float(self.usd), "is_estimate": True, "text": self.text}


def billed_seconds(description: Mapping[str, Any], now: datetime | None = None) -> int | None:
    """Return the seconds that AWS bills per instance, of a running job those until `now`; None if it bills none yet.

    A job is billed from TrainingStartTime to TrainingEndTime (DescribeTrainingJob); BillableTimeInSeconds is there in the end.
    """
    billed, begun = description.get("BillableTimeInSeconds"), description.get("TrainingStartTime")
    if billed is None and now and begun and "TrainingEndTime" not in description:
        billed = max(0, round((now - begun).total_seconds()))
    return billed


def estimate_of_job(description: Mapping[str, Any], region: str | None, now: datetime | None = None) -> JobCost | None:
    """Return the cost of a described job, until `now` if it runs; None if it is not billed yet, or not by the instance."""
    seconds, resources = billed_seconds(description, now), description.get("ResourceConfig") or {}
    cluster = cluster_of(resources, region)
    if seconds is None or cluster is None or resources.get("TrainingPlanArn"):
        return None
    kept = (description.get("WarmPoolStatus") or {}).get("ResourceRetainedBillableTimeInSeconds") or 0
    amounts = cluster.usd(seconds, kept)
    usd, stored = amounts["altogether"], amounts["storage"]
    if usd is None:
        return JobCost(None, f"{_unknown(cluster)}; {seconds:,} s were billed per instance")
    rows = [
        f"{each.instance_count} {each.instance_type} at {rate(each.price.usd)}/h ({each.price})"
        for each in cluster.instances
        if each.price is not None
    ]
    about = "" if usd < Decimal("0.01") else "about "
    so_far = "" if "BillableTimeInSeconds" in description else " so far"
    parts = [f"{about}{dollars(usd)}{so_far}, an estimate: {seconds:,} s billed x {' + '.join(rows)}"]
    parts += [f"{kept:,} s more as a warm pool"] if kept else []
    if stored:
        parts.append(f"{dollars(stored)} for {cluster.volume_gb:,} GB of storage")
    if so_far and description.get("EnableManagedSpotTraining"):
        parts.append("at most, since AWS reports what spot saves at the end")
    return JobCost(usd, "; ".join(parts))
