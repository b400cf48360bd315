"""Several channels as one, each sample drawn from one of them by weight: a reader whose position nests those of its sources."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable, Sequence
from numbers import Real
from typing import Any

from sagemaker_channels.epoch.deals import FRESH, Deal, Position
from sagemaker_channels.epoch.reader import Positioned
from sagemaker_channels.epoch.states import Listing
from sagemaker_channels.epoch.transformed import NO_STEPS, Make, Place
from sagemaker_channels.errors import expect
from sagemaker_channels.meter import turn_to

_DRAWN_AT_ONCE = 1024


class MixedSource:
    """The sources of several channels in an epoch (objects.Source), drawn by weights with a seed."""

    steps = NO_STEPS  # Each source has its own.

    def __init__(self, sources: Sequence[Any], weights: Sequence[float], seed: int) -> None:
        self.sources, self.weights, self.draws = list(sources), weights, seed
        self.epoch = self.sources[0].epoch
        for number, source in enumerate(self.sources):
            source.number = number
        self.who = "mixture of " + ", ".join(each.who for each in self.sources)

    def reader(self, history: Sequence[Deal], index: int, count: int, at: Position) -> MixedReader:
        return MixedReader(self, history, index, count, at)

    def maker(self) -> Make:
        """Return what finishes a sample, which comes with the number of its source."""
        makers = [source.maker() for source in self.sources]

        def make(item: Any, place: Place) -> Any:
            number, sample = item
            turn_to(number, 0)  # A loader's threads transform what another one reads.
            make_one = makers[number]
            return sample if make_one is None else make_one(sample, place)

        return make

    def leave(self) -> None:
        for source in self.sources:
            source.leave()

    @property
    def begun(self) -> list[Any]:
        return [source.begun for source in self.sources]

    def count(self, index: int, count: int) -> int:
        """Return the number of samples of one of so many readers. Raises TypeError if no index has it."""
        return sum(source.count(index, count) for source in self.sources)

    def listing_of(self, begun: list[Any]) -> Listing:
        return {
            name: pair
            for source, of in zip(self.sources, begun, strict=True)
            for name, pair in source.listing_of(of).items()
        }

    def expect(self, listing: Listing) -> None:
        for source in self.sources:
            source.expect(listing)


class MixedReader(Positioned):
    """Which source is next is a pure function of the seed, the number of samples drawn, and the sources that have ended."""

    def __init__(
        self, source: MixedSource, history: Sequence[Deal], index: int, count: int, at: Position = FRESH
    ) -> None:
        super().__init__(source, history, index, count, at)
        positions = (at or {}).get("sources") or [None if at is None else FRESH] * len(source.sources)
        self.drawn = (at or {}).get("drawn", 0)
        self._seed = f"mixture/{source.draws}/{source.epoch}/{f'{len(history)}/' if history else ''}{index}/{count}"
        self.readers = [
            each.reader([[_of(position, number) for position in deal] for deal in history], index, count, of_source)
            for number, (each, of_source) in enumerate(zip(source.sources, positions, strict=True))
        ]
        self._last = 0  # the source of the last sample

    def place_of_last(self) -> str:
        return str(self.readers[self._last].place_of_last())

    def _position(self) -> dict[str, Any]:
        return {"sources": [reader.at for reader in self.readers], "drawn": self.drawn}

    def __iter__(self) -> Generator[Any, None, None]:
        iterators = [iter(reader) for reader in self.readers]
        left, nothing = [number for number, reader in enumerate(self.readers) if not reader.ended], object()
        try:
            while left and not self.ended:
                chunk, place = divmod(self.drawn, _DRAWN_AT_ONCE)
                # Once a source has ended, the same random numbers choose among the others.
                chance, weights = random.Random(f"{self._seed}/{chunk}"), [self.source.weights[each] for each in left]
                for chosen in chance.choices(left, weights, k=_DRAWN_AT_ONCE)[place:]:
                    self.drawn += 1
                    turn_to(chosen)
                    sample = next(iterators[chosen], nothing)
                    if sample is nothing:
                        left.remove(chosen)
                        break
                    self._last = chosen
                    yield chosen, sample
            self.ended = all(reader.ended for reader in self.readers)
        finally:
            for each in iterators:
                each.close()


def _of(position: Position, number: int) -> Position:
    if position is None:
        return None
    of_source: Position = position["sources"][number] if "sources" in position else position
    return of_source


def known_weights(weights: Iterable[Any]) -> list[float]:
    """Return a mixture's weights as floats. Raises ValueError unless each is a finite number above 0."""
    expect(isinstance(weights, Iterable), "weights", weights, "a list with a number for each dataset")
    given = list(weights)
    known = [float(each) for each in given if isinstance(each, Real)]
    # NaN is not above 0, and an infinite weight makes the sum infinite.
    if not given or len(known) < len(given) or not all(each > 0 for each in known) or sum(known) == math.inf:
        raise ValueError(f"the channels of a mixture have the weights {given}; each needs one, a finite number above 0")
    return known
