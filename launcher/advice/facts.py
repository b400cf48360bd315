"""What advice starts from (a channel's data, its use, what was observed) and what it ends in (estimates, a recommendation).

None means unknown everywhere; the model then takes the ordinary case, and the recommendation says how to find out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Quantiles:
    """Object sizes in bytes."""

    min: int
    p10: int
    p50: int
    p90: int
    max: int


@dataclass(frozen=True)
class Inventory:
    """The data of one channel."""

    objects: int
    bytes: int
    sizes: Quantiles
    formats: Mapping[str, int] = field(default_factory=dict)
    """Objects by content, that of most bytes first: `jpeg`, `tar`, `tfrecord`, ...; of a sample, if `unknown` says so."""
    storage_classes: Mapping[str, int] = field(default_factory=dict)  # objects by class: STANDARD, GLACIER, ...
    place: str = "S3"  # where the data is now: S3Express, or the source of a storage kind
    is_complete: bool = True  # False: the listing ended early, and the numbers are the least there is
    unknown: tuple[str, ...] = ()
    """Facts that could not be found, each a sentence that says how to find out."""


@dataclass(frozen=True)
class Use:
    """How jobs and people use the data. Amounts are those of one instance, except where it says otherwise."""

    epochs: int | None = None
    jobs: int | None = None  # jobs of 90 days that read the data
    instances: int = 1
    sharded: bool = False  # ShardedByS3Key: an instance reads its share of the objects only
    vcpus: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    usd_per_hour: float | None = None  # of all instances together
    streams: int | None = None  # objects that the training script reads at a time; None: one per vCPU
    samples: int | None = None  # in the data; None: one per object
    samples_per_s: float | None = None  # of the model if data cost no time: batch size / step time
    random_access: bool | None = None  # samples are read by index, in any order
    edited_in_place: bool | None = None
    start_within_s: float | None = None  # from the request to the first step
    has_vpc: bool | None = None  # the job has subnets and security groups, as EFS and FSx need
    is_built_in: bool = False  # an algorithm of AWS reads the data, not the user's script
    present: str | None = None  # the way of the spec, out of ways.yaml


# What `--use` states: name and type.
ANSWERS = {each.name: str(each.type) for each in fields(Use) if each.name != "present"}


@dataclass(frozen=True)
class Observed:
    """What `launch measure` saw of these data; each known value replaces the constant."""

    latency_s: float | None = None  # from a request to its first byte
    bytes_per_s: float | None = None  # of all streams together
    streams: int = 0  # requests at a time, for this rate; 0: as many as it takes to reach the store's limit
    samples_per_s: float | None = None  # of the model with data in memory
    source: str = ""  # for people: "measure.json, measured on 2026-11-22"


@dataclass(frozen=True)
class Shards:
    number: int
    bytes: int  # of one
    format: str = "tar"


@dataclass(frozen=True)
class Estimate:
    """What one way would take. Seconds are those of a job on its instances; always an estimate."""

    way: str  # out of ways.yaml
    shards: Shards | None  # None: the data as they are
    download_s: float  # of the data before the script starts: copying, mounting, listing; AWS's stage Downloading
    start_s: float  # from the request to the start of the script, including the image and, for File, the copy
    first_batch_s: float  # from the start of the script
    epoch_s: float  # the mean of all epochs
    job_s: float  # start, first batch and all epochs
    wait_share: float | None  # of an epoch, in which the model waits for data; None if its speed is unknown
    disk_bytes: int  # of one instance
    requests: int  # GET and LIST of the whole job, all instances
    requests_usd: float
    instance_usd: float | None  # of the job
    storage_usd_month: float  # beyond what the data cost where they are now
    prepare_s: float = 0.0  # once, before the first job: resharding, importing metadata
    problems: tuple[str, ...] = ()  # why the way cannot be used for these data: sentences

    @property
    def name(self) -> str:
        """Return `FastFile`, or `FastFile, resharded`."""
        return f"{self.way}, resharded" if self.shards else self.way


@dataclass(frozen=True)
class Advice:
    best: Estimate
    runner_up: Estimate | None
    is_present_good_enough: bool | None  # None if the present way is unknown, or not all data were listed
    reasons: tuple[str, ...]  # the questions that people ask, answered in sentences, the decisive first
    unknown: tuple[str, ...]  # what is not known, and how to find out
    estimates: tuple[Estimate, ...]  # all ways, the usable first, then by time
