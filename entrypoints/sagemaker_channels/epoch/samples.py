"""The samples of one or several readers of an epoch: an iterator with a state."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from sagemaker_channels.epoch.deals import FRESH, Deal, Position
from sagemaker_channels.epoch.states import VERSION, Listing, State, at_home, checked, compared, dealt, sealed
from sagemaker_channels.errors import RESTART, ChannelError
from sagemaker_channels.sample import Sample


class Mark(NamedTuple):
    positions: list[Position]
    begun: Any
    turn: int


class Samples:
    """The samples of some readers of an epoch, one of each in turn: an iterator with a state.

    Args:
        source: What they read.
        of: What is read (channel, format and so on); a state can be loaded only into an iterator of the same.
        indexes: Which of all readers they are.
        count: The number of all readers.
    """

    def __init__(self, source: Any, of: State, indexes: Sequence[int], count: int) -> None:
        self.source, self.epoch, self.about, self._indexes, self._count = source, source.epoch, of, indexes, count
        self._resume([], [FRESH] * len(indexes), 0, {})

    def _resume(self, history: list[Deal], at: Sequence[Position], turn: int, listing: Listing) -> None:
        self._history, count = history, self._count
        self.readers = [
            self.source.reader(history, index, count, each) for index, each in zip(self._indexes, at, strict=True)
        ]
        self._turn = turn % len(self.readers)  # the number of the reader that has the next sample
        self.last = self.readers[0]  # the reader of the sample that was yielded last
        # A single reader is iterated over itself: another call for each sample would be noticeable.
        several = len(self.readers) > 1
        self._samples: Generator[Sample, None, None] = self._in_turns() if several else iter(self.readers[0])
        self.source.expect(listing)

    def _in_turns(self) -> Generator[Sample, None, None]:
        """Yield a sample of each reader in turn; the turns of those that have ended are skipped."""
        iterators: list[Any] = [iter(reader) for reader in self.readers]
        nothing: Any = object()
        try:
            while any(iterators):
                turn, self._turn = self._turn, (self._turn + 1) % len(iterators)
                sample = next(iterators[turn], nothing) if iterators[turn] else nothing
                if sample is nothing:
                    iterators[turn] = None
                else:
                    self.last = self.readers[turn]
                    yield sample
        finally:
            for iterator in filter(None, iterators):
                iterator.close()

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

    def finish(self) -> None:
        """Treat everything as read, without opening anything."""
        self._resume([], [None] * len(self._indexes), 0, {})

    def counted(self) -> int:
        """Return the number of samples of the whole epoch. Raises TypeError with the reason if no index has it."""
        return sum(self.source.count(index, self._count) for index in self._indexes)

    def mark(self, *, at_end: bool = False) -> Mark:
        """Return the position of the next sample; `at_end`: also where there is none, as long as the loop has not ended."""
        positions = [reader.place if at_end else reader.at for reader in self.readers]
        return Mark(positions, self.source.begun, self._turn)

    def state_of(self, mark: Mark) -> State:
        """Return the state at a position, without its checksum."""
        at = {str(index): each for index, each in zip(self._indexes, mark.positions, strict=True)}
        turn = {f"samples of {min(at, key=int)}": [mark.turn, len(at)]} if len(at) > 1 else {}
        if self.about.get("restart") and any(at.values()):  # No other job gets this order.
            at, turn = dict.fromkeys(at, FRESH), {}
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "of": self.about,
            "history": self._history,
            "count": self._count,
            "at": at,
            "listing": self.source.listing_of(mark.begun),
            "turn": turn,
        }

    def state_dict(self, *, at_end: bool = False) -> State:
        """Return the position of the next sample; `at_end`: also where there is none."""
        return sealed(self.state_of(self.mark(at_end=at_end)))

    def load_state_dict(self, state: State) -> None:
        """Continue at a state of the same channel, format, epoch and seed; call it before the first sample.

        The state is one of the same readers, or one that `merge_states` made of all. Reading then raises ChannelError if the
        objects up to the position are not the same as before, or a partly read one was rewritten; others that were are not noticed.

        Raises:
            ChannelError: The state is damaged or does not match, or a sample was read already.
        """
        if inspect.getgeneratorstate(self._samples) != inspect.GEN_CREATED:
            raise ChannelError(
                "a state must be loaded before the first sample is read", remedy="open the channel again"
            )
        state = checked(state)
        here, there = {**self.about, "epoch": self.epoch}, {**at_home(state["of"], self.about), "epoch": state["epoch"]}
        if differ := compared(here, there):
            raise ChannelError(
                f"the state does not match this reading: it has {differ[1]}, but this reader has {differ[0]}",
                remedy=RESTART,
            )
        history, at = dealt(state, self._indexes, self._count)
        turn, among = state["turn"].get(f"samples of {min(self._indexes)}", (0, 0))
        is_same = history is state["history"] and among == len(self._indexes)
        self._resume(history, at, turn if is_same else 0, state["listing"])

    def place(self) -> str:
        """Return, in words, where the sample is that was yielded last."""
        return str(self.last.place_of_last())
