"""Advice as text, and as data for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from launcher.advice.facts import Advice, Estimate, Inventory
from launcher.console import counted, duration, human_bytes

_TITLES = ("way", "start", "first batch", "epoch", "waits", "whole job", "disk", "requests", "job", "a month")


def advice_as_text(advice: Advice, command: str | None) -> Iterator[str]:
    """Yield the lines of a table of the ways, the recommendation with its reasons and first command, and what is unknown."""
    shown = [each for each in advice.estimates if not each.problems]
    rows = [_TITLES, *map(_row, shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield "by estimate (waits: part of an epoch in which the model waits; a month: storage):"
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield f"  {row[0]:<{widths[0]}}  {'  '.join(cells)}"
    for problems in dict.fromkeys(each.problems for each in advice.estimates if each.problems):
        names = ", ".join(each.name.replace(",", "") for each in advice.estimates if each.problems == problems)
        yield f"  not {names}: {'; '.join(problems)}"
    yield f"advice: {described(advice.best)}"
    yield from [f"  first: {command}"] if command else []
    yield from (f"  {each}" for each in advice.reasons)
    if advice.runner_up is not None:
        yield f"runner-up: {described(advice.runner_up)}"
    if advice.unknown:
        yield "unknown (--use NAME=VALUE states what you know):"
    yield from (f"  {each}" for each in advice.unknown)


def described(found: Estimate) -> str:
    """Return a way in words: `FastFile, after resharding into 540 tar shards of 100.0 MB`."""
    if found.shards is None:
        return found.way
    number = counted(found.shards.number, f"{found.shards.format} shard")
    return f"{found.way}, after resharding into {number} of {human_bytes(found.shards.bytes)}"


def _row(found: Estimate) -> tuple[str, ...]:
    start, first, epoch, job = map(duration, (found.start_s, found.first_batch_s, found.epoch_s, found.job_s))
    waits = "?" if found.wait_share is None else f"{found.wait_share:.0%}"
    disk = human_bytes(found.disk_bytes) if found.disk_bytes else "-"
    usd = "?" if found.instance_usd is None else f"${found.instance_usd + found.requests_usd:,.2f}"
    month = f"${found.storage_usd_month:,.2f}" if found.storage_usd_month else "-"
    return (found.name, start, first, epoch, waits, job, disk, f"{found.requests:,}", usd, month)


def inventory_as_text(inventory: Inventory) -> Iterator[str]:
    """Yield what is there: amount, formats, sizes and place."""
    sizes, least = inventory.sizes, "" if inventory.is_complete else "at least "
    objects = f"{least}{counted(inventory.objects, 'object')}, {least}{human_bytes(inventory.bytes)}"
    formats = ", ".join(inventory.formats) or "of an unknown format"
    yield f"there: {objects}, {formats}"
    is_one = sizes.min == sizes.max
    spread = f"from {human_bytes(sizes.min)} to {human_bytes(sizes.max)}, half of them up to {human_bytes(sizes.p50)}"
    yield f"  size: {human_bytes(sizes.p50)}" if is_one else f"  sizes: {spread}"
    classes = ", ".join(f"{name} {count:,}" for name, count in inventory.storage_classes.items())
    yield f"  stored: {inventory.place}{f' ({classes})' if classes else ''}"


def advice_as_data(advice: Advice) -> dict[str, Any]:
    named = {each: {"name": each.name, **asdict(each)} for each in advice.estimates}
    runner_up = None if advice.runner_up is None else named[advice.runner_up]
    return {**asdict(advice), "best": named[advice.best], "runner_up": runner_up, "estimates": [*named.values()]}
