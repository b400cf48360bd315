"""A channel's samples as a pipeline of generators: objects, streams, records.

Closing the outer generator closes the open streams.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, compress, count, islice
from typing import Any

from sagemaker_channels.broker.reader import finish_shard, has_broker, read_shard
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.fetching.items import Items
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.meter import waited
from sagemaker_channels.order.sampling import Reading, ShardCursor
from sagemaker_channels.order.sharding import EVERYTHING, Shard
from sagemaker_channels.order.work import Part, Piece, Work
from sagemaker_channels.readers import Reader, fifo
from sagemaker_channels.records import Format
from sagemaker_channels.records.cursor import Cursor
from sagemaker_channels.records.damage import Damage
from sagemaker_channels.records.recordio import recordio
from sagemaker_channels.sample import ByteStream, Sample
from sagemaker_channels.samples.object_cache import ObjectCache


@dataclass
class Pipeline:
    """What is read of a channel, and how."""

    channel: Channel
    epoch: int
    reader: Reader | None  # None: a Pipe
    form: Format
    shard: Shard
    reading: Reading
    cache: ObjectCache | None
    damage: Damage | None = None
    _key: str | None = None  # of the object that is being read, for errors
    _objects: Items[Any] | None = None  # that were counted: reading lists nothing again
    _missing: int = 0  # samples of the present block that an earlier reader began

    @property
    def is_assigned(self) -> bool:
        """Whether the host's broker assigns the samples to several readers, and marks the ends of blocks."""
        return self.reader is None and self.shard.readers > 1

    def samples(self, cursor: ShardCursor) -> Generator[Sample, None, None]:
        """Yield the shard's samples from the cursor's position on, and move the cursor.

        Raises:
            CorruptError: The data is damaged.
            ChannelError: The data is missing, or has changed since the state was taken.
        """
        if self.damage is not None and self.damage.most:
            cursor.skips = self.damage.skip
        try:
            if not cursor.finished:
                yield from self._of_objects(self.reader, cursor) if self.reader else self._of_stream(cursor)
                cursor.finished = True
            elif self.is_assigned:  # Nothing is read, but the other readers of the Pipe have to know.
                finish_shard(self.channel, self.epoch, self.form, self.shard, cursor, self.reading)
        except ChannelError as error:
            if f"channel {self.channel.name!r}" in str(error):
                raise
            raise type(error)(f"channel {self.channel.name!r}: {error}") from error.__cause__
        except OSError as error:
            where = "" if self._key is None else f" at or after object {self._key!r}"
            raise ChannelError(f"channel {self.channel.name!r} cannot be read{where}: {error}") from error

    def count(self) -> int:
        """Return the number of the shard's samples. Raises TypeError if no index has it."""
        # `list(dataset)` calls this, too, and ignores only TypeError.
        unknown = f"channel {self.channel.name!r}: the number of samples is unknown until they are read"
        reader, count = self.reader, self.form.count
        if reader is None or count is None:
            why = "a Pipe is one stream" if reader is None else f"{self.form} has no index"
            raise TypeError(f"{unknown}: {why}")
        total = 0
        try:
            objects = reader.objects(self.channel, self.epoch) if self._objects is None else self._objects
            numbers = self.shard.of(self.reading.order_of(len(objects), self.epoch) or range(len(objects)))
            self._objects = objects  # not before: after an error or Ctrl-C, a part would look like the whole
            if isinstance(count, int):
                return sum(count for _ in numbers)
            with closing(reader.open_objects(self.channel, _chosen(objects, numbers))) as opened:
                for key, stream in opened:
                    with closing(stream):
                        total += count(stream, key)
        except (ChannelError, OSError) as error:
            raise TypeError(f"{unknown}: {error}") from error
        return total

    def _of_objects(self, reader: Reader, cursor: ShardCursor) -> Generator[Sample, None, None]:
        begin = time.perf_counter()
        objects = reader.objects(self.channel, self.epoch) if self._objects is None else self._objects
        # A shuffled order depends on all objects, so they are listed.
        order = None if self.reading.seed is None else self.reading.order_of(len(objects), self.epoch)
        self._compare(objects, cursor.resumption.listing, is_whole=order is not None)
        cursor.digest, cursor.pin_of = objects.digest, lambda number: reader.pin_of(self.channel, objects[number])
        cursor.begun = max([0 if order is None else len(objects), *(pair[0] for pair in cursor.resumption.listing)])
        waited(begin)
        work, shard = cursor.resumption.work, (self.shard.index, self.shard.count)
        pieces = work.pieces_of(*shard)
        parts = deque((part, piece, part is piece.parts[-1]) for piece in pieces[cursor.item :] for part in piece.parts)

        def numbers(begin: int = cursor.item) -> Iterator[int]:
            begun = [part.number if order is None else order[part.number] for part, _, _ in parts]
            return chain(begun, work.of(count() if order is None else order, *shard, begin))

        if cursor.item > len(pieces) and not any(True for _ in islice(_chosen(objects, numbers(cursor.item - 1)), 1)):
            raise self._fewer(cursor.item, len(objects), "objects")
        # Iterating is faster than asking for each.
        is_fresh = order is None and not cursor.item and work == Work()
        items: Iterable[Any] = work.of(objects, *shard) if is_fresh else _chosen(objects, numbers())
        if self.cache is None:
            opened = reader.open_objects(self.channel, items)
        else:
            opened = self.cache.open_objects(reader, self.channel, items)
        pin = cursor.resumption.at.pin
        with closing(opened) as streams:
            for number, (key, stream) in zip(numbers(), streams):  # noqa: B905 - the numbers have no end
                self._key = key
                cursor.number = number
                if number >= cursor.begun:
                    cursor.begun = number + 1
                pin = pin or (parts[0][0].pin if parts else 0)
                if pin and reader.pin_of(self.channel, objects[number]) != pin:
                    raise self._changed(f"object {key!r} is not the one of")
                pin = 0
                with closing(stream):
                    if parts:
                        yield from self._of_part(stream, key, cursor, *parts.popleft())
                    else:
                        try:
                            yield from self.form.split(stream, key, cursor)
                        except CorruptError as error:
                            self._skip(error)  # The next object follows.
                        cursor.item += 1
                cursor.start = cursor.position = 0
        if cursor.start or parts:
            raise self._fewer(cursor.item, len(objects), "objects")

    def _of_part(
        self, stream: ByteStream, key: str | None, cursor: ShardCursor, part: Part, piece: Piece, is_last: bool
    ) -> Generator[Sample, None, None]:
        """Yield the samples of an object that another reader had begun."""
        if not piece.seed:
            cursor.start = cursor.position = cursor.start or part.position
            try:
                yield from self.form.split(stream, key, cursor)
            except CorruptError as error:
                self._skip(error)
            cursor.item += 1
            return
        if cursor.piece is None:
            cursor.piece, self._missing = piece, piece.samples
        try:
            for sample in islice(self.form.split(stream, key, Cursor(part.position, cursor.skips)), self._missing):
                self._missing -= 1
                if not self._missing:  # The caller looks at the cursor when it has the block's last sample.
                    cursor.cut = True
                    cursor.item += 1
                yield sample
                cursor.cut = False
        except CorruptError as error:
            self._skip(error)
        if is_last and self._missing:
            raise self._changed(f"the objects up to {key!r} have fewer samples than")

    def _compare(self, objects: Items[Any], begun: Sequence[Sequence[int]], *, is_whole: bool) -> None:
        """Raise ChannelError if the first objects are not those of when the state was taken; all of them if `is_whole`."""
        for number, digest in begun:
            try:
                is_same = objects.digest(number) == digest
            except IndexError:
                raise self._fewer(number, len(objects), "objects") from None
            if not is_same or (is_whole and number != len(objects)):
                raise self._changed("the objects are not those of")

    def _changed(self, how: str) -> ChannelError:
        return ChannelError(
            f"channel {self.channel.name!r}: {how} when the state was taken: the data has changed; restart the epoch"
        )

    def _fewer(self, begun: int, found: int, what: str) -> ChannelError:
        return ChannelError(
            f"channel {self.channel.name!r}: the state says that {begun:,} {what} were begun, but there are {found:,}: the data has"
            " changed; restart the epoch"
        )

    def _of_stream(self, cursor: ShardCursor) -> Generator[Sample, None, None]:
        """Yield a Pipe's samples. The cursor counts those of this shard."""
        if self.is_assigned or has_broker(self.channel):
            cursor.start = cursor.position = 0
            with closing(read_shard(self.channel, self.epoch, self.form, self.shard, cursor, self.reading)) as assigned:
                yield from self._left(assigned, cursor)
            return
        wrapped = self.channel.record_wrapper == "RecordIO"
        work, whole = cursor.resumption.work, self.shard == EVERYTHING and not wrapped
        with closing(fifo.open_fifo(self.channel, self.epoch, fifo.wait_seconds())) as stream:
            if whole and work == Work() and (cursor.start or not cursor.item):
                # It resumes at a byte. C counts the samples: a loop here would be noticeable.
                cursor.passed = iter(range(1, sys.maxsize))
                yield from compress(self.form.split(stream, None, cursor), cursor.passed)
                return
            # Each wrapped record is one whole object, in the channel's format.
            split = self.form.split
            damaged = Cursor(0, cursor.skips)
            samples = recordio.unwrapped(stream, split, damaged) if wrapped else split(stream, None, damaged)
            cursor.start = cursor.position = 0
            yield from self._left(work.of(samples, self.shard.index, self.shard.count), cursor)

    def _skip(self, error: CorruptError) -> None:
        """Skip the rest of an object, or raise the error."""
        if self.damage is None or not self.damage.most:
            raise error from error.__cause__
        self.damage.skip(error)

    def _left(self, samples: Iterator[Sample], cursor: ShardCursor) -> Iterator[Sample]:
        """Skip the samples that were read before, and count the others. Raises ChannelError if there are fewer."""
        before = sum(1 for _ in islice(samples, cursor.item))
        if before < cursor.item:
            raise self._fewer(cursor.item, before, "samples of this shard")
        for sample in samples:
            cursor.item += 1
            yield sample


def _chosen(objects: Items[Any], numbers: Iterable[int]) -> Iterator[Any]:
    """Yield objects by their numbers, up to the first number beyond the last object."""
    for number in numbers:
        try:
            item = objects[number]
        except IndexError:
            return
        yield item
