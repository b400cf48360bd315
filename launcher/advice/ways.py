"""The ways in which data can arrive, and why one cannot be used for given data. A new way is one row of ways.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from launcher.advice.facts import Estimate, Inventory, Use
from launcher.console import duration, human_bytes
from launcher.tables import read_table

CONSTANTS: Mapping[str, float] = {name: row[0] for name, row in read_table(__file__, "constants").items()}


@dataclass(frozen=True)
class Way:
    """How one way reads data, as physics: latency, streams and bandwidth."""

    name: str
    home: list[str]  # the places that it reads; other data must be copied there first, if `usd_month` is known
    stream_bytes_per_s: float  # of one object
    bytes_per_s: float  # of an instance; with `least_bytes`, of 1 TiB of storage
    latency_s: float | None = None  # per object or piece; None: that of S3
    streams: float | None = None  # objects read at a time; None: those of the training script
    objects_per_s: float = inf  # at most
    set_up_s: float = 15  # before the script starts
    piece_bytes: int = 0  # of a request for a part of an object; 0: objects are read whole
    ahead_bytes: int = 0  # that are read ahead in pieces
    copies: bool = False  # all data are on the disk before the script starts
    lists_first: bool = False  # all objects are listed before the script starts, and by the script again
    walk_per_s: float = inf  # objects that the script lists
    is_sequential: bool = False  # one stream from the first object to the last, on every instance
    usd_month: float = 0  # per byte of a file system's storage
    least_bytes: int = 0  # of the storage that is paid for
    read_usd: float = 0  # per byte read
    index_per_s: float = 0  # objects that the storage indexes first; 0: a job copies the data there
    by_index: str = ""  # the key that it needs to read samples by index
    unknown: str = ""  # what estimates cannot know of it, and how to find out
    effort: int = 0  # what it asks of people: 0 for a script that opens files in S3, and nothing else to set up

    @property
    def reads_s3(self) -> bool:
        """Whether it reads S3, or a directory bucket."""
        return self.home[0] == "S3"


WAYS: dict[str, Way] = {name: Way(name, **fields) for name, fields in read_table(__file__, "ways").items()}


def problems_of(found: Estimate, inventory: Inventory, use: Use, constants: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for each reason why a way cannot be used."""
    way, place = WAYS[found.way], inventory.place
    small = inventory.sizes.p50 < constants["small_bytes"]
    if place not in way.home and way.reads_s3:
        yield f"the data are on {place}, and {way.name} reads S3: copy them there first"
    elif place not in way.home and place != "S3":
        yield f"the data are on {place}: copy them to {way.home[0]} first"
    if use.disk_bytes is not None and found.disk_bytes > use.disk_bytes:
        yield f"{human_bytes(found.disk_bytes)} do not fit the disk of {human_bytes(use.disk_bytes)}"
    if not way.reads_s3 and use.has_vpc is False:
        yield "the job has no subnets and security groups, which a file system needs (vpc_config)"
    if use.random_access and (way.is_sequential or found.shards):
        yield "samples are read by index, and this way reads in sequence"
    elif use.random_access and way.reads_s3 and not way.copies and not use.samples and not small:
        yield f"each sample is a request into an object of {human_bytes(inventory.sizes.p50)}"
    if use.edited_in_place and (way.reads_s3 or found.shards):
        yield "files are edited in place, which S3 and shards do not allow"
    if use.is_built_in and (way.piece_bytes or (found.shards and found.shards.format not in inventory.formats)):
        yield "a built-in algorithm reads the data, in its own ways and formats"
    if use.start_within_s is not None:
        # No cold job starts faster than its instance and image: then only the data's part is judged, as in a warm pool.
        late = found.start_s if use.start_within_s >= cold_start_s(constants) else found.download_s
        if late > use.start_within_s:
            yield f"the job starts after {duration(late)}, and {duration(use.start_within_s)} is wanted"


def cold_start_s(constants: Mapping[str, float] = CONSTANTS) -> float:
    """Return the seconds until a script starts on an instance of no warm pool, if its data take less time."""
    return constants["instance_s"] + constants["image_s"]
