"""The objects of a channel in an epoch's order, and their samples."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

from sagemaker_channels.epoch.deals import Deal, Position
from sagemaker_channels.epoch.reader import Reader
from sagemaker_channels.epoch.reading import Source, changed
from sagemaker_channels.epoch.states import Listing
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.meter import waited
from sagemaker_channels.sample import ByteStream, Sample
from sagemaker_channels.sources.items import Items
from sagemaker_channels.sources.object_cache import ObjectCache
from sagemaker_channels.sources.readers import Reader as ObjectReader


class ObjectSource(Source):
    """The objects of a channel in an epoch's order. Nothing is listed before the first is needed.

    Args:
        opener: What lists and opens them.
        cache: Keeps them for later epochs.
        listed: The objects of the epoch that were last counted, which are not listed again.
        of: As for Source.
    """

    def __init__(
        self, opener: ObjectReader, cache: ObjectCache | None, listed: dict[int, Items[Any]], *of: Any
    ) -> None:
        super().__init__(*of)
        self._opener, self._cache, self._listed, name = opener, cache, listed, self.channel.name
        self._name = name if self.host is None else f"{name} of host {self.host[0]}"  # of its list in states
        self._expected: Listing = {}
        self._objects: Items[Any] | None = None
        self._order: Sequence[int] | None = None
        self.pin_of = lru_cache(64)(self._pin_of)

    def reader(self, history: Sequence[Deal], index: int, count: int, at: Position) -> Reader:
        """Return reader `index` of `count` at a position, after the deals of `history`."""
        return Reader(self, *self.of_host(history, index, count), at)

    @property
    def objects(self) -> Items[Any]:
        """All objects, listed as they are read; a shuffled order depends on all of them."""
        if self._objects is None:
            begin = time.perf_counter()
            objects = self._listed.get(self.epoch) or self._opener.objects(self.channel, self.epoch)
            if self.seed is not None:
                numbers = array("q", range(len(objects)))  # rather than a second list of a million objects
                random.Random(f"objects/{self.seed}/{self.epoch}").shuffle(numbers)
                self._order = numbers
            self._objects = objects  # not before: after an error or Ctrl-C, a part would look like the whole
            waited(begin)
        return self._objects

    def _number(self, number: int) -> int:
        """Return the place in the listing of the object with this number in the epoch's order. Raises IndexError."""
        return number if self._order is None else self._order[number]

    def _pin_of(self, number: int) -> int:
        return self._opener.pin_of(self.channel, self.objects[self._number(number)])

    def _chosen(self, numbers: Iterator[int]) -> Iterator[Any]:
        """Yield objects by their numbers, up to the first beyond the last."""
        objects = self.objects
        for number in numbers:
            try:
                item = objects[self._number(number)]
            except IndexError:
                return
            yield item

    def records(
        self, numbers: Callable[[], Iterator[int]], cursor: Cursor
    ) -> Generator[tuple[int, Iterator[Sample]], None, None]:
        """Yield the samples of each object from the cursor's start on; `numbers` is called in several threads."""
        if self.damage.most:
            cursor.skips = self.damage.skip
        self._compare(self.objects)
        chosen = self._chosen(numbers())
        if self._cache is None:
            opened = self._opener.open_objects(self.channel, chosen)
        else:
            opened = self._cache.open_objects(self._opener, self.channel, chosen)
        with closing(opened) as streams:
            for number, (key, stream) in zip(numbers(), streams):  # noqa: B905 - the numbers have no end
                self.key = key
                self.begun = max(self.begun, number + 1)
                with closing(stream):
                    split = self._undamaged if self.damage.most else self.form.split
                    yield number, split(stream, key, cursor)

    def _undamaged(self, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
        try:
            yield from self.form.split(stream, key, cursor)
        except CorruptError as error:
            self.damage.skip(error)  # The next object follows.

    def listing_of(self, begun: int) -> Listing:
        return {self._name: [begun, self.objects.digest(begun)]} if begun else self._expected

    def expect(self, listing: Listing) -> None:
        self._expected = {name: pair for name, pair in listing.items() if name == self._name}

    def _compare(self, objects: Items[Any]) -> None:
        """Raise ChannelError if the first objects are not those of when the state was taken; all of them if shuffled."""
        if self._order is not None:
            self.begun = len(objects)
        for count, digest in self._expected.values():
            try:
                is_same = objects.digest(count) == digest
            except IndexError:
                reason = f"the state says that {count:,} objects were begun, but there are {len(objects):,}"
                raise changed(reason) from None
            if not is_same or (self._order is not None and count != len(objects)):
                raise changed("the objects are not those of when the state was taken")
            self.begun = max(self.begun, count)

    def count(self, index: int, count: int) -> int:
        """Return the number of samples of one of so many readers. Raises TypeError if no index has it."""
        _, index, count = self.of_host([], index, count)
        # `list(dataset)` calls this, too, and ignores only TypeError.
        unknown = f"{self.who}: the number of samples is unknown until they are read"
        of_object = self.form.count
        if of_object is None:
            raise TypeError(f"{unknown}: {self.form} has no index")
        total = 0
        try:
            chosen = self._chosen(iter(range(index, len(self.objects), count)))
            if self.epoch not in self._listed:
                self._listed.clear()
                self._listed[self.epoch] = self.objects
            if isinstance(of_object, int):
                return sum(of_object for _ in chosen)
            with closing(self._opener.open_objects(self.channel, chosen)) as opened:
                for key, stream in opened:
                    with closing(stream):
                        total += of_object(stream, key)
        except (ChannelError, OSError) as error:
            self._objects = None  # What was listed before it must not look like the whole.
            raise TypeError(str(self.named(error))) from error
        return total
