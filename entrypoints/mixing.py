"""Several channels as one, each sample drawn from one of them by weight."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from entrypoints.errors import ChannelError
from entrypoints.sample import Sample
from entrypoints.sampling import VERSION, Samples, State

_DRAWN_AT_ONCE = 1024


class Mixture:
    """The samples of several sources, drawn by weight: an iterator that can say where it stands.

    Each sample comes once, by its source's transform. Where a source has ended the others go on, by their weights among each
    other, or, with `stop_at_first`, all end. Which source is next is a pure function of `seed` and of how many have been drawn.
    """

    def __init__(
        self,
        sources: Sequence[Samples],
        weights: Sequence[float],
        *,
        seed: str,
        transforms: Sequence[Callable[[Sample], Any] | None] | None = None,
        stop_at_first: bool = False,
    ) -> None:
        if len(sources) != len(weights) or not sources or any(weight <= 0 for weight in weights):
            raise ValueError(f"{len(sources)} sources have the weights {list(weights)}; each needs one above 0")
        self._sources, self._weights = list(sources), list(weights)
        self.epoch = sources[0].epoch
        self._seed, self._stop_at_first = seed, stop_at_first
        self._transforms = transforms or [None] * len(sources)
        self.finished = False  # nothing is left
        self._drawn = 0
        self._ended: set[int] = set()
        self._choices: list[int] = []
        self._chunk = -1  # the choices are those of this one

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while len(self._ended) < len(self._sources):
            chosen = self._choice()
            self._drawn += 1
            if chosen in self._ended:
                continue
            try:
                sample = next(self._sources[chosen])
            except StopIteration:
                self._ended.update(range(len(self._sources)) if self._stop_at_first else (chosen,))
                continue
            transform = self._transforms[chosen]
            return sample if transform is None else transform(sample)
        self.finished = True
        raise StopIteration

    def close(self) -> None:
        """Ends the reading of all sources."""
        for source in self._sources:
            source.close()

    def finish(self) -> None:
        """Takes all as read to its end, without touching what it would be read from."""
        self.close()
        self._ended.update(range(len(self._sources)))
        self.finished = True

    def state_dict(self) -> State:
        """Where the next sample of each source begins, and how many have been drawn."""
        states = [source.state_dict() for source in self._sources]
        drawn = {"drawn": self._drawn, "ended": sorted(self._ended), "seed": self._seed}
        return {"version": VERSION, "epoch": self.epoch, "finished": self.finished, **drawn, "sources": states}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` said; before the first sample is read. Raises ChannelError as Samples' does."""
        sources = state.get("sources", ())
        if state.get("seed") != self._seed or len(sources) != len(self._sources):
            raise ChannelError(
                "the state is of another mixture: other channels, another seed, rank or number of workers; begin the epoch anew"
            )
        self._drawn, self._ended = state["drawn"], set(state["ended"])
        self.finished = bool(state.get("finished"))
        for source, of_source in zip(self._sources, sources, strict=True):
            source.load_state_dict(of_source)

    def _choice(self) -> int:
        chunk, place = divmod(self._drawn, _DRAWN_AT_ONCE)
        if chunk != self._chunk:
            chance = random.Random(f"mixture/{self._seed}/{chunk}")
            self._choices = chance.choices(range(len(self._sources)), self._weights, k=_DRAWN_AT_ONCE)
            self._chunk = chunk
        return self._choices[place]
