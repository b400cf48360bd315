"""The state of a rank's loader: of its readers, after the batch that the loop got last."""

# ruff: noqa: TID253 - it has a base class for loaders of torch

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DataLoader

from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.epoch.states import State, united
from sagemaker_channels.torch_data.stream_dataset import StreamDataset


class Positions:
    """The positions of a loader's readers, which make batches in turns.

    Args:
        dataset: What they read.
        readers: Their number.
    """

    def __init__(self, dataset: StreamDataset, readers: int) -> None:
        self._dataset, self._readers = dataset, readers
        self._epoch = -1  # of the last loop
        self.is_ended = False
        self._states: list[Callable[[], State]] = []
        self.turn = 0  # of the next batch

    def begin(self, samples: Sequence[Samples], state: State | None) -> None:
        """Begin a loop over samples that are at a state."""
        self._epoch, self.is_ended = samples[0].epoch, False
        states = [each.state_dict() for each in samples]  # before they are read
        self._states = [lambda state=each: state for each in states]  # type: ignore[misc]
        self.turn = self._turn_of(state, states)

    def _turn_of(self, state: State | None, states: Sequence[State]) -> int:
        """Return the turn of a loaded state, if its readers are these."""
        turn, among = (state or {}).get("turn", {}).get(self._group(states), (0, 0))
        return turn if among == self._readers and state and state["history"] == states[0]["history"] else 0

    def move(self, reader: int, state: Callable[[], State]) -> None:
        """Record where a reader is after its batch, which the loop gets now."""
        self._states[reader], self.turn = state, (reader + 1) % self._readers

    def end(self) -> None:
        """Record that every reader has ended."""
        self.is_ended = True

    def state_dict(self) -> State:
        """Return the state of all readers."""
        epoch = self._dataset.epoch
        if not self._states or self._epoch not in (epoch, epoch - self.is_ended):
            states = [each.state_dict() for each in self._dataset.waiting(self._readers)]
            return self._of_all(states, self._turn_of(self._dataset.epochs.waiting, states))
        state = self._of_all([each() for each in self._states], self.turn)
        return {**state, "at": dict.fromkeys(state["at"])} if self.is_ended else state

    def load_state_dict(self, state: State) -> None:
        """Continue at a state of any loader, rank or job with the next loop."""
        self._dataset.load_state_dict(state)
        self._states = []

    def _of_all(self, states: Sequence[State], turn: int) -> State:
        state = united(states)
        if self._readers > 1:
            state["turn"][self._group(states)] = [turn, self._readers]
        return state

    def _group(self, states: Sequence[State]) -> str:
        return f"readers of {min(states[0]['at'], key=int)}"


class PositionedLoader(DataLoader[Any]):
    """A loader of a dataset that knows its position. `stream` is the dataset, `readers` the number of its parts that are read."""

    stream: StreamDataset
    readers: int

    def _read_by(self, dataset: StreamDataset, size: int, readers: int, *, drops_last: bool) -> None:
        self.stream, self.readers, self._size, self._drops_last = dataset, readers, size, drops_last
        self._positions = Positions(dataset, readers)

    def __len__(self) -> int:
        """The number of batches in the next epoch. Raises TypeError with the reason if no index has that of the samples."""
        return self.stream.batches(self._size, self.readers, drop_last=self._drops_last)

    def __bool__(self) -> bool:
        return True  # without counting

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the dataset's next iteration, from 0."""
        self.stream.set_epoch(epoch)

    def state_dict(self) -> State:
        """Return the position of the last iteration: after the batch that it yielded last."""
        return self._positions.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Continue at a state of any loader or dataset, or at the merged one of all ranks, with the next iteration.

        After a finished epoch of all ranks the next one follows; a rank that has finished its own part yields no batch.

        Raises:
            ChannelError: It is no state of ours.
        """
        self._positions.load_state_dict(state)


def check_dataset(dataset: Any, loader: str) -> None:
    """Raise TypeError unless a dataset has readers and states."""
    if not isinstance(dataset, StreamDataset):
        raise TypeError(
            f"a {loader} needs a ChannelDataset or a MixedDataset, not a {type(dataset).__name__}; use torch's DataLoader, or a"
            " ChannelDataset of the same channel"
        )
