"""The writer of zip shards: members are stored, with fixed times and modes, so that the same samples become the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

from sagemaker_channels.records.archives.members import MACOS_FOLDER, members_of
from sagemaker_channels.records.writing import write_each
from sagemaker_channels.sample import KEY, Sample

if TYPE_CHECKING:
    import zipfile  # imported where it is used: only writers need it

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that zip can express
_MAX_NAME = 0xFFFF  # bytes


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples as one archive, each field as the stored member `<__key__>.<field>`, and return their number.

    Raises:
        SampleError: A sample would not be read back the same (see `members.py`), or has the key of an earlier one.
    """
    import zipfile

    keys: set[str] = set()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:

        def add(sample: Sample) -> tuple[()]:
            members, key = members_of(sample), sample[KEY]
            if key in keys:
                raise ValueError("an earlier sample has this __key__, and both would be read as one; give each its own")
            keys.add(key)
            if key.startswith(MACOS_FOLDER):
                raise ValueError(f"members in {MACOS_FOLDER} are skipped when a zip is read; choose another __key__")
            for name, data in members:
                archive.writestr(_header(name), data)
            return ()

        return write_each(add, stream, samples)


def _header(name: str) -> zipfile.ZipInfo:
    """Return a member's header. Raises ValueError for a name that a zip cannot hold."""
    import zipfile

    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r} cannot be a name in a zip: {error}") from error
    if size > _MAX_NAME:
        raise ValueError(f"its files' names have {size} bytes; a zip allows at most {_MAX_NAME}")
    header = zipfile.ZipInfo(name, _TIME)
    header.external_attr = 0o100644 << 16
    return header
