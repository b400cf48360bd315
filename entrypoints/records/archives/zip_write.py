"""Writing zip shards: members stored as they are, with fixed times and modes, so that the same samples give the same bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from typing import BinaryIO

from entrypoints.records.archives.members import members_of
from entrypoints.records.archives.zip_members import NO_DATA
from entrypoints.records.refusing import refusal
from entrypoints.sample import KEY, Sample

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest there is
_MAX_NAME = 0xFFFF  # bytes


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Writes samples as one archive; how many. Each field becomes the member `<__key__>.<field>`.

    Members are stored and not deflated: images and the like do not get smaller. Raises SampleError, a ValueError, for a
    sample that would not come back as it is: see `members.py`; or whose key an earlier one of the archive has.
    """
    keys: set[str] = set()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for count, sample in enumerate(samples):
            members = [*members_of(count, sample)]
            key = sample[KEY]
            if key in keys:
                raise refusal(
                    count,
                    sample,
                    "an earlier sample has this __key__, and both would be read as one; give each its own",
                )
            keys.add(key)
            if key.startswith(NO_DATA):
                raise refusal(
                    count, sample, f"what lies below {NO_DATA} is passed over in a zip; give it another __key__"
                )
            for name, data in members:
                archive.writestr(_member(count, sample, name), data)
    return len(keys)


def _member(number: int, sample: Sample, name: str) -> zipfile.ZipInfo:
    """A member's header. Raises SampleError for a name that a zip cannot hold."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise refusal(number, sample, f"{name!r} cannot be a name in a zip: {error}") from error
    if size > _MAX_NAME:
        raise refusal(number, sample, f"its files' names have {size} bytes, and a zip holds {_MAX_NAME}")
    member = zipfile.ZipInfo(name, _TIME)
    member.external_attr = 0o100644 << 16
    return member
