"""A recommendation from estimates, in the terms in which people choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from launcher.advice.constants import VALUES
from launcher.advice.facts import Advice, Estimate, Inventory, Use
from launcher.advice.ways import WAYS, is_file_system
from launcher.console import counted, duration, human_bytes

_EQUAL = 1.03  # ways within 3 % of the cheapest are equal, and the simplest is best
_WORTH_MOVING, _WORTH_RESHARDING = 1.1, 1.05  # a new file system has to save a tenth, new shards a twentieth
_EFFORT_OF_SHARDS = 2  # as `Way.effort`
_GOOD_ENOUGH = 1.1  # the present way, if no other saves a tenth
_OFTEN, _NEW = 0.01, 0.9  # share of objects that change in 30 days: edited from here, uploaded from there
_LITTLE_WAIT = 0.05  # of each epoch
_COLD = ("GLACIER", "DEEP_ARCHIVE")
_SIZES = (4e3, 1.1e9)  # within ten times the objects that AWS measured
_MONTHS = 3  # in which `Use.jobs` are counted


def recommend(estimates: Sequence[Estimate], inventory: Inventory, use: Use) -> Advice:
    """Return the way to take.

    The best way is the one with the least cost of a job, in seconds: its time, what was prepared and the storage divided among
    the jobs, and requests. Of ways that cost the same within 3 %, it is the simplest; the present way stays if no other saves a
    tenth, or if the model hardly waits for data.
    """
    advised = [each for each in estimates if WAYS[each.way].is_advised]
    usable = sorted((each for each in advised if not each.problems), key=lambda each: cost_s(each, use))
    ranked = usable or sorted(advised, key=lambda each: (len(each.problems), cost_s(each, use)))
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
    situation = _Situation(best, present, runner_up, tuple(estimates), inventory, use)
    reasons = (
        [] if usable else [f"no way does all that is wanted; {best.name} comes nearest: {'; '.join(best.problems)}"]
    )
    reasons += [sentence for question in _QUESTIONS for sentence in question(situation)]
    unknown = [
        *inventory.unknown,
        *[_SPEED] * (best.wait_share is None),
        *_machine(use),
        *(sentence for is_unknown, sentence in _UNKNOWN if is_unknown(inventory, use)),
    ]
    shown = (*usable, *(each for each in estimates if each not in usable))
    if not inventory.is_complete and not (present and present.problems):
        good = None  # the data that were not listed can change it; a problem of those listed stays one
    return Advice(best, runner_up, good, tuple(reasons), tuple(unknown), shown)


def cost_s(each: Estimate, use: Use) -> float:
    """Return what a job costs in seconds of its instances: time, preparation and storage of its share, and requests."""
    jobs = max(use.jobs or 1, 1)
    usd = (each.requests_usd or 0) + (each.storage_usd_month or 0) * _MONTHS / jobs
    return each.job_s + each.prepare_s / jobs + usd / (use.usd_per_hour or VALUES["usd_per_hour"]) * 3600


def _effort(each: Estimate) -> int:
    return WAYS[each.way].effort + _EFFORT_OF_SHARDS * bool(each.shards)


def _is_good(present: Estimate, least: float, use: Use) -> bool:
    little = (
        present.wait_share is not None and present.wait_share <= _LITTLE_WAIT and present.start_s < 0.1 * present.job_s
    )
    return little or cost_s(present, use) <= _GOOD_ENOUGH * least


@dataclass(frozen=True)
class _Situation:
    """What the questions are about."""

    best: Estimate
    present: Estimate | None
    runner_up: Estimate | None
    estimates: tuple[Estimate, ...]
    inventory: Inventory
    use: Use


def _listed(it: _Situation) -> Iterator[str]:
    """Were all data listed?"""
    if not it.inventory.is_complete:
        yield "this holds for the data that were listed; another way may be best for all of them: pass --full"


def _present(it: _Situation) -> Iterator[str]:
    """Is the present time good enough?"""
    best, present = it.best, it.present
    if present is None:
        return
    waits = (
        ""
        if present.wait_share is None
        else f", of which the model waits {present.wait_share:.0%} of each epoch for data"
    )
    took = f"{present.way} takes about {duration(present.job_s)} a job{waits}"
    if not it.inventory.is_complete and not present.problems:
        yield took
    elif present is best:
        yield f"the present way is good enough: {took}, and no other way saves much"
    elif present.problems:
        yield f"the present way, {present.way}, does not do what is wanted: {'; '.join(present.problems)}"
    else:
        yield f"the present way is not good enough: {took}, and {best.name} {duration(best.job_s)}"


def _time(it: _Situation) -> Iterator[str]:
    """Why is it the best?"""
    best, second = it.best, it.runner_up
    yield f"{best.name}: starts in {duration(best.start_s)}, then {duration(best.epoch_s)} an epoch, {duration(best.job_s)} a job"
    if second is not None and not second.problems:
        compared = _compared(cost_s(second, it.use) / cost_s(best, it.use))
        yield f"{second.name} costs {compared} (time, preparation, storage, requests)"
    if WAYS[best.way].copies:
        image_s = VALUES["image_s"]
        hidden = f" while the image is fetched ({duration(image_s)})" if best.download_s <= image_s else ""
        copied = f"{human_bytes(best.disk_bytes)} are copied in {duration(best.download_s)}{hidden}"
        yield f"{copied}, and every epoch reads the disk"


def _compared(ratio: float) -> str:
    if abs(ratio - 1) < _EQUAL - 1:
        return "as much"
    return f"{ratio:,.0f} times as much" if ratio >= 2 else f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}"


def _reuse(it: _Situation) -> Iterator[str]:
    """Will other jobs read the data again?"""
    best, jobs = it.best, it.use.jobs
    often = f"{counted(jobs, 'job')} read the data in 90 days" if jobs is not None else ""
    if best.storage_usd_month and best.break_even_jobs is not None:
        number = ceil(best.break_even_jobs)
        pays = (
            f"its storage costs ${best.storage_usd_month:,.0f} a month and pays from {counted(number, 'job')} a month"
        )
        yield "; ".join(filter(None, (often, pays)))
    elif best.prepare_s:
        takes = f"preparing takes {duration(best.prepare_s)} once"
        if best.break_even_jobs is not None:
            takes += f" and pays from the {_ordinal(ceil(best.break_even_jobs))} job"
        yield "; ".join(filter(None, (often, takes)))
    elif often:
        yield often


def _ordinal(number: int) -> str:
    if number <= 1:
        return "first"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _objects(it: _Situation) -> Iterator[str]:
    """Are there too many small objects?"""
    best, sizes, count = it.best, it.inventory.sizes, it.inventory.objects
    shards = best.shards or next((each.shards for each in it.estimates if each.shards), None)
    if shards is None:
        if sizes.p50 >= VALUES["small_bytes"]:
            yield f"objects of {human_bytes(sizes.p50)} are large enough to stream"
        return
    into = f"{shards.number:,} {shards.format} shards of {human_bytes(shards.bytes)}"
    of = f"{count:,} objects of {human_bytes(sizes.p50)}"
    if best.shards:
        yield f"{of} cost a request each: reshard them into {into} (`launch reshard`)"
    else:
        found = next((each for each in it.estimates if each.shards and each.way == best.way), None)
        if found and found.problems:
            yield f"{of} cannot be resharded: {found.problems[0]}"
        else:
            yield f"{of}: resharding into {into} would {_saved(it)}"


def _saved(it: _Situation) -> str:
    """Return what shards save in all jobs of 90 days that read the data, and from which job they pay."""
    sharded = [each for each in it.estimates if each.shards and not (each.problems or each.storage_usd_month)]
    jobs, present = max(it.use.jobs or 1, 1), cost_s(it.best, it.use)
    least = min(sharded, key=lambda each: cost_s(each, it.use), default=it.best)
    saved = present - cost_s(least, it.use)
    if saved < 0.005 * present:
        return "not pay for this use"
    number = ceil(least.prepare_s / (saved + least.prepare_s / jobs))
    usd = saved * jobs / 3600 * (it.use.usd_per_hour or VALUES["usd_per_hour"])
    total = f"{saved / present:.0%} (${usd:,.2f} in {counted(jobs, 'job')})"
    return f"save {total} and pay from the {_ordinal(number)} job, as {least.name}"


def _people(it: _Situation) -> Iterator[str]:
    """Are files edited in place, and do people share them?"""
    use, place, changed = it.use, it.inventory.place, it.inventory.changed or 0
    changed = changed if changed < _NEW else 0
    if changed > _OFTEN and it.best.shards:
        yield f"{changed:.0%} of the objects changed in the last 30 days: reshard again after changes"
    elif changed > _OFTEN and use.edited_in_place is None and not is_file_system(place):
        yield f"{changed:.0%} of the objects changed in the last 30 days: if people edit them in place, EFS suits them better"
    if use.edited_in_place:
        yield "files are edited in place, which needs a file system: EFS, or FSx for Lustre if it must be fast"
    if use.shared_by_people:
        shared = "people share the files"
        yield (
            f"{shared} on {place}, where every job sees them"
            if _is_home(it)
            else f"{shared}: tell them where they are from now on"
        )
    elif is_file_system(place) and it.best.way == place:
        yield f"the data are on {place} already, so nothing is copied"


def _is_home(it: _Situation) -> bool:
    """Return whether the best way reads the data where they are."""
    return it.inventory.place in WAYS[it.best.way].home


def _start(it: _Situation) -> Iterator[str]:
    """Must the job start fast?"""
    limit = it.use.start_within_s
    cold = VALUES["instance_s"] + VALUES["image_s"]
    if limit is not None and limit < cold:
        yield (
            f"a cold instance takes about {duration(cold)} whatever the way: to start within {duration(limit)}, keep a warm pool"
            f" (keep_alive_period_in_seconds); the data add {duration(it.best.download_s)}"
        )
    elif limit is not None and not it.best.problems:
        yield f"starts within the {duration(limit)} that are wanted"


def _access(it: _Situation) -> Iterator[str]:
    """Are samples read by index?"""
    if it.use.random_access:
        style = "; S3Connector needs style: map" if it.best.way == "S3Connector" else ""
        yield f"samples are read by index, so ways that read in sequence, and shards, are out{style}"


_QUESTIONS: tuple[Callable[[_Situation], Iterator[str]], ...] = (
    _listed,
    _present,
    _time,
    _objects,
    _reuse,
    _people,
    _start,
    _access,
)


def _machine(use: Use) -> Iterator[str]:
    """Yield what is unknown of the instance, and what the estimates take for it."""
    taken = {
        "disk_bytes": "its disk, taken for large enough",
        "vcpus": f"its vCPUs, taken for {VALUES['streams']:.0f}",
        "memory_bytes": "its memory, taken for too small to cache data",
    }
    if missing := [name for name in taken if getattr(use, name) is None]:
        yield f"what the instance has: {'; '.join(taken[name] for name in missing)}; pass {', '.join(missing)}"


_SPEED = (
    "how fast the model is: the epochs are those of a model that takes no time; run a job and read `launch status`, or pass"
    " samples_per_s"
)
_UNKNOWN: tuple[tuple[Callable[[Inventory, Use], bool], str], ...] = (
    (lambda inventory, use: use.jobs is None, "how many jobs read the data: taken for one; pass jobs"),
    (
        lambda inventory, use: use.random_access is None,
        "whether samples are read by index: taken for in sequence; pass random_access",
    ),
    (
        lambda inventory, use: use.samples is None and inventory.sizes.p50 >= VALUES["small_bytes"],
        "how many samples the data have: taken for one per object; pass samples",
    ),
    (
        lambda inventory, use: not _SIZES[0] <= inventory.sizes.p50 <= _SIZES[1],
        "how objects of this size are read: AWS measured 39 KB and 110 MB, so this is extrapolated; pass --probe",
    ),
    (
        lambda inventory, use: use.instances > 1 or inventory.bytes > 5.4e11,
        "how so many bytes or instances are read: AWS measured 54 GB and one, so this is extrapolated; run `launch measure`",
    ),
    (
        lambda inventory, use: any(name in _COLD for name in inventory.storage_classes),
        "when archived objects (GLACIER, DEEP_ARCHIVE) will be readable: restore them first, no way reads them",
    ),
    (
        lambda inventory, use: inventory.place == "EFS",
        "the throughput mode of the file system: with Bursting, an epoch can take longer; look at BurstCreditBalance",
    ),
)
