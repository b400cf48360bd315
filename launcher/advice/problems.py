"""Why a way cannot be used for given data and use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launcher.advice.facts import Estimate, Inventory, Use
from launcher.advice.ways import WAYS
from launcher.console import duration, human_bytes


def problems_of(found: Estimate, inventory: Inventory, use: Use, known: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for each reason; `known` are the constants of the model."""
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
