"""What each way would take for given data and use: seconds, bytes, requests and dollars, always as estimates.

    job = instance + max(image, set-up + copy) + warm-up + walk + epochs x epoch
    epoch = max(first object + compute, data)
    data = max(rounds x latency + bytes / (streams x bandwidth of one), bytes / bandwidth of all, requests / most per second)

Nothing here knows a way by its name: `launcher.advice.ways` says how each reads, `launcher.advice.constants` how fast.
Ten constants were derived from AWS's benchmark: the time of instance, image, warm-up and mounting, two speeds of listing, the
latency of small objects, and how File copies and reads its disk. All others, and the form of the model, are independent of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10

from launcher.advice.constants import VALUES
from launcher.advice.facts import Estimate, Inventory, Observed, Quantiles, Shards, Use
from launcher.advice.ways import WAYS, Way, problems_of

Constants = Mapping[str, float]
_REPACKED = ("recordio", "tfrecord", "zip", "parquet")  # formats that resharding keeps; others become members of a tar
_FEW_ROUNDS = 8  # of all streams reading an object each
_FREE = 0.7  # of what streams could reach alone


def predict(
    inventory: Inventory, use: Use, observed: Observed | None = None, constants: Constants = VALUES
) -> tuple[Estimate, ...]:
    """Return an estimate for each way, and for each way after resharding; the fastest usable first.

    What was `observed` of the data replaces constants. A constant such as `File/copy_bytes_per_s` holds for one way only. Ways
    that take equally long, to three digits, are in order of the disk they need.
    """
    known = _corrected(constants, inventory, observed or Observed())
    if observed and observed.samples_per_s:
        use = replace(use, samples_per_s=observed.samples_per_s)
    forms: list[tuple[Inventory, Shards | None]] = [(inventory, None)]
    if shards := _shards(inventory, use, known):
        resharded = replace(
            inventory,
            objects=shards.number,
            sizes=Quantiles(*[inventory.bytes // shards.number] * 5),
            formats={shards.format: shards.number},
        )
        forms.append((resharded, shards))
    samples = use.samples or inventory.objects
    found = [
        _Job(way, data, inventory, shards, use, samples, _of_way(known, way)).estimate()
        for data, shards in forms
        for way in WAYS.values()
        if way.home != [inventory.place] or not way.reads_s3  # there it is FastFile
    ]
    found = [replace(each, problems=tuple(problems_of(each, inventory, use, known))) for each in found]
    found = _with_break_even(found, use, known)
    return tuple(sorted(found, key=lambda each: (bool(each.problems), each.job_s, each.disk_bytes)))


def _corrected(constants: Constants, inventory: Inventory, observed: Observed) -> Constants:
    """Return the constants with what was observed, and those of S3 Express if the data are there."""
    known = _express(constants) if inventory.place == "S3Express" else dict(constants)
    streams = observed.streams or inf
    seen = {"s3_latency_s": observed.latency_s, "stream_bytes_per_s": observed.stream_bytes_per_s}
    known |= {name: value for name, value in seen.items() if value}
    limits = {
        "network_bytes_per_s": (observed.bytes_per_s, streams * known["stream_bytes_per_s"]),
        "requests_per_s": (observed.requests_per_s, streams / known["s3_latency_s"]),
    }
    # A rate that these streams reach without waiting for each other is no limit: more streams would be faster.
    known |= {name: rate for name, (rate, free) in limits.items() if rate and rate < _FREE * free}
    for name, most in (
        ("copy_bytes", "network_bytes"),
        ("reader_bytes", "network_bytes"),
        ("reader_objects", "requests"),
    ):
        known[f"{name}_per_s"] = min(known[f"{name}_per_s"], known[f"{most}_per_s"])
    return known


def _express(known: Constants) -> dict[str, float]:
    names = ("latency_s", "get_usd", "list_usd", "read_usd")
    return {**known, **{f"s3_{name}": known[f"express_{name}"] for name in names}}


def _of_way(known: Constants, way: Way) -> Constants:
    own = {name.removeprefix(f"{way.name}/"): value for name, value in known.items() if name.startswith(f"{way.name}/")}
    return {**(_express(known) if way.home == ["S3Express"] else known), **own}


def _shards(inventory: Inventory, use: Use, known: Constants) -> Shards | None:
    """Return shards for data in small objects: at least one for each stream of all instances; None if they would not be fewer."""
    if inventory.place not in ("S3", "S3Express") or inventory.sizes.p50 >= known["small_bytes"]:
        return None
    readers = use.instances * round(_script_streams(use, known))
    size = min(max(inventory.bytes / (4 * readers), known["shard_least_bytes"]), known["shard_most_bytes"])
    number = max(round(inventory.bytes / size), readers)
    usual = max(inventory.formats, key=inventory.formats.__getitem__, default="")
    shards = Shards(number, ceil(inventory.bytes / number), usual if usual in _REPACKED else "tar")
    return shards if 2 * number <= inventory.objects else None


def _script_streams(use: Use, known: Constants) -> float:
    return use.streams or use.vcpus or known["streams"]


@dataclass(frozen=True)
class _Job:
    """A job that reads data in one way."""

    way: Way
    data: Inventory
    source: Inventory  # the data before resharding
    shards: Shards | None
    use: Use
    samples: int
    known: Constants

    def estimate(self) -> Estimate:
        """Return the estimate of this job."""
        known, use, data = self.known, self.use, self.data
        download = self._copy_s() if self.way.copies else data.objects / known["list_per_s"] * self.way.lists_first
        download += known[self.way.set_up] if self.way.set_up else 0.0
        start = known["instance_s"] + max(known["image_s"], download)
        begin = known["warm_up_s"] + (data.objects / known[self.way.walk] if self.way.walk else 0.0)
        lists = known[self.way.latency] * self.way.is_ours  # a request before the first object
        fill = lists + self._read_s(1, min(data.sizes.p50, known["reader_piece_bytes"]))
        compute = self.samples / use.instances / use.samples_per_s if use.samples_per_s else 0.0
        epoch = max(fill + compute, lists + self._read_s(*self._amount()))
        job = start + begin + use.epochs * epoch
        requests = self._requests()
        return Estimate(
            way=self.way.name,
            shards=self.shards,
            download_s=_three_digits(download),
            start_s=_three_digits(start),
            first_batch_s=_three_digits(begin + fill),
            epoch_s=_three_digits(epoch),
            job_s=_three_digits(job),
            wait_share=1 - compute / epoch if compute else None,
            disk_bytes=self._copied_bytes() if self.way.copies else 0,
            memory_bytes=int(known["reader_ahead_bytes"]) if self.way.is_ours else 0,
            requests=requests,
            requests_usd=self._requests_usd(requests),
            instance_usd=None if use.usd_per_hour is None else use.usd_per_hour * job / 3600,
            storage_usd_month=self._storage_usd(),
            prepare_s=_three_digits(self._prepare_s()),
        )

    def _is_cached(self) -> bool:
        """Whether the page cache keeps what File copied."""
        return self.way.copies and 1.25 * self._copied_bytes() < (self.use.memory_bytes or 0)

    def _copied_bytes(self) -> int:
        return self.data.bytes // (self.use.instances if self.use.sharded else 1)

    def _copy_s(self) -> float:
        """Return seconds in which File copies the objects of an instance."""
        share = self.use.instances if self.use.sharded else 1
        known = self.known
        number, size = self.data.objects / share, self.data.bytes / share
        waits = number * known["s3_latency_s"] / min(known["copy_streams"], number)
        return max(waits, size / known["copy_bytes_per_s"], number / known["requests_per_s"])

    def _amount(self) -> tuple[float, float]:
        """Return the objects and bytes that an instance reads in an epoch; random reads of large objects count as objects."""
        share = 1 if self.way.is_sequential and not self.use.sharded else self.use.instances
        reads = max(self.samples, self.data.objects) if self.use.random_access else self.data.objects
        return reads / share, self.data.bytes / share

    def _read_s(self, number: float, size: float) -> float:
        """Return seconds for reading objects of this size in all."""
        known, way = self.known, self.way
        each = size / number
        streams = known[way.streams] if way.streams else _script_streams(self.use, known)
        if way.is_ours:
            number = number * max(ceil(each / known["reader_piece_bytes"]), 1)
            each = size / number
            streams = min(streams, max(1.0, known["reader_ahead_bytes"] / max(each, 1)))
        rounds = number / streams
        if not way.is_sequential and rounds < _FEW_ROUNDS:
            rounds = ceil(rounds)  # the last one leaves streams idle
        bandwidth, stream = known[way.bandwidth], known[way.stream_bandwidth]
        if self._is_cached():
            bandwidth = stream = known["memory_bytes_per_s"]
        if way.least_bytes:  # bandwidth grows with the storage that is paid for
            bandwidth *= max(self.data.bytes, known[way.least_bytes]) / 2**40
        seconds = max(rounds, 1) * (known[way.latency] + each / min(stream, bandwidth))
        limit = number / known[way.most] if way.most else 0.0
        return max(seconds, size / bandwidth, limit)

    def _requests(self) -> int:
        """Return GET and LIST requests of the whole job."""
        if not self.way.reads_s3:
            return 0
        number, size = self._amount()
        if self.way.is_ours:
            number = max(number, size / self.known["reader_piece_bytes"])
        if self.way.copies:
            number = self.data.objects / (self.use.instances if self.use.sharded else 1)
        rounds = 1 if self.way.copies else self.use.epochs
        return ceil((number * rounds + self.data.objects / 1000) * self.use.instances)

    def _requests_usd(self, requests: int) -> float | None:
        known, data, use = self.known, self.data, self.use
        read = data.bytes * use.epochs
        if not self.way.reads_s3:
            return read * known[self.way.read_usd] if self.way.read_usd else 0.0
        lists = data.objects / 1000 * use.instances
        usd = (requests - lists) * known["s3_get_usd"] + lists * known["s3_list_usd"]
        return usd + read * known["s3_read_usd"]

    def _moves(self) -> bool:
        """Whether the data must be brought to a file system first."""
        return self.data.place not in self.way.home and bool(self.way.storage_usd)

    def _storage_usd(self) -> float | None:
        if not self._moves():
            return 0.0
        least = self.known[self.way.least_bytes] if self.way.least_bytes else 0
        return max(self.data.bytes, least) * self.known[self.way.storage_usd]

    def _prepare_s(self) -> float:
        """Return seconds of resharding on the job's instances, and of copying into a file system."""
        known, way, seconds = self.known, self.way, 0.0
        reader = replace(self, way=WAYS["S3Connector"], data=self.source)
        number, size = self.source.objects / self.use.instances, self.source.bytes / self.use.instances
        first = 2 * known["s3_latency_s"]  # a listing and an object
        copy = known["instance_s"] + known["image_s"] + first + reader._read_s(number, size)
        if self.shards:
            seconds += copy + size / known["network_bytes_per_s"]
        if self._moves():
            seconds += self.data.objects / known[way.index] if way.index else copy * (not self.shards)
            seconds += self.data.bytes / known[way.bandwidth]
        return seconds


def _with_break_even(found: list[Estimate], use: Use, known: Constants) -> list[Estimate]:
    """Return the estimates with the number of jobs from which each pays, against the best that costs nothing beforehand."""
    free = [each for each in found if not (each.problems or each.prepare_s or WAYS[each.way].effort)]
    if not free:
        return found
    best = min(free, key=lambda each: each.job_s)
    return [replace(each, break_even_jobs=_break_even(each, best, use, known)) for each in found]


def _break_even(each: Estimate, best: Estimate, use: Use, known: Constants) -> float | None:
    if not each.prepare_s and not each.storage_usd_month:
        return 0.0
    saved = best.job_s - each.job_s
    if not each.storage_usd_month:
        return each.prepare_s / saved if saved > 0 else None
    usd = saved / 3600 * (use.usd_per_hour or known["usd_per_hour"])
    usd += (best.requests_usd or 0) - (each.requests_usd or 0)
    return each.storage_usd_month / usd if usd > 0 else None


def _three_digits(seconds: float) -> float:
    """Round to three digits: no estimate is better than that."""
    return round(seconds, 2 - floor(log10(seconds))) if seconds > 0 else 0.0
