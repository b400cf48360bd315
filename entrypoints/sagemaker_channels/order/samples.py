"""A shard's samples in one epoch: an iterator with a state, shuffled in blocks or not."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.fetching.background import in_background
from sagemaker_channels.meter import Meter, Work, read_block, received, waited
from sagemaker_channels.order.sampling import OpenSamples, Order, ShardCursor, in_order
from sagemaker_channels.order.states import VERSION, Layout, State, resumption
from sagemaker_channels.order.work import Piece, Position
from sagemaker_channels.sample import Sample, weight


class Samples:
    """A shard's samples in one epoch: an iterator with a state.

    Args:
        open_samples: Yields the samples from a cursor's position on and moves the cursor.
        order: Their order.
        about: What is read (channel, format); a state can be loaded only into an iterator of the same.
    """

    damage: Any = None  # what is skipped (records/damage.py)
    counted: Callable[[], int]  # returns the number of the shard's samples; raises TypeError if no index has it

    def __init__(self, open_samples: OpenSamples, order: Order, about: State) -> None:
        self.epoch, self._order, self._at = order.epoch, order, ShardCursor()
        self.about = {**about, **order.described()}
        source = open_samples(self._at)
        # Unshuffled, the caller iterates over the reader itself: another call for each sample would be noticeable.
        self._blocks = None if order.reading.seed is None else _Blocks(order, self._at, self.channel)
        self._samples = source if self._blocks is None else self._blocks.shuffled(source)

    def __iter__(self) -> Iterator[Sample]:
        return self._samples

    def __next__(self) -> Sample:
        return next(self._samples)

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading and close the streams. Dropping the iterator does so too, when Python finalizes it."""
        self._samples.close()

    @property
    def finished(self) -> bool:
        """Whether the shard was read to its end, here or before the loaded state was taken."""
        return self._at.finished if self._blocks is None else self._blocks.finished

    @property
    def is_exact(self) -> bool:
        """Whether this continues at the position of the loaded state, and not with another shard of what is left."""
        return self._at.resumption.exact

    def finish(self) -> None:
        """Treat the shard as read to its end, without opening anything."""
        self.close()
        self._at.finished = True
        if self._blocks is not None:
            self._blocks.finished = True

    @property
    def position(self) -> Position:
        """The position of the next sample."""
        if self._blocks is not None:
            return self._blocks.position()
        item, position, pin = self._at.place()
        return Position(item, position, pin=pin)

    def place(self) -> str:
        """Return, in words, where the sample is that was yielded last."""
        at = self.position
        if self._blocks is None:
            return f"it ends at position {at.position} of object {at.item}"
        return f"the next one is sample {at.given} of block {at.block}; without a seed, this names its position"

    @property
    def channel(self) -> str:
        return str(self.about["channel"])

    def state_dict(self) -> State:
        """Return the position of the next sample, or that there is none."""
        layout = self._layout
        restart = self._order.unrepeatable
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "finished": self.finished,
            "of": self.about,
            "count": layout.count,
            "assigned": layout.assigned,
            "left": self._at.resumption.left,
            "shards": {str(layout.index): list(Position() if restart and not self.finished else self.position)},
            "ended": [layout.index] if self.finished else [],
            "listing": self._at.listing(),
            **({"restart": True} if restart else {}),
        }

    def load_state_dict(self, state: State) -> None:
        """Resume at a state of the same channel, format, epoch and seed; call it before the first sample.

        The state is one of the same shard, or one that `merge_states` made of all shards. Reading then raises ChannelError if the
        objects up to the position are not the same as before, or a partly read one was rewritten; others that were are not noticed.

        Raises:
            ChannelError: The state is damaged or does not match, or a sample was read already.
        """
        if inspect.getgeneratorstate(self._samples) != inspect.GEN_CREATED:
            raise ChannelError("a state must be loaded before the first sample is read; open the channel again")
        order = self._order
        begin = resumption(
            state,
            {"epoch": self.epoch, **self.about},
            self._layout,
            order.seed_of,
            in_order if order.by_samples else None,
        )
        at = self._at
        at.resumption, at.finished = begin, begin.ended
        at.item, at.start = begin.at.item, begin.at.position
        at.position = at.start
        if self._blocks is not None:
            self._blocks.finished = begin.ended
            self._blocks.resume(begin.at)

    @property
    def _layout(self) -> Layout:
        return Layout(self._order.shard.index, self._order.shard.count, self._order.assigned)


class _Block(NamedTuple):
    samples: list[Sample]
    after: tuple[int, int, int]  # item, position and version of the item's object
    piece: Piece | None  # which it is, if an earlier reader began it


class _Blocks:
    """Samples shuffled in blocks, and how many were yielded."""

    # It has no reference to its Samples: a reference cycle would keep the source open until garbage collection.

    def __init__(self, order: Order, at: ShardCursor, channel: str) -> None:
        self._order, self._at, self._channel = order, at, channel
        self.finished = False
        self._left = False
        self.resume(Position())

    def resume(self, at: Position) -> None:
        self._begun, self._end = (at.item, at.position, at.pin), (at.end, at.end_position, at.end_pin)
        self._number, self._given, self._count = at.block, at.given, at.samples

    def position(self) -> Position:
        """Return the position of the next sample."""
        item, position, pin = self._begun
        if not self._given:
            return Position(item, position, self._number, pin=pin)
        end, end_position, end_pin = self._end
        return Position(item, position, self._number, self._given, self._count, end, end_position, pin, end_pin)

    def shuffled(self, source: Generator[Sample, None, None]) -> Generator[Sample, None, None]:
        with closing(self._from_broker(source) if self._order.assigned else self._from_reader(source)) as blocks:
            for block, after, piece in blocks:
                shuffled = in_order(block, piece.seed) if piece else self._order.of_block(block, self._number)
                samples: list[Any] = list(shuffled)
                block.clear()
                if self._given and (self._count, self._end) != (len(samples), after):
                    raise self._changed()
                self._count, self._end = len(samples), after
                last = len(samples) - 1
                for number in range(max(self._given, piece.given if piece else 0), len(samples)):
                    self._given = number + 1
                    if number == last:
                        self._begun, self._given = after, 0
                        self._number += 1
                    sample, samples[number] = samples[number], None  # frees memory for the next block
                    yield sample
            if self._given:
                raise self._changed()
            self.finished = True

    def _changed(self) -> ChannelError:
        return ChannelError(
            f"channel {self._channel!r}: block {self._number} of the shuffled samples has another size or another end than it"
            " had when the state was taken: an object was rewritten; restart the epoch"
        )

    def _from_reader(self, source: Generator[Sample, None, None]) -> Generator[_Block, None, None]:
        with closing(source):
            while (read := read_block(partial(self._read, source), lambda block: len(block.samples))).samples:
                yield read

    def _from_broker(self, source: Generator[Sample, None, None]) -> Generator[_Block, None, None]:
        """Yield the blocks of a Pipe with several readers, and read the next one meanwhile.

        A reader that does not take its samples blocks the others, and none yields a sample before its block is full.
        """
        # In a thread: a silent Pipe must not keep the caller from leaving.
        read_block = partial(in_background, partial(_ahead, partial(self._read, source)), "next-block")
        coming = read_block()
        try:
            while (read := _waited_for(coming)).samples:
                coming = read_block()
                yield read
        finally:
            # Do not wait here: Python may be finalizing this generator, and would lose a Ctrl-C during the wait.
            self._left = True
            if coming.done():
                source.close()  # Otherwise the thread that reads from it closes it, after its next sample.

    def _read(self, source: Generator[Sample, None, None]) -> _Block:
        block: list[Sample] = []
        size, reading, at = 0, self._order.reading, self._at
        for sample in source:
            block.append(sample)
            # All shards of a Pipe end their blocks together, so that none waits for samples that another does not take.
            full = at.cut
            if not self._order.assigned:
                size += weight(sample)
                full = full or len(block) == reading.block or size >= reading.block_bytes
            if full or self._left:
                break
        if self._left:
            source.close()
        piece, at.piece = at.piece, None
        return _Block(block, at.place(), piece)


def _ahead(read: Callable[[], _Block]) -> tuple[_Block, Work]:
    """Read in a thread that works ahead for another; return what was read, and the work."""
    meter = Meter(lambda *_: None)
    meter.start()
    return read(), meter.work


def _waited_for(coming: Future[tuple[_Block, Work]]) -> _Block:
    """Wait for what a thread reads ahead, and count its bytes and the time in which it was blocked meanwhile."""
    begin = time.perf_counter()
    read, work = coming.result()
    waited(max(begin, time.perf_counter() - work.blocked))
    received(work.bytes)
    return read
