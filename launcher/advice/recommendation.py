"""A recommendation from estimates, in the terms in which people choose."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from launcher.advice.facts import Advice, Estimate, Inventory, Use
from launcher.advice.ways import CONSTANTS, WAYS, cold_start_s
from launcher.console import counted, duration, human_bytes

_EQUAL = 1.03  # ways within 3 % of the cheapest are equal, and the simplest is best
_WORTH_MOVING, _WORTH_RESHARDING = 1.1, 1.05  # a new file system has to save a tenth, new shards a twentieth
_EFFORT_OF_SHARDS = 2  # as `Way.effort`
_GOOD_ENOUGH = 1.1  # the present way, if no other saves a tenth
_LITTLE_WAIT = 0.05  # of each epoch
_COLD = ("GLACIER", "DEEP_ARCHIVE")
_MONTHS = 3  # in which `Use.jobs` are counted
_Rows = list[tuple[Any, str]]  # whether a sentence applies, and the sentence


def recommend(estimates: Sequence[Estimate], inventory: Inventory, use: Use) -> Advice:
    """Return the way to take.

    The best way is the one with the least cost of a job, in seconds: its time, what was prepared and the storage divided among
    the jobs, and requests. Of ways that cost the same within 3 %, it is the simplest; the present way stays if no other saves a
    tenth, or if the model hardly waits for data.
    """
    usable = sorted((each for each in estimates if not each.problems), key=lambda each: cost_s(each, use))
    ranked = usable or sorted(estimates, key=lambda each: (len(each.problems), cost_s(each, use)))
    first, least = ranked[0], cost_s(ranked[0], use)
    tolerated = _WORTH_MOVING if first.storage_usd_month else _WORTH_RESHARDING if first.shards else _EQUAL
    equal = [each for each in ranked if cost_s(each, use) <= tolerated * least]
    best = min(equal if usable else ranked[:1], key=lambda each: (_effort(each), cost_s(each, use)))
    present = next((each for each in estimates if each.way == use.present and not each.shards), None)
    good = None if present is None else present in usable and _is_good(present, least, use)
    if present and good:
        best = present
    others = [each for each in ranked if each.way != best.way] or [each for each in ranked if each is not best]
    near = [each for each in others if cost_s(each, use) <= _WORTH_MOVING * cost_s(others[0], use)]
    runner_up = min(near, key=_effort, default=None)
    reasons = [
        *([] if usable else [f"no way does all that is wanted; {best.name} comes nearest: {'; '.join(best.problems)}"]),
        *(sentence for applies, sentence in _reasons(best, present, runner_up, estimates, inventory, use) if applies),
    ]
    if not inventory.is_complete and not (present and present.problems):
        good = None  # the data that were not listed can change it; a problem of those listed stays one
    shown = (*usable, *(each for each in estimates if each not in usable))
    unknown = (*inventory.unknown, *(sentence for applies, sentence in _unknown(inventory, use, best) if applies))
    return Advice(best, runner_up, good, tuple(reasons), unknown, shown)


def cost_s(each: Estimate, use: Use) -> float:
    """Return what a job costs in seconds of its instances: time, preparation and storage of its share, and requests."""
    jobs = max(use.jobs or 1, 1)
    usd = each.requests_usd + each.storage_usd_month * _MONTHS / jobs
    return each.job_s + each.prepare_s / jobs + usd / (use.usd_per_hour or CONSTANTS["usd_per_hour"]) * 3600


def _effort(each: Estimate) -> int:
    return WAYS[each.way].effort + _EFFORT_OF_SHARDS * bool(each.shards)


def _is_good(present: Estimate, least: float, use: Use) -> bool:
    little = (
        present.wait_share is not None and present.wait_share <= _LITTLE_WAIT and present.start_s < 0.1 * present.job_s
    )
    return little or cost_s(present, use) <= _GOOD_ENOUGH * least


def _reasons(
    best: Estimate,
    present: Estimate | None,
    second: Estimate | None,
    estimates: Sequence[Estimate],
    inventory: Inventory,
    use: Use,
) -> _Rows:
    """Return what decides and the table of estimates does not show, the decisive first."""
    cold, within = cold_start_s(), use.start_within_s
    copied = f"{human_bytes(best.disk_bytes)} are copied in {duration(best.download_s)}, and every epoch reads the disk"
    ratio = 1.0 if second is None else cost_s(second, use) / cost_s(best, use)
    times = f"{ratio:,.2f} times " * (round(ratio, 2) != 1)
    compared = f"{second.name if second else ''} costs {times}as much (time, preparation, storage, requests)"
    partial = "this holds for the data that were listed; another way may be best for all of them: pass --full"
    return [
        (not inventory.is_complete, partial),
        (present, (present and _of_present(present, best, inventory)) or ""),
        (second and not second.problems, compared),
        (WAYS[best.way].copies, copied),
        (True, _of_objects(best, estimates, inventory, use)),
        (best.prepare_s, f"preparing takes {duration(best.prepare_s)} once"),
        (use.edited_in_place, "files are edited in place: that needs EFS, or FSx for Lustre if it must be fast"),
        (
            within is not None and within < cold,
            f"a cold instance takes about {duration(cold)} whatever the way: to start within {duration(within or 0)}, keep a"
            f" warm pool (keep_alive_period_in_seconds); the data add {duration(best.download_s)}",
        ),
        (
            use.random_access,
            "samples are read by index, so ways that read in sequence, and shards, are out"
            + f"; {best.way} needs {WAYS[best.way].by_index}" * bool(WAYS[best.way].by_index),
        ),
    ]


def _of_present(present: Estimate, best: Estimate, inventory: Inventory) -> str:
    """Is the present time good enough?"""
    took = f"{present.way} takes about {duration(present.job_s)} a job"
    if present.wait_share is not None:
        took += f", of which the model waits {present.wait_share:.0%} of each epoch for data"
    if present.problems:
        return f"the present way, {present.way}, does not do what is wanted: {'; '.join(present.problems)}"
    if not inventory.is_complete:
        return took
    if present is best:
        return f"the present way is good enough: {took}, and no other way saves much"
    return f"the present way is not good enough: {took}, and {best.name} {duration(best.job_s)}"


def _of_objects(best: Estimate, estimates: Sequence[Estimate], inventory: Inventory, use: Use) -> str:
    """Are there too many small objects?"""
    of = f"{inventory.objects:,} objects of {human_bytes(inventory.sizes.p50)}"
    sharded = [each for each in estimates if each.shards]
    if not sharded:
        return f"{of} need no resharding"
    shards = sharded[0].shards
    into = f"{shards.number:,} {shards.format} shards of {human_bytes(shards.bytes)}" if shards else ""
    if best.shards:
        return f"{of} cost a request each: reshard them into {into} (`launch reshard`)"
    if problems := next((each.problems for each in sharded if each.way == best.way), ()):
        return f"{of} cannot be resharded: {problems[0]}"
    usable = [cost_s(each, use) for each in sharded if not (each.problems or each.storage_usd_month)]
    saved = 1 - min(usable, default=inf) / cost_s(best, use)
    jobs = counted(max(use.jobs or 1, 1), "job")
    gain = f"save {saved:.0%} in {jobs}" if saved > 0.005 else "not pay for this use"
    return f"{of}: resharding into {into} would {gain}"


def _unknown(inventory: Inventory, use: Use, best: Estimate) -> _Rows:
    """Return what is not known of the data and their use, what the estimates take for it, and how to find out."""
    size = inventory.sizes.p50
    taken = {
        "vcpus": f"{CONSTANTS['streams']:.0f} vCPUs",
        "memory_bytes": "no memory to cache data",
        "disk_bytes": "a large disk",
    }
    missing = [name for name in taken if getattr(use, name) is None]
    return [
        (
            best.wait_share is None,
            "how fast the model is: the epochs are those of a model that takes no time; run a job and read `launch status`, or"
            " pass samples_per_s",
        ),
        (
            missing,
            f"what the instance has: taken for {', '.join(taken[name] for name in missing)}; pass {', '.join(missing)}",
        ),
        (use.epochs is None, "how many epochs a job has: taken for one; pass epochs"),
        (use.jobs is None, "how many jobs read the data: taken for one; pass jobs"),
        (use.random_access is None, "whether samples are read by index: taken for in sequence; pass random_access"),
        (
            use.samples is None and size >= CONSTANTS["small_bytes"],
            "how many samples the data have: taken for one per object; pass samples",
        ),
        (
            not 4e3 <= size <= 1.1e9 or use.instances > 1 or inventory.bytes > 5.4e11,
            "how these data are read: AWS measured 39 KB and 110 MB, up to 54 GB, on one instance, and this is extrapolated; run"
            " `launch measure`",
        ),
        (
            any(name in _COLD for name in inventory.storage_classes),
            "when archived objects (GLACIER, DEEP_ARCHIVE) will be readable: restore them first, no way reads them",
        ),
        (WAYS[best.way].unknown, WAYS[best.way].unknown),
    ]
