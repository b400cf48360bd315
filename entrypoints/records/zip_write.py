"""Writing zip shards: members stored as they are, with fixed times and modes, so that the same samples give the same bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from typing import BinaryIO

from entrypoints.sample import KEY, Sample

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest there is


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Writes samples as one archive; how many. Each field becomes the member `<__key__>.<field>`.

    Members are stored and not deflated: images and the like do not get smaller. Raises ValueError for a sample without a
    key, or whose key would not come back (it has a dot in its last part).
    """
    count = 0
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for sample in samples:
            key = sample.get(KEY)
            if not key or "." in key.rpartition("/")[2]:
                raise ValueError(f"sample {count} has __key__ {key!r}: a zip needs one, without a dot in its last part")
            for field, data in sample.items():
                if field != KEY:
                    member = zipfile.ZipInfo(f"{key}.{field}", _TIME)
                    member.external_attr = 0o100644 << 16
                    archive.writestr(member, data)
            count += 1
    return count
