"""An estimate as lines for people, or as data for `--json`, with the source and date of each price."""

from __future__ import annotations

from typing import Any

from launcher.console import duration
from launcher.cost.estimate import Cluster, Estimate, Instances
from launcher.cost.money import Range, at_most, rate
from launcher.cost.table import HOME_REGION, Price, regions_with

_WIDTH = 14  # of the titles


def as_text(found: Estimate, name: str) -> list[str]:
    """Return the lines of an estimate for the job `name`."""
    region = found.region or f"{HOME_REGION} (the spec names no region)"
    lines = [f"What {name} would cost in {region}: an estimate, not AWS's bill"]
    for index, cluster in enumerate(found.clusters):
        head = "instances" if index == 0 else "or"
        for each in cluster.instances:
            lines.append(_line(head, _shown(each, found.region)))
            head = "and"
    per_hour = found.per_hour
    if per_hour is None:
        return [
            *lines,
            _line("per hour", f"unknown, since no price is known for {', '.join(found.unknown)}"),
            *_end(found),
        ]
    lines.append(_line("per hour", _per_hour(per_hour)))
    longest = duration(found.max_seconds) + (", AWS's default" if found.is_default_time else "")
    lines.append(_line("training", f"{_at(found.most_for_training)}, for {longest} (max_runtime_in_seconds)"))
    if found.keep_alive_seconds:
        kept = duration(found.keep_alive_seconds)
        lines.append(_line("warm pool", f"{_at(found.most_for_keep_alive)}, for {kept} without another job"))
    if found.volume is not None and _has_volumes(found):
        price = f"{rate(found.volume.usd)} per GB and month, {_place(found.volume, found.region)}"
        lines.append(_line("storage", f"{_at(found.most_for_volumes)}, for {_gigabytes(found)} GB at {price}"))
    lines.append(_line("altogether", _at(found.maximum)))
    if found.is_spot:
        lines.append(_line("spot", "at most this; AWS reports the saving when the job has ended"))
    return [*lines, *_end(found)]


def machines(found: Estimate) -> str:
    """Return the job's instances: `2 x ml.g5.xlarge`."""
    return " or ".join(
        " and ".join(f"{each.count} x {each.instance_type}" for each in cluster.instances) for cluster in found.clusters
    )


def limit(found: Estimate) -> str:
    """Return how long the job can run."""
    return f"{duration(found.max_seconds)}{' (AWS default)' if found.is_default_time else ''}"


def in_short(found: Estimate) -> str:
    """Return the highest cost of the job in one line."""
    if found.maximum is None:
        return f"unknown, since no price is known for {', '.join(found.unknown)}"
    elsewhere = "".join(f", at {region}'s prices" for region in found.borrowed_from)
    return (
        f"{at_most(found.maximum)}, an estimate{elsewhere}: {machines(found)} for {limit(found)};"
        " `launch cost` shows more"
    )


def as_data(found: Estimate) -> dict[str, Any]:
    """Return the estimate for `--json`; amounts in US dollars, null if a price is unknown."""
    return {
        "is_estimate": True,
        "region": found.region,
        "clusters": [_cluster_data(cluster) for cluster in found.clusters],
        "volume_price": found.volume.as_data() if found.volume else None,
        "max_runtime_in_seconds": found.max_seconds,
        "keep_alive_period_in_seconds": found.keep_alive_seconds,
        "is_spot": found.is_spot,
        "usd_per_hour": _range_data(found.per_hour),
        "usd_at_most": {
            "training": _range_data(found.most_for_training),
            "warm_pool": _range_data(found.most_for_keep_alive),
            "storage": _range_data(found.most_for_volumes),
            "altogether": _range_data(found.maximum),
        },
        "unknown_instance_types": list(found.unknown),
        "left_out": list(found.left_out),
    }


def _shown(each: Instances, region: str | None) -> str:
    what = f"{each.count} x {each.instance_type}"
    if each.price is not None:
        return f"{what} at {rate(each.price.usd)}/h, {_place(each.price, region)}"
    elsewhere = regions_with(each.instance_type)
    known = f"; the table has one for {', '.join(elsewhere)} only" if elsewhere else ""
    return f"{what}: no price is known{known}"


def _place(price: Price, region: str | None) -> str:
    """Return the source of a price, and its region if that is not the job's."""
    other = f"as of {price.region}, since none is known for {region}: " if region and price.region != region else ""
    return f"{other}{price.source} of {price.date}"


def _end(found: Estimate) -> list[str]:
    lines = [_line("not counted" if index == 0 else "", what) for index, what in enumerate(found.left_out)]
    prices = [each.price for cluster in found.clusters for each in cluster.instances if each.price is not None]
    if found.volume is not None and _has_volumes(found):
        prices.append(found.volume)
    sources = [_source(price) for price in prices]
    return [*lines, *(_line("source" if i == 0 else "", source) for i, source in enumerate(dict.fromkeys(sources)))]


def _has_volumes(found: Estimate) -> bool:
    return any(cluster.volume_gb for cluster in found.clusters)


def _source(price: Price) -> str:
    return f"{price.url}{f' (read in {price.read_in})' if price.read_in else ''}"


def _line(head: str, text: str) -> str:
    return f"  {head:<{_WIDTH}}{text}"


def _per_hour(amounts: Range) -> str:
    low, high = map(rate, amounts)
    return low if low == high else f"{low} to {high}"


def _at(amounts: Range | None) -> str:
    return "unknown" if amounts is None else at_most(amounts)


def _gigabytes(found: Estimate) -> str:
    amounts = [cluster.volume_gb for cluster in found.clusters]
    low, high = min(amounts), max(amounts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _cluster_data(cluster: Cluster) -> dict[str, Any]:
    rows = [
        {
            "instance_type": each.instance_type,
            "instance_count": each.count,
            "volume_size_in_gb": each.volume_gb,
            "price": each.price.as_data() if each.price else None,
        }
        for each in cluster.instances
    ]
    return {"instances": rows, "usd_per_hour": None if cluster.per_hour is None else float(cluster.per_hour)}


def _range_data(amounts: Range | None) -> dict[str, float] | None:
    return None if amounts is None else {"least": float(amounts[0]), "most": float(amounts[1])}
