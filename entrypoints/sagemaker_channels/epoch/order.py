"""What the readers of an epoch read of a channel: its objects in the epoch's order, or the stream of a Pipe."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

from sagemaker_channels.epoch.deals import Deal, Position
from sagemaker_channels.epoch.reader import Positioned, Reader
from sagemaker_channels.epoch.reading import Reading
from sagemaker_channels.epoch.states import Listing, changed
from sagemaker_channels.epoch.stream_reader import StreamReader
from sagemaker_channels.epoch.transformed import NO_STEPS, Make
from sagemaker_channels.errors import ChannelError, CorruptError, in_channel
from sagemaker_channels.formats import Format, recordio
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.damage import Damage
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.meter import waited
from sagemaker_channels.sample import ByteStream, Sample
from sagemaker_channels.sources import tee
from sagemaker_channels.sources.items import Items
from sagemaker_channels.sources.object_cache import ObjectCache
from sagemaker_channels.sources.readers import Reader as ObjectReader


class Source:
    """A channel in an epoch. `host` is this host's number and the number of hosts, if what is read is of this host alone."""

    number = 0  # among the sources of a mixture
    begun = 0  # how far its list of objects must be the same when reading resumes
    key: str | None = None  # of the object that is being read
    is_left = False  # whether nothing of it is wanted any more, which another thread says
    steps = NO_STEPS  # what becomes of its samples
    kind: type[Positioned]  # of its readers

    def __init__(
        self,
        channel: Channel,
        epoch: int,
        form: Format,
        reading: Reading,
        damage: Damage,
        host: tuple[int, int] | None,
    ) -> None:
        self.channel, self.epoch, self.form, self.damage, self.host = channel, epoch, form, damage, host
        self.who = f"channel {channel.name!r}"
        self.seed, self.block, self.block_bytes = reading.seed, reading.block, reading.block_bytes

    def reader(self, history: Sequence[Deal], index: int, count: int, at: Position) -> Positioned:
        """Return reader `index` of `count` at a position, after the deals of `history`."""
        return self.kind(self, *self._of_host(history, index, count), at)

    def _of_host(self, history: Sequence[Any], index: int, count: int) -> tuple[Any, int, int]:
        """Return the history and number of a reader among those of its host, if each host deals items of its own.

        Reader `index` is of host `index` modulo the number of hosts.
        """
        if self.host is None:
            return history, index, count
        number, hosts = self.host
        return [deal[number::hosts] for deal in history], index // hosts, count // hosts

    def maker(self) -> Make | None:
        """Return what finishes a sample (transformed.py), which is called where batches are made."""
        return self.steps.maker(self)

    def leave(self) -> None:
        """Let its readers end, whose samples are not used any more; called in another thread."""
        self.is_left = True

    def named(self, error: Exception) -> Exception:
        """Return an error that names the channel, and for one of the system the object at or after which it occurred."""
        name = self.channel.name
        if isinstance(error, ChannelError):
            return in_channel(error, name)
        where = "" if self.key is None else f" at or after object {self.key!r}"
        found = ChannelError(f"channel {name!r} cannot be read{where}: {error}")
        found.channel, found.object = name, self.key
        return found

    def count(self, index: int, count: int) -> int:
        """Return the number of samples of one of so many readers. Raises TypeError if no index has it, or ChannelError."""
        raise TypeError(f"{self.who}: the number of samples is unknown until they are read: a Pipe is one stream")

    def listing_of(self, begun: Any) -> Listing:
        return {}

    def expect(self, listing: Listing) -> None:
        """Compare the objects with these digests before the first is read."""


class StreamSource(Source):
    """The stream of a Pipe's epoch. `readers` of this host keep their samples of it."""

    readers = 1
    stream: Any  # of its only reader in this process
    kind = StreamReader

    def samples(self, index: int, turns: tuple[int, int]) -> Generator[Sample, None, None]:
        """Yield all samples to one of the readers; those whose turn it is not may be without content."""
        # After damage, the readers must agree on the number of samples. So if it is skipped, each of them checks all.
        cursor = Cursor(0, self.damage.skip, (0, 1)) if self.damage.most else Cursor(0, None, turns)
        self.stream = stream = tee.open_stream(
            self.channel, self.epoch, self.readers, reader=index, may_grow=lambda: self.damage.has_skipped
        )
        assert stream is not None
        with closing(stream):
            try:
                # Each record of a wrapped stream is one whole object, in the channel's format.
                if self.channel.record_wrapper == "RecordIO":
                    yield from recordio.unwrapped(stream, self.form.split, cursor)
                else:
                    yield from self.form.split(stream, None, cursor)
            except CorruptError:
                self.check()
                raise

    def check(self) -> None:
        """Raise ChannelError if what was read last may have been overwritten while it was copied."""
        if self.stream.left[0]:
            self.stream.check_not_left()


class ObjectSource(Source):
    """The objects of a channel in an epoch's order. Nothing is listed before the first is needed.

    `opener` lists and opens them, and `cache` keeps them for later epochs. `listed` has the objects of the epoch that were last
    counted, which are not listed again. `of` is as for Source.
    """

    kind = Reader

    def __init__(
        self, opener: ObjectReader, cache: ObjectCache | None, listed: dict[int, Items[Any]], *of: Any
    ) -> None:
        super().__init__(*of)
        self._opener, self._cache, self._listed = opener, cache, listed
        self._expected: Listing = {}
        self._objects: Items[Any] | None = None
        self._order: Sequence[int] | None = None
        self.pin_of = lru_cache(64)(self._pin_of)

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

    def _pin_of(self, number: int) -> list[int]:
        return [*self._opener.pin_of(self.channel, self.objects[self._number(number)])]

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
            self.damage.skip(error, loses="the rest of the object is skipped")

    @property
    def _name(self) -> str:
        """The name of its list in states, which is the same in every input mode."""
        return f"{self.number}" if self.host is None else f"{self.number} of host {self.host[0]}"

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
        unknown = f"{self.who}: the number of samples is unknown until they are read"
        if self.steps.change_number or self.damage.most:
            what = "a filter or the transform" if self.steps.change_number else "skip_damaged"
            raise TypeError(f"{unknown}: {what} changes it")
        _, index, count = self._of_host([], index, count)
        # `list(dataset)` calls this, too, and ignores only TypeError: a store that is down would be waited for again.
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
            raise self.named(error) from error.__cause__
        return total
