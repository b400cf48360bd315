"""A channel's samples as a pipeline of generators: objects, streams, records.

Closing the outer generator closes the open streams.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from entrypoints.broker.reader import finish_shard, has_broker, read_shard
from entrypoints.errors import ChannelError
from entrypoints.job.environment import Channel
from entrypoints.meter import waited
from entrypoints.order.sampling import Reading, ShardCursor
from entrypoints.order.sharding import EVERYTHING, Shard
from entrypoints.readers import Reader, fifo
from entrypoints.records import Format
from entrypoints.records.recordio import recordio
from entrypoints.sample import Sample
from entrypoints.samples.object_cache import ObjectCache


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
    _key: str | None = None  # of the object that is being read, for errors

    @property
    def is_assigned(self) -> bool:
        """Whether the host's broker assigns the samples to several readers, and marks the ends of blocks."""
        return self.reader is None and self.shard.readers > 1

    @property
    def _shuffled(self) -> Reading | None:
        return self.reading if self.is_assigned and self.reading.seed is not None else None

    def samples(self, cursor: ShardCursor) -> Generator[Sample, None, None]:
        """Yield the shard's samples from the cursor's position on, and move the cursor.

        Raises:
            CorruptError: The data is damaged.
            ChannelError: The data is missing, or has changed since the state was taken.
        """
        try:
            if not cursor.finished:
                yield from self._of_objects(self.reader, cursor) if self.reader else self._of_stream(cursor)
                cursor.finished = True
            elif self.is_assigned:  # Nothing is read, but the other readers of the Pipe have to know.
                finish_shard(self.channel, self.epoch, self.form, self.shard, self._shuffled)
        except ChannelError as error:
            if f"channel {self.channel.name!r}" in str(error):
                raise
            raise type(error)(f"channel {self.channel.name!r}: {error}") from error.__cause__
        except OSError as error:
            where = "" if self._key is None else f" at or after object {self._key!r}"
            raise ChannelError(f"channel {self.channel.name!r} cannot be read{where}: {error}") from error

    def _of_objects(self, reader: Reader, cursor: ShardCursor) -> Generator[Sample, None, None]:
        begin = time.perf_counter()
        ordered = self.reading.of_objects(
            reader.objects(self.channel), self.epoch
        )  # lists all objects if it shuffles them
        waited(begin)
        items = self.shard.of(ordered)
        for item in islice(items, cursor.object):
            self._begin(cursor, reader.key_of(self.channel, item))
        if cursor.begun < cursor.object:
            raise self._too_few(cursor, cursor.begun, "objects")
        if self.cache is None:
            opened = reader.open_objects(self.channel, items)
        else:
            opened = self.cache.open_objects(reader, self.channel, items)
        with closing(opened) as streams:
            for key, stream in streams:
                self._key = key
                with closing(stream):
                    self._begin(cursor, key or "")
                    yield from self.form.split(stream, key, cursor)
                cursor.object += 1
                cursor.start = cursor.position = 0
        if cursor.start or cursor.begun < cursor.expected[0]:
            raise self._too_few(cursor, cursor.begun, "objects")

    def _begin(self, cursor: ShardCursor, key: str) -> None:
        if not cursor.begin(key):
            raise ChannelError(
                f"channel {self.channel.name!r}: the objects up to {key!r} are not those of when the state was taken: the data"
                " has changed; restart the epoch"
            )

    def _left(self, samples: Iterator[Sample], cursor: ShardCursor) -> Iterator[Sample]:
        """Skip the samples that were read before. Raises ChannelError if there are fewer."""
        before = sum(1 for _ in islice(samples, cursor.object))
        if before < cursor.object:
            raise self._too_few(cursor, before, "samples")
        return samples

    def _too_few(self, cursor: ShardCursor, count: int, what: str) -> ChannelError:
        begun = max(cursor.object, cursor.expected[0])
        return ChannelError(
            f"channel {self.channel.name!r}: the state says that {begun:,} {what} of this shard were begun, but there are"
            f" {count:,}: the data has changed; restart the epoch"
        )

    def _of_stream(self, cursor: ShardCursor) -> Generator[Sample, None, None]:
        """Yield a Pipe's samples. If they are assigned or wrapped, the cursor counts those of this shard."""
        if self.is_assigned or has_broker(self.channel):
            if cursor.start:
                raise ChannelError(
                    f"channel {self.channel.name!r}: the state was saved with one reader of the Pipe, which now has"
                    " several; use as many as before, or restart the epoch"
                )
            with closing(
                read_shard(self.channel, self.epoch, self.form, self.shard, cursor, self._shuffled)
            ) as assigned:
                for sample in self._left(assigned, cursor):
                    cursor.object += 1
                    yield sample
            return
        wrapped = self.channel.record_wrapper == "RecordIO"
        with closing(fifo.open_fifo(self.channel, self.epoch, fifo.wait_seconds())) as stream:
            if self.shard == EVERYTHING and not wrapped and not cursor.object:
                yield from self.form.split(stream, None, cursor)
                return
            # Each wrapped record is one whole object, in the channel's format.
            split = self.form.split
            samples = recordio.unwrapped(stream, split) if wrapped else split(stream, None)
            for sample in self._left(self.shard.of(samples), cursor):
                cursor.object += 1
                yield sample
