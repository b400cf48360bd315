"""Objects read together with their sidecar files: a/1.jpg, a/1.json and a/1.cls are one sample, as in WebDataset.

A name's stem ends at its first dot, so objects of one stem follow each other in every listing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sample import DATA, KEY, Sample
from sagemaker_channels.sources import s3
from sagemaker_channels.sources.items import Items


def split(key: str) -> tuple[str, str]:
    """Return a key's stem, and its field: what follows the first dot of its name, or `data`."""
    dot = key.find(".", key.rfind("/") + 2)
    return (key, DATA) if dot < 0 else (key[:dot], key[dot + 1 :] or DATA)


class _Groups(Items[list[Any]]):
    """The objects of each stem, as the numbers of their first in the listing: 8 bytes each.

    Raises ChannelError if objects of a stem lack a sidecar, or are only sidecars.
    """

    def __init__(self, listing: Items[Any], key_of: Callable[[Any], str], endings: frozenset[str]) -> None:
        self._listing, self._starts = listing, array("Q", [0])
        for stem, group in groupby(map(key_of, listing), key=lambda key: split(key)[0]):
            fields = [split(key)[1] for key in group]
            if not endings < set(fields):
                missing = ", ".join(sorted(endings.difference(fields))) or "an object that is no sidecar"
                raise ChannelError(
                    f"{stem}: has {', '.join(fields)} but not {missing}", remedy="add it, or choose other sidecars"
                )
            self._starts.append(self._starts[-1] + len(fields))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def _item(self, index: int) -> list[Any]:
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
    """The reader (see `readers.Reader`) of a channel in which each object has a sidecar of each of these endings.

    `objects_by` is the reader of the single objects.
    """

    endings: frozenset[str]
    objects_by: Any = s3

    def objects(self, channel: Channel, epoch: int = 0) -> _Groups:
        """See Reader. Raises ChannelError for an object without its sidecars."""
        reader = self.objects_by
        return _Groups(reader.objects(channel, epoch), partial(reader.key_of, channel), self.endings)

    def open_objects(
        self, channel: Channel, chosen: Iterable[list[Any]]
    ) -> Generator[tuple[str | None, Any], None, None]:
        """See Reader; what it yields in place of streams is for FORMAT."""
        with closing(self.objects_by.open_objects(channel, chain.from_iterable(chosen))) as opened:
            for stem, members in groupby(opened, key=lambda member: split(str(member[0]))[0]):
                fields = _Fields()
                for key, stream in members:
                    with closing(stream):
                        fields[split(str(key))[1]] = stream.read()
                yield stem, fields

    def pin_of(self, channel: Channel, group: list[Any]) -> tuple[int, int]:
        pin: tuple[int, int] = self.objects_by.pin_of(channel, group[0])
        return pin

    def key_of(self, channel: Channel, group: list[Any]) -> str:
        return split(self.objects_by.key_of(channel, group[0]))[0]


def _read(fields: Any, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    if cursor.start == 0:
        cursor.position = 1
        yield {KEY: key, **fields}


FORMAT = Format(
    name="sidecars", sample="the objects of a stem, by their endings", read=_read, count=1, boundaries=False
)
