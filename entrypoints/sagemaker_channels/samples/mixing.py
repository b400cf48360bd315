"""Several channels as one, each sample drawn from one of them by weight."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sagemaker_channels.errors import ChannelError, is_count
from sagemaker_channels.meter import turn_to
from sagemaker_channels.order.samples import Samples
from sagemaker_channels.order.states import VERSION, State, differences
from sagemaker_channels.sample import Sample
from sagemaker_channels.samples.transformed import is_skipped

_DRAWN_AT_ONCE = 1024


class Mixture:
    """The samples of several channels, drawn by weight: an iterator with a state.

    Which source is next is a pure function of the seed, the number of samples drawn, and the sources that have ended.

    Args:
        sources: The samples of each channel; each is yielded once.
        weights: The relative frequency of each source.
        seed: Seed of the draws.
        reader: What the seed of this reader's draws has besides: epoch, rank, ranks, worker and workers.
        transforms: A function of a sample for each source.
        stop_at_first: Whether the mixture ends with the first source that ends; otherwise the others continue.

    Raises:
        ValueError: The weights are not one finite number above 0 for each source.
    """

    def __init__(
        self,
        sources: Sequence[Samples],
        weights: Sequence[float],
        *,
        seed: str,
        reader: str = "",
        transforms: Sequence[Callable[[Sample], Any] | None] | None = None,
        stop_at_first: bool = False,
    ) -> None:
        if len(sources) != len(weights):
            raise ValueError(f"{len(sources)} sources have the weights {list(weights)}; each needs one")
        self._sources, self._weights = list(sources), known_weights(weights)
        self.epoch = sources[0].epoch
        self._seed = f"{seed}/{reader}"
        self._about = {"seed": seed, "weights": self._weights, "stop_at_first": bool(stop_at_first)}
        self._transforms = transforms or [None] * len(sources)
        self.finished = False  # nothing is left
        self._drawn = 0
        self._ended: set[int] = set()
        self._choices: list[int] = []
        self._chunk = -1  # the number of the chunk that the choices are for

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while len(self._ended) < len(self._sources):
            chosen = self._choice()
            self._drawn += 1
            turn_to(chosen)
            try:
                sample = next(self._sources[chosen])
            except StopIteration:
                self._ended.update(range(len(self._sources)) if self._about["stop_at_first"] else (chosen,))
                self._chunk = -1
                continue
            transform = self._transforms[chosen]
            try:
                return sample if transform is None else transform(sample)
            except Exception as error:
                if is_skipped(error, sample, self._sources[chosen]):
                    continue
                if isinstance(error, StopIteration):
                    raise RuntimeError("a transform raised StopIteration") from error  # It would end the epoch.
                raise
        self.finished = True
        raise StopIteration

    def counted(self) -> int:
        """Return the number of samples. Raises TypeError if it depends on the draws, or no index has it."""
        if self._about["stop_at_first"]:
            raise TypeError("the number of samples of a mixture that stops at its first channel's end is unknown")
        return sum(source.counted() for source in self._sources)

    def close(self) -> None:
        """Close all sources."""
        for source in self._sources:
            source.close()

    def finish(self) -> None:
        """Treat all sources as read to their ends, without opening anything."""
        for source in self._sources:
            source.finish()
        self._ended.update(range(len(self._sources)))
        self.finished = True

    def state_dict(self) -> State:
        """Return the state of each source, and how many samples have been drawn."""
        now = {"version": VERSION, "epoch": self.epoch, "finished": self.finished, "of": self._about}
        states = [source.state_dict() for source in self._sources]
        return {**now, "sources": states, "draws": {self._seed: [self._drawn, sorted(self._ended)]}}

    def load_state_dict(self, state: State) -> None:
        """Resume at a state; call it before the first sample is read. Raises ChannelError like Samples'.

        If the state is of another number of readers, the draws begin again over what is left of each channel.
        """
        differ = differences(self._about, state.get("of") or {})
        sources, draws = state.get("sources"), state.get("draws")
        complete = isinstance(sources, list) and len(sources) == len(self._sources) and isinstance(draws, dict)
        complete = complete and all(map(_are_draws, (draws or {}).values()))
        if differ or not complete:
            raise ChannelError(
                f"the state was saved by another mixture: {differ or 'it is not of these channels'}; mix as before, or restart"
                " the epoch"
            )
        # A Pipe that SageMaker shuffles begins again: its merged state is only an epoch.
        begun = [(source, of) for source, of in zip(self._sources, sources or (), strict=True) if "version" in of]
        for source, of_source in begun:
            source.load_state_dict(of_source)
        if all(source.is_exact for source, _ in begun) and len(begun) == len(self._sources):
            self._drawn, ended = (draws or {}).get(self._seed, (0, ()))
            self._ended = set(ended)
            self.finished = len(self._ended) == len(self._sources)
        if state.get("finished"):
            self._ended, self.finished = {*range(len(self._sources))}, True

    def _choice(self) -> int:
        chunk, place = divmod(self._drawn, _DRAWN_AT_ONCE)
        if chunk != self._chunk:
            # Once a source has ended, the same random numbers choose among the others.
            left = [number for number in range(len(self._sources)) if number not in self._ended]
            chance = random.Random(f"mixture/{self._seed}/{chunk}")
            self._choices = chance.choices(left, [self._weights[number] for number in left], k=_DRAWN_AT_ONCE)
            self._chunk = chunk
        return self._choices[place]


def _are_draws(draws: Any) -> bool:
    """Return whether a value of a state is a number of draws and the numbers of the sources that have ended."""
    drawn, ended = draws if isinstance(draws, list) and len(draws) == 2 else (None, None)
    return is_count(drawn) and isinstance(ended, list) and all(map(is_count, ended))


def known_weights(weights: Iterable[Any]) -> list[float]:
    """Return a mixture's weights as floats. Raises ValueError unless each is a finite number above 0."""
    given = list(weights)
    try:
        known = [float(weight) for weight in given if not isinstance(weight, str)]
    except TypeError:
        known = []
    # NaN is not above 0, and an infinite weight makes the sum infinite.
    if not given or len(known) < len(given) or not all(weight > 0 for weight in known) or sum(known) == math.inf:
        raise ValueError(f"the channels of a mixture have the weights {given}; each needs one, a finite number above 0")
    return known
