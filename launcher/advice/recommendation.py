"""A recommendation from estimates, in the terms in which people choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from launcher.advice.facts import Advice, Estimate, Inventory, Use
from launcher.advice.ways import CONSTANTS, WAYS, cold_start_s, is_file_system
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
        *_Reasons(best, present, runner_up, tuple(estimates), inventory, use).all(),
    ]
    if not inventory.is_complete and not (present and present.problems):
        good = None  # the data that were not listed can change it; a problem of those listed stays one
    shown = (*usable, *(each for each in estimates if each not in usable))
    return Advice(best, runner_up, good, tuple(reasons), tuple(_unknown(inventory, use, best)), shown)


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


@dataclass(frozen=True)
class _Reasons:
    """The answers to the questions that people ask, the decisive first."""

    best: Estimate
    present: Estimate | None
    runner_up: Estimate | None
    estimates: tuple[Estimate, ...]
    inventory: Inventory
    use: Use

    def all(self) -> Iterator[str]:
        """Yield a sentence for each answer."""
        use = self.use
        if not self.inventory.is_complete:
            yield "this holds for the data that were listed; another way may be best for all of them: pass --full"
        if self.present:
            yield self._of_present(self.present)
        yield from self._of_time()
        yield from self._of_objects()
        if reuse := "; ".join(filter(None, self._of_reuse())):
            yield reuse
        yield from self._of_people()
        if use.start_within_s is not None and use.start_within_s < cold_start_s():
            yield (
                f"a cold instance takes about {duration(cold_start_s())} whatever the way: to start within"
                f" {duration(use.start_within_s)}, keep a warm pool (keep_alive_period_in_seconds);"
                f" the data add {duration(self.best.download_s)}"
            )
        if use.random_access:
            style = "; S3Connector needs style: map" if self.best.way == "S3Connector" else ""
            yield f"samples are read by index, so ways that read in sequence, and shards, are out{style}"

    def _of_present(self, present: Estimate) -> str:
        """Is the present time good enough?"""
        took = f"{present.way} takes about {duration(present.job_s)} a job"
        if present.wait_share is not None:
            took += f", of which the model waits {present.wait_share:.0%} of each epoch for data"
        if present.problems:
            return f"the present way, {present.way}, does not do what is wanted: {'; '.join(present.problems)}"
        if not self.inventory.is_complete:
            return took
        if present is self.best:
            return f"the present way is good enough: {took}, and no other way saves much"
        return f"the present way is not good enough: {took}, and {self.best.name} {duration(self.best.job_s)}"

    def _of_time(self) -> Iterator[str]:
        """Why is it the best?"""
        best, second = self.best, self.runner_up
        yield (
            f"{best.name}: starts in {duration(best.start_s)}, then {duration(best.epoch_s)} an epoch,"
            f" {duration(best.job_s)} a job"
        )
        if second is not None and not second.problems:
            ratio = cost_s(second, self.use) / cost_s(best, self.use)
            more = (
                f"{ratio:,.0f} times as much"
                if ratio >= 2
                else f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}"
            )
            compared = "as much" if abs(ratio - 1) < _EQUAL - 1 else more
            yield f"{second.name} costs {compared} (time, preparation, storage, requests)"
        if WAYS[best.way].copies:
            image_s = CONSTANTS["image_s"]
            hidden = f" while the image is fetched ({duration(image_s)})" if best.download_s <= image_s else ""
            copied = f"{human_bytes(best.disk_bytes)} are copied in {duration(best.download_s)}{hidden}"
            yield f"{copied}, and every epoch reads the disk"

    def _of_objects(self) -> Iterator[str]:
        """Are there too many small objects?"""
        best, sizes = self.best, self.inventory.sizes
        shards = best.shards or next((each.shards for each in self.estimates if each.shards), None)
        of = f"{self.inventory.objects:,} objects of {human_bytes(sizes.p50)}"
        if shards is None:
            if sizes.p50 >= CONSTANTS["small_bytes"]:
                yield f"objects of {human_bytes(sizes.p50)} are large enough to stream"
            return
        into = f"{shards.number:,} {shards.format} shards of {human_bytes(shards.bytes)}"
        if best.shards:
            yield f"{of} cost a request each: reshard them into {into} (`launch reshard`)"
            return
        same = next((each for each in self.estimates if each.shards and each.way == best.way), None)
        if same and same.problems:
            yield f"{of} cannot be resharded: {same.problems[0]}"
        else:
            yield f"{of}: resharding into {into} would {self._saved()}"

    def _saved(self) -> str:
        """Return what shards save in all jobs of 90 days that read the data, and from which job they pay."""
        use = self.use
        sharded = [each for each in self.estimates if each.shards and not (each.problems or each.storage_usd_month)]
        jobs, present = max(use.jobs or 1, 1), cost_s(self.best, use)
        least = min(sharded, key=lambda each: cost_s(each, use), default=self.best)
        saved = present - cost_s(least, use)
        if saved < 0.005 * present:
            return "not pay for this use"
        number = ceil(least.prepare_s / (saved + least.prepare_s / jobs))
        usd = saved * jobs / 3600 * (use.usd_per_hour or CONSTANTS["usd_per_hour"])
        total = f"{saved / present:.0%} (${usd:,.2f} in {counted(jobs, 'job')})"
        return f"save {total} and pay from job {number:,} on, as {least.name}"

    def _of_reuse(self) -> Iterator[str]:
        """Will other jobs read the data again?"""
        best, even = self.best, self.best.break_even_jobs
        if self.use.jobs is not None:
            yield f"{counted(self.use.jobs, 'job')} read the data in 90 days"
        if best.storage_usd_month and even is not None:
            yield f"its storage costs ${best.storage_usd_month:,.0f} a month and pays from {counted(ceil(even), 'job')} a month"
        elif best.prepare_s:
            pays = f" and pays from job {max(ceil(even), 1):,} on" if even is not None else ""
            yield f"preparing takes {duration(best.prepare_s)} once{pays}"

    def _of_people(self) -> Iterator[str]:
        """Are files edited in place, and do people share them?"""
        use, place, changed = self.use, self.inventory.place, self.inventory.changed or 0
        is_home = place in WAYS[self.best.way].home
        if _OFTEN < changed < _NEW:
            share = f"{changed:.0%} of the objects changed in the last 30 days"
            if self.best.shards:
                yield f"{share}: reshard again after changes"
            elif use.edited_in_place is None and not is_file_system(place):
                yield f"{share}: if people edit them in place, EFS suits them better"
        if use.edited_in_place:
            yield "files are edited in place, which needs a file system: EFS, or FSx for Lustre if it must be fast"
        if use.shared_by_people:
            where = f"on {place}, where every job sees them"
            yield f"people share the files{' ' + where if is_home else ': tell them where they are from now on'}"
        elif is_file_system(place) and is_home:
            yield f"the data are on {place} already, so nothing is copied"


def _unknown(inventory: Inventory, use: Use, best: Estimate) -> Iterator[str]:
    """Yield what is not known of the data and their use, what the estimates take for it, and how to find out."""
    yield from inventory.unknown
    size = inventory.sizes.p50
    machine = {
        "disk_bytes": "its disk, taken for large enough",
        "vcpus": f"its vCPUs, taken for {CONSTANTS['streams']:.0f}",
        "memory_bytes": "its memory, taken for too small to cache data",
    }
    missing = [name for name in machine if getattr(use, name) is None]
    table = (
        (
            best.wait_share is None,
            "how fast the model is: the epochs are those of a model that takes no time; run a job and read `launch status`, or"
            " pass samples_per_s",
        ),
        (missing, f"what the instance has: {'; '.join(machine[name] for name in missing)}; pass {', '.join(missing)}"),
        (use.jobs is None, "how many jobs read the data: taken for one; pass jobs"),
        (use.random_access is None, "whether samples are read by index: taken for in sequence; pass random_access"),
        (
            use.samples is None and size >= CONSTANTS["small_bytes"],
            "how many samples the data have: taken for one per object; pass samples",
        ),
        (
            not _SIZES[0] <= size <= _SIZES[1],
            "how objects of this size are read: AWS measured 39 KB and 110 MB, so this is extrapolated; pass --probe",
        ),
        (
            use.instances > 1 or inventory.bytes > 5.4e11,
            "how so many bytes or instances are read: AWS measured 54 GB and one, so this is extrapolated; run `launch measure`",
        ),
        (
            any(name in _COLD for name in inventory.storage_classes),
            "when archived objects (GLACIER, DEEP_ARCHIVE) will be readable: restore them first, no way reads them",
        ),
        (
            inventory.place == "EFS",
            "the throughput mode of the file system: with Bursting, an epoch can take longer; look at BurstCreditBalance",
        ),
    )
    yield from (sentence for is_unknown, sentence in table if is_unknown)
