"""Loaders for frameworks that run the loop themselves: equally many batches on every rank, and one state of all ranks."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sagemaker_channels.epoch.states import State
from sagemaker_channels.errors import ChannelError, expect
from sagemaker_channels.torch_data.frameworks import check_stateful
from sagemaker_channels.torch_data.ranks import Stateful, even_batches, gather_state


class EvenLoader:
    """The batches of a loader, equally many on every rank as `even_batches` yields them, for HF's Trainer and the like.

    Args:
        loader: A ThreadLoader, WorkerLoader, or DataLoader, which does not know its position, of a ChannelDataset or
            MixedDataset. A rank that has no batch in the last step gets a copy of another rank's.
    """

    def __init__(self, loader: Any) -> None:
        expect(hasattr(loader, "dataset"), "loader", loader, "a ThreadLoader, WorkerLoader or DataLoader")
        self.loader, self.dataset = loader, getattr(loader, "stream", loader.dataset)

    @property
    def drop_last(self) -> bool:
        """What accelerate's skip_first_batches asks, with which HF's Trainer resumes."""
        raise ChannelError(
            "this loader resumes at its own position, so no batches must be skipped",
            remedy="use TrainingArguments(ignore_data_skip=True),"
            " and load_state_dict() with the position that was saved beside the checkpoint",
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, from 0."""
        self.dataset.set_epoch(epoch)

    def __iter__(self) -> Generator[Any, None, None]:
        return (batch for batch, _ in even_batches(self.loader))

    def state_dict(self) -> State:
        """Return the merged state of all ranks. A collective call: every rank must make it."""
        return gather_state(self.loader)

    def load_state_dict(self, state: State) -> None:
        """Resume at the state of any number of ranks with the next iteration."""
        getattr(self.loader, "load_state_dict", self.dataset.load_state_dict)(state)


class _At:
    """A loader that was at a state."""

    def __init__(self, state: State) -> None:
        self.state_dict = lambda: state

    load_state_dict: Any = None


class LightningLoader(EvenLoader):
    """An EvenLoader for Lightning's Trainer, which stores its state in the checkpoint.

    Lightning takes the state on every rank and stores that of rank 0, so it is of all ranks. Since the loader has no length,
    Lightning fetches one batch ahead, so the state is that before the last batch.

    Raises:
        ChannelError: The loader does not know its position.
    """

    def __init__(self, loader: Stateful) -> None:
        check_stateful(loader)
        super().__init__(loader)
        self._before: State | None = None
        self._now: State | None = None

    def __iter__(self) -> Generator[Any, None, None]:
        self._before = self._now = self.loader.state_dict()
        for batch in super().__iter__():
            self._before, self._now = self._now, self.loader.state_dict()
            yield batch
        self._before = self._now = self.loader.state_dict()

    def state_dict(self) -> State:
        return gather_state(_At(self._before or self.loader.state_dict()))
