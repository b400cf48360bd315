"""From the names of an archive's members to samples and fields, the same in a tar and in a zip.

Members that share their name up to the first dot of the base name are one sample, and the field is what follows the dot. A
base name that begins with a dot is hidden, as macOS's `._1.jpg` beside `1.jpg` and `.DS_Store` are, and
left out, as webdataset does. A member without a dot, which webdataset also leaves out, is field `data`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from sagemaker_channels.errors import corrupt
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.window import CHUNK, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import content
from sagemaker_channels.sample import DATA, KEY, Sample

# Name, content, offset in the object and position. No name marks the end of an archive or a sample, with the position of what
# follows. No content marks a member that is cut, before its error.
Member: TypeAlias = "tuple[str | None, bytes | None, int, int]"


def grouped(members: Iterable[Member], key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples that an archive's members make up. Raises CorruptError if two have one name, or a sample is too large."""
    sample: Sample = {}
    held = 0
    for name, data, offset, position in members:
        if name is None:
            if sample:
                cursor.position = position
                yield sample
            sample = {}
            continue
        slash = name.rfind("/") + 1
        dot = name.find(".", slash)
        if dot == slash:
            continue  # hidden
        group, field = (name, DATA) if dot < 0 else (name[:dot], name[dot + 1 :])
        if sample and sample[KEY] != group:
            cursor.position = position
            yield sample
            sample = {}
        if data is None:
            continue
        if not sample:
            sample[KEY] = group
            held = 0
        held += len(data)
        if held > CHUNK and held > (most := max_sample_bytes()):
            raise too_large(key, offset, f"sample {group!r} has {held:,} bytes or more, with member {name!r}", most)
        if field in sample:
            raise corrupt(key, offset, f"member {name!r} repeats field {field!r} of sample {group!r}")
        sample[field] = data


def group_of(name: str) -> str | None:
    """Return the key of the sample that a member belongs to; None if it is hidden."""
    slash = name.rfind("/") + 1
    dot = name.find(".", slash)
    return None if dot == slash else name if dot < 0 else name[:dot]


class Turns:
    """Which members belong to every n-th sample, from the i-th on: `grouped`'s rule."""

    def __init__(self, index: int, count: int) -> None:
        self._number, self._index, self._count = -1, index, count
        self._group: str | None = None

    def end_group(self) -> None:
        """Begin another sample with the next member."""
        self._group = None

    def wants(self, name: str) -> bool:
        """Return whether the next member, of this name, is needed."""
        if (group := group_of(name)) is None:
            return False
        if group != self._group:
            self._group, self._number = group, self._number + 1
        return self._number % self._count == self._index


def members_of(sample: Sample) -> list[tuple[str, bytes]]:
    """Return a sample's members, names and contents. Raises ValueError if it would not be read back from them."""
    key = sample.get(KEY)
    last = key.rpartition("/")[2] if isinstance(key, str) and "\0" not in key else ""
    if not last or "." in last:
        raise ValueError(
            "its __key__ names its files in the archive: expected a text without zero bytes, with something but no dot after "
            "the last slash (the field follows a dot)"
        )
    members = []
    for field in sample:
        if "/" in field or "\0" in field:
            raise ValueError(f"field {field!r} cannot be a file's ending; use a text without / and zero bytes")
        if field != KEY:
            members.append((f"{key}.{field}", content(sample, field)))
    if not members:
        raise ValueError("it has no fields, so no files, and would be lost; add a field, even an empty one")
    return members


def of_files(sample: Sample) -> Sample:
    """Return a sample of any format as an archive's files hold it; a field that cannot become text is a TypeError.

    Object `a/1.x.png` is sample `a/1_x` with the field `png`; `label` is the field `cls`, and what is not bytes becomes text.
    """
    folder, slash, name = sample[KEY].rpartition("/")
    stem, dot, ending = name.rpartition(".")
    key = folder + slash + (stem if dot else name).replace(".", "_")
    renamed = {DATA: (dot and ending) or DATA, "label": "cls"}
    fields = {renamed.get(field, field): _text(value) for field, value in sample.items() if field != KEY}
    return {KEY: key, **fields}


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    value = value.tolist() if hasattr(value, "tolist") else value
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogateescape")
