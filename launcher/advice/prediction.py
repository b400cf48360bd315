"""What each way would take for given data and use: seconds, bytes, requests and dollars, always as estimates.

    job = instance + max(image, set-up + copy) + warm-up + walk + epochs x epoch
    epoch = max(first object + compute, data)
    data = max(rounds x latency + bytes / (streams x bandwidth of one), bytes / bandwidth of all, objects / most per second)

Nothing here knows a way by its name: `launcher.advice.ways` says how each reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10

from launcher.advice.facts import Estimate, Inventory, Observed, Quantiles, Shards, Use
from launcher.advice.ways import CONSTANTS, WAYS, Way, problems_of
from sagemaker_channels.formats import FORMATS

# Formats that resharding keeps; others become members of a tar.
_REPACKED = {form.name for form in FORMATS if form.holds and not form.framing} - {"tar"}
_FEW_ROUNDS = 8  # of all streams reading an object each
_FREE = 0.7  # of what streams could reach alone


def predict(
    inventory: Inventory,
    use: Use,
    observed: Observed | None = None,
    constants: Mapping[str, float] = CONSTANTS,
    ways: Mapping[str, Way] = WAYS,
) -> tuple[Estimate, ...]:
    """Return an estimate for each way, and for each way after resharding; the fastest usable first.

    What was `observed` of the data replaces constants. Ways that take equally long, to three digits, are in order of the disk they
    need.
    """
    observed = observed or Observed()
    latency = constants["express_latency_s" if inventory.place == "S3Express" else "s3_latency_s"]
    known = [_corrected(way, latency, observed) for way in ways.values()]
    if observed.samples_per_s:
        use = replace(use, samples_per_s=observed.samples_per_s)
    forms: list[tuple[Inventory, Shards | None]] = [(inventory, None)]
    if shards := _shards(inventory, use, constants):
        sizes, formats = Quantiles(*[inventory.bytes // shards.number] * 5), {shards.format: shards.number}
        forms.append((replace(inventory, objects=shards.number, sizes=sizes, formats=formats), shards))
    reader = next((way for way in known if way.piece_bytes), known[0])  # by which a job reads what it prepares
    found = [
        _Job(way, data, inventory, shards, use, constants, reader).estimate() for data, shards in forms for way in known
    ]
    found = [replace(each, problems=tuple(problems_of(each, inventory, use, constants))) for each in found]
    return tuple(sorted(found, key=lambda each: (bool(each.problems), each.job_s, each.disk_bytes)))


def _corrected(way: Way, latency: float, observed: Observed) -> Way:
    """Return a way that reads S3 with what was observed of the store."""
    if way.latency_s is not None or not way.reads_s3:
        return way
    # A rate that these streams reach without waiting for each other is no limit: more streams would be faster.
    rate, alone = observed.bytes_per_s or inf, (observed.streams or inf) * way.stream_bytes_per_s
    most = min(way.bytes_per_s, rate if rate < _FREE * alone else inf)
    return replace(way, latency_s=observed.latency_s or latency, bytes_per_s=most)


def _shards(inventory: Inventory, use: Use, constants: Mapping[str, float]) -> Shards | None:
    """Return shards for data in small objects: at least one for each stream of all instances; None if they would not be fewer."""
    if inventory.place not in ("S3", "S3Express") or inventory.sizes.p50 >= constants["small_bytes"]:
        return None
    readers, least = use.instances * round(_script_streams(use, constants)), constants["shard_bytes"]
    size = min(max(inventory.bytes / (4 * readers), least), 10 * least)
    number = max(round(inventory.bytes / size), readers)
    usual = next(iter(inventory.formats), "")
    shards = Shards(number, ceil(inventory.bytes / number), usual if usual in _REPACKED else "tar")
    return shards if 2 * number <= inventory.objects else None


def _script_streams(use: Use, constants: Mapping[str, float]) -> float:
    return use.streams or use.vcpus or constants["streams"]


@dataclass(frozen=True)
class _Job:
    """A job that reads data in one way."""

    way: Way
    data: Inventory
    source: Inventory  # the data before resharding
    shards: Shards | None
    use: Use
    constants: Mapping[str, float]
    reader: Way

    def estimate(self) -> Estimate:
        way, data, use, known = self.way, self.data, self.use, self.constants
        samples, epochs = use.samples or self.source.objects, use.epochs or 1
        # The share of an instance, if all instances do not divide the reading by themselves.
        share = use.instances if use.sharded else 1
        copied = data.bytes // share if way.copies else 0
        download, epochs_by = way.set_up_s, way
        if way.copies:
            download += self._read_s(way, data.objects / share, data.bytes / share)
            is_cached = 1.25 * copied < (use.memory_bytes or 0)  # the page cache keeps what File copied
            speed = known["memory_bytes_per_s" if is_cached else "disk_bytes_per_s"]
            epochs_by = Way("disk", [], speed, speed, latency_s=0.0)
        listing = data.objects / known["list_per_s"] * way.lists_first
        download += listing
        start = known["instance_s"] + max(known["image_s"], download)
        begin = known["warm_up_s"] + listing + data.objects / way.walk_per_s
        lists = (way.latency_s or 0) * bool(way.piece_bytes)  # a request before the first object
        fill = lists + self._read_s(epochs_by, 1, min(data.sizes.p50, self.reader.piece_bytes or inf))
        compute = samples / use.instances / use.samples_per_s if use.samples_per_s else 0.0
        # Random reads of large objects count as objects.
        reads = max(samples, data.objects) if use.random_access else data.objects
        readers = share if way.is_sequential else use.instances
        epoch = max(fill + compute, lists + self._read_s(epochs_by, reads / readers, data.bytes / readers))
        job = start + begin + epochs * epoch
        pieces = data.bytes / readers / way.piece_bytes if way.piece_bytes else 0
        gets = data.objects / share if way.copies else max(reads / readers, pieces)
        gets *= use.instances * (1 if way.copies else epochs)
        lists_of_all = data.objects / 1000 * use.instances
        usd = gets * known["get_usd"] + lists_of_all * known["list_usd"]
        moves = not way.reads_s3 and data.place not in way.home  # to a file system, first
        return Estimate(
            way=way.name,
            shards=self.shards,
            download_s=_three_digits(download),
            start_s=_three_digits(start),
            first_batch_s=_three_digits(begin + fill),
            epoch_s=_three_digits(epoch),
            job_s=_three_digits(job),
            wait_share=1 - compute / epoch if compute else None,
            disk_bytes=copied,
            requests=ceil(gets + lists_of_all) if way.reads_s3 else 0,
            requests_usd=usd if way.reads_s3 else data.bytes * epochs * way.read_usd,
            instance_usd=None if use.usd_per_hour is None else use.usd_per_hour * job / 3600,
            storage_usd_month=max(data.bytes, way.least_bytes) * way.usd_month if moves else 0.0,
            prepare_s=_three_digits(self._prepare_s(moves)),
        )

    def _read_s(self, way: Way, number: float, size: float) -> float:
        """Return seconds for reading objects of this size in all."""
        each, streams = size / number, way.streams or _script_streams(self.use, self.constants)
        if way.piece_bytes:
            pieces = max(ceil(each / way.piece_bytes), 1)
            number, each = number * pieces, each / pieces
            streams = min(streams, max(1.0, way.ahead_bytes / max(each, 1)))
        rounds = number / streams
        if not (way.is_sequential or way.copies) and rounds < _FEW_ROUNDS:
            rounds = ceil(rounds)  # the last one leaves streams idle
        bandwidth, stream = self._bandwidth(way), way.stream_bytes_per_s
        seconds = max(rounds, 1) * ((way.latency_s or 0) + each / min(stream, bandwidth))
        return max(seconds, size / bandwidth, number / way.objects_per_s)

    def _bandwidth(self, way: Way) -> float:
        """Return the bytes per second of an instance; those of Lustre grow with the storage that is paid for."""
        return way.bytes_per_s * (max(self.data.bytes, way.least_bytes) / 2**40 if way.least_bytes else 1)

    def _prepare_s(self, moves: bool) -> float:
        """Return seconds of resharding on the job's instances, and of copying into a file system."""
        known, way, seconds, instances = self.constants, self.way, 0.0, self.use.instances
        read = self._read_s(self.reader, self.source.objects / instances, self.source.bytes / instances)
        copy = known["instance_s"] + known["image_s"] + 2 * (self.reader.latency_s or 0) + read
        if self.shards:
            seconds += copy  # a shard is stored while the next one is read
        if moves:
            seconds += self.data.objects / way.index_per_s if way.index_per_s else copy * (not self.shards)
            seconds += self.data.bytes / self._bandwidth(way)
        return seconds


def _three_digits(seconds: float) -> float:
    """Round to three digits: no estimate is better than that."""
    return round(seconds, 2 - floor(log10(seconds))) if seconds > 0 else 0.0
