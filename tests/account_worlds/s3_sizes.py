"""Data that is too much, too small or divided unevenly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from account_data import CHANNEL, TRAIN, Broken
from aws_stand_in import StandIn


def objects(**members: Any) -> Callable[[Any], object]:
    """Virtual objects, which are listed without being stored."""
    return lambda s3: StandIn(s3.meta.endpoint_url).objects("data", **members)


BROKEN = {
    "many small objects": Broken(
        objects(pattern="train/{:05d}", count=11_000, size=4),
        CHANNEL,
        [("prefix-small-objects", TRAIN)],
        ("11,000 objects, 44.0 kB: 4 bytes each", "about 1 min 25 s in all by estimate"),  # 11,000 / 130
    ),
    "data that is larger than the volume": Broken(
        objects(sizes={"train/1": 60 * 10**9}),
        CHANNEL,
        [("disk-too-small", "resource_config.volume_size_in_gb")],
        ("60.0 GB", "53.7 GB", "request at least 70 GB"),
    ),
    "data that nearly fills the volume": Broken(
        objects(sizes={"train/1": 50 * 10**9}),
        CHANNEL,
        [("disk-nearly-full", "resource_config.volume_size_in_gb")],
        ("little is left",),
    ),
}
