"""From a channel to its samples: a pipeline of generators, each stage a table of its own.

Memory stays flat, and closing the generator closes the streams it has open.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from entrypoints.broker.reader import finish_shard, has_broker, read_shard
from entrypoints.errors import ChannelError
from entrypoints.job.environment import Channel
from entrypoints.order.sampling import Mark, Reading
from entrypoints.order.sharding import EVERYTHING, Shard
from entrypoints.readers import Reader
from entrypoints.records import Format
from entrypoints.records.recordio import recordio
from entrypoints.sample import ByteStream, Sample
from entrypoints.samples.object_cache import ObjectCache


@dataclass(frozen=True)
class Source:
    """What of a channel is read, and how."""

    channel: Channel
    epoch: int
    reader: Reader
    form: Format
    shard: Shard
    reading: Reading
    cache: ObjectCache | None

    @property
    def is_dealt(self) -> bool:
        """Whether the host's broker deals the samples out to several readers, and says where blocks end."""
        return self.reader.JOINED and self.shard.readers > 1

    @property
    def _shuffled(self) -> Reading | None:
        return self.reading if self.is_dealt and self.reading.seed is not None else None

    def samples(self, mark: Mark) -> Generator[Sample, None, None]:
        """The samples from a mark of the shard on; the mark moves with them. Errors of the data name the channel.

        Raises CorruptError where the data is damaged, ChannelError where it is not there.
        """
        told = _Told()
        try:
            if mark.finished:
                self._pass_by()
                return
            yield from self._of_stream(mark) if self.reader.JOINED else self._of_objects(mark, told)
            mark.finished = True
        except ChannelError as error:
            if f"channel {self.channel.name!r}" in str(error):
                raise
            raise type(error)(f"channel {self.channel.name!r}: {error}") from error
        except OSError as error:
            where = "" if told.key is None else f" at or after object {told.key!r}"
            raise ChannelError(f"channel {self.channel.name!r} cannot be read{where}: {error}") from error

    def _of_objects(self, mark: Mark, told: _Told) -> Generator[Sample, None, None]:
        ordered = self.reading.of_objects(self.reader.objects(self.channel), self.epoch)
        items = self.shard.of(ordered)
        for item in islice(items, mark.object):
            self._begin(mark, self.reader.key_of(self.channel, item))
        if mark.begun < mark.object:
            raise self._fewer(mark, mark.begun, "objects")
        with closing(self._open(items)) as streams:
            for key, stream in streams:
                told.key = key
                with closing(stream):
                    self._begin(mark, key or "")
                    yield from self.form.split(stream, key, mark)
                mark.object += 1
                mark.start = mark.position = 0
        if mark.start or mark.begun < mark.expected[0]:
            raise self._fewer(mark, mark.begun, "objects")

    def _begin(self, mark: Mark, key: str) -> None:
        if not mark.begin(key):
            raise ChannelError(
                f"channel {self.channel.name!r}: there are other objects than when the state was taken, up to {key!r}: the data"
                " has changed; begin the epoch anew"
            )

    def _left(self, samples: Iterator[Sample], mark: Mark) -> Iterator[Sample]:
        """What is left of a shard's samples, where some have been read before; ChannelError where there are not so many."""
        before = sum(1 for _ in islice(samples, mark.object))
        if before < mark.object:
            raise self._fewer(mark, before, "samples")
        return samples

    def _fewer(self, mark: Mark, count: int, what: str) -> ChannelError:
        return ChannelError(
            f"channel {self.channel.name!r}: the state says that {max(mark.object, mark.expected[0]):,} {what} of this shard were"
            f" begun, but there are {count:,}: the data has changed; begin the epoch anew"
        )

    def _pass_by(self) -> None:
        """Nothing is left of this shard; where others read a Pipe side by side with it, they have to be told."""
        if self.is_dealt:
            finish_shard(self.channel, self.epoch, self.form, self.shard, self._shuffled)

    def _open(self, chosen: Iterable[Any]) -> Generator[tuple[str | None, ByteStream], None, None]:
        if self.cache is None:
            return self.reader.open_objects(self.channel, chosen)
        return self.cache.open_objects(self.reader, self.channel, chosen)

    def _of_stream(self, mark: Mark) -> Generator[Sample, None, None]:
        """A Pipe's samples. Where they are dealt out or wrapped, the mark counts those of this shard."""
        if self.is_dealt or has_broker(self.channel):
            if mark.start:
                raise ChannelError(
                    f"channel {self.channel.name!r}: the state is of a Pipe's only reader, and here are several; use as many as"
                    " before, or begin the epoch anew"
                )
            with closing(read_shard(self.channel, self.epoch, self.form, self.shard, mark, self._shuffled)) as dealt:
                for sample in self._left(dealt, mark):
                    mark.object += 1
                    yield sample
            return
        wrapped = self.channel.record_wrapper == "RecordIO"
        for _, stream in self.reader.open_streams(self.channel, self.epoch, EVERYTHING):
            with closing(stream):
                if self.shard == EVERYTHING and not wrapped and not mark.object:
                    yield from self.form.split(stream, None, mark)
                    continue
                # Each record is one object as it lies in the bucket, and has its own format inside.
                split = self.form.split
                samples = recordio.unwrapped(stream, split) if wrapped else split(stream, None)
                for sample in self._left(self.shard.of(samples), mark):
                    mark.object += 1
                    yield sample


@dataclass
class _Told:
    """The object that is being read, for what goes wrong with it."""

    key: str | None = None
