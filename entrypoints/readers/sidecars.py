"""Objects in S3 read together with their sidecar files: a/1.jpg, a/1.json and a/1.cls are one sample, as in WebDataset.

A name's stem ends at its first dot, so objects of one stem follow each other in S3's listing.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from entrypoints.errors import ChannelError
from entrypoints.fetching.items import Items
from entrypoints.fetching.listing import Listing
from entrypoints.fetching.pages import Listed
from entrypoints.job.environment import Channel
from entrypoints.readers import s3
from entrypoints.records.cursor import Cursor
from entrypoints.records.format import Format
from entrypoints.sample import DATA, KEY, Sample


def split(key: str) -> tuple[str, str]:
    """Return a key's stem, and its field: what follows the first dot of its name, or `data`."""
    dot = key.find(".", key.rfind("/") + 2)
    return (key, DATA) if dot < 0 else (key[:dot], key[dot + 1 :] or DATA)


class _Groups(Items[list[Listed]]):
    """The objects of each stem, as the numbers of their first in the listing: 8 bytes each.

    Raises:
        ChannelError: Objects of a stem lack a sidecar, or are only sidecars.
    """

    def __init__(self, listing: Listing, endings: frozenset[str]) -> None:
        self._listing, self._starts = listing, array("Q", [0])
        for stem, group in groupby(listing, key=lambda listed: split(listed.key)[0]):
            fields = [split(listed.key)[1] for listed in group]
            if not endings < set(fields):
                missing = ", ".join(sorted(endings.difference(fields))) or "an object that is no sidecar"
                raise ChannelError(
                    f"{stem}: has {', '.join(fields)} but not {missing}; add it, or choose other sidecars"
                )
            self._starts.append(self._starts[-1] + len(fields))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def _item(self, index: int) -> list[Listed]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._listing[self._starts[index] : self._starts[index + 1]]

    def digest(self, count: int) -> int:
        """See Items: of all objects of the first `count` stems."""
        return self._listing.digest(self._starts[count])


class _Fields(dict[str, bytes]):
    """The contents of the objects of a stem, in place of a stream."""

    def close(self) -> None:
        """Do nothing: they are read."""


@dataclass(frozen=True)
class Sidecars:
    """The reader (see `readers.Reader`) of a channel in S3 in which each object has a sidecar of each of these endings."""

    endings: frozenset[str]

    def objects(self, channel: Channel, epoch: int = 0) -> _Groups:
        """See Reader. Raises ChannelError for an object without its sidecars."""
        return _Groups(s3.objects(channel, epoch), self.endings)

    def open_objects(
        self, channel: Channel, chosen: Iterable[list[Listed]]
    ) -> Generator[tuple[str | None, Any], None, None]:
        """See Reader; what it yields in place of streams is for FORMAT."""
        with closing(s3.open_objects(channel, chain.from_iterable(chosen))) as opened:
            for stem, members in groupby(opened, key=lambda member: split(str(member[0]))[0]):
                fields = _Fields()
                for key, stream in members:
                    with closing(stream):
                        fields[split(str(key))[1]] = stream.read()
                yield stem, fields

    def pin_of(self, channel: Channel, group: list[Listed]) -> int:
        """See Reader."""
        return group[0].version

    def key_of(self, channel: Channel, group: list[Listed]) -> str:
        """See Reader."""
        return split(s3.key_of(channel, group[0]))[0]


def _read(fields: Any, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    if cursor.start == 0:
        cursor.position = 1
        yield {KEY: key, **fields}


FORMAT = Format(
    name="sidecars", sample="the objects of a stem, by their endings", read=_read, count=1, boundaries=False
)
