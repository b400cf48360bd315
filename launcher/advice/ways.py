"""The ways in which data can arrive, and why one cannot be used for given data. A new way is one row of ways.yaml.

The names in the fields are those of `launcher.advice.constants`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from launcher.advice.facts import Estimate, Inventory, Use
from launcher.console import duration, human_bytes
from launcher.tables import read_table


@dataclass(frozen=True)
class Way:
    """How one way reads data, as physics: latency, streams and bandwidth."""

    name: str
    home: list[str]  # the places that it reads; other data must be copied there first, if `storage_usd` is known
    latency: str = "s3_latency_s"  # per object or piece
    bandwidth: str = "network_bytes_per_s"  # of an instance
    stream_bandwidth: str = "stream_bytes_per_s"
    most: str = ""  # objects per second; empty: no limit
    streams: str = ""  # objects read at a time; empty: those of the training script
    is_ours: bool = False  # only scripts with our readers: large objects are read in pieces at a time, and ahead
    set_up: str = "mount_s"  # seconds before the script starts; empty: nothing is set up
    copies: bool = False  # all data are on the disk before the script starts
    lists_first: bool = False  # all objects are listed before the script starts
    walk: str = ""  # objects per second that the script lists; empty: not noticeable
    is_sequential: bool = False  # one stream from the first object to the last, on every instance
    needs_vpc: bool = False
    storage_usd: str = ""  # per byte and month; empty: data stay in S3
    least_bytes: str = ""  # of the storage that is paid for
    read_usd: str = ""  # per byte read
    index: str = ""  # objects per second that the storage indexes first; empty: a job copies the data there
    is_advised: bool = True  # False: nothing is published about it with SageMaker, so it is only shown
    effort: int = 0  # what it asks of people: 0 for a script that opens files in S3, and nothing else to set up

    @property
    def reads_s3(self) -> bool:
        """Whether it reads S3, or a directory bucket."""
        return self.home[0].startswith("S3")


WAYS: dict[str, Way] = {name: Way(name, **fields) for name, fields in read_table(__file__, "ways").items()}


def is_file_system(place: str) -> bool:
    """Return whether data at a place are on a file system, which the job reaches in its VPC."""
    return place in WAYS and WAYS[place].needs_vpc


def problems_of(found: Estimate, inventory: Inventory, use: Use, known: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for each reason why a way cannot be used; `known` are the constants of the model."""
    way, place = WAYS[found.way], inventory.place
    reads_s3, small = way.reads_s3, inventory.sizes.p50 < known["small_bytes"]
    if place not in way.home and not way.storage_usd:
        yield f"the data are on {place}, and {way.name} reads S3: copy them there first"
    elif place not in way.home and place != "S3":
        yield f"the data are on {place}: copy them to {way.home[0]} first"
    if use.disk_bytes is not None and found.disk_bytes > use.disk_bytes:
        yield f"{human_bytes(found.disk_bytes)} do not fit the disk of {human_bytes(use.disk_bytes)}"
    if way.needs_vpc and use.has_vpc is False:
        yield "the job has no subnets and security groups, which a file system needs (vpc_config)"
    if use.random_access and (way.is_sequential or found.shards):
        yield "samples are read by index, and this way reads in sequence"
    elif use.random_access and reads_s3 and not way.copies and not use.samples and not small:
        yield f"each sample is a request into an object of {human_bytes(inventory.sizes.p50)}"
    if use.edited_in_place and (reads_s3 or found.shards):
        yield "files are edited in place, which S3 and shards do not allow"
    if use.is_built_in and (way.is_ours or (found.shards and found.shards.format not in inventory.formats)):
        yield "a built-in algorithm reads the data, in its own ways and formats"
    cold = known["instance_s"] + known["image_s"]
    if use.start_within_s is not None:
        # No cold job starts faster than its instance and image: then only the data's part is judged, as in a warm pool.
        late = found.start_s if use.start_within_s >= cold else found.download_s
        if late > use.start_within_s:
            yield f"the job starts after {duration(late)}, and {duration(use.start_within_s)} is wanted"
