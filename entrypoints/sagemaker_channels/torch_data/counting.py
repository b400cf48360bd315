"""The number of samples of an iterable dataset, if an index has it."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from sagemaker_channels.epoch.placement import Placement
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.torch_data import frameworks


class CountedDataset(IterableDataset[Any]):
    """A dataset with a length, whose loops use what was listed for it, and the other way round."""

    _counted: tuple[Placement, list[Samples]] | None  # by `len`, for the next loop
    _begun: tuple[Placement, list[Samples]] | None  # of the last loop, for `len`

    @property
    def epoch(self) -> int:
        """The epoch of the next loop."""
        raise NotImplementedError

    @property
    def placement(self) -> Placement:
        """Where to read."""
        raise NotImplementedError

    def samples(self, reader: int = 0, readers: int = 1, epoch: int | None = None) -> Samples:
        """Return the samples of one of this rank's readers."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of this rank's samples in the next epoch. Raises TypeError with the reason if no index has it.

        A DataLoader with several workers gets a multiple of its batch size, from which it computes its exact number of batches.
        """
        loader = frameworks.loader_that_counts()
        if loader is not None and loader.batch_size is not None:
            return loader.batch_size * self.batches(loader.batch_size, loader.num_workers, drop_last=loader.drop_last)
        return sum(self._counts(1))

    def batches(self, size: int, readers: int, *, drop_last: bool) -> int:
        """Return the number of batches of so many samples. Raises TypeError like `len`."""
        rest = 0 if drop_last else size - 1
        return sum((count + rest) // size for count in self._counts(readers))

    def _counts(self, readers: int) -> list[int]:
        """Return the number of samples of each of so many readers; what was listed for it is used again."""
        self._check_can_count()
        # `list` asks for the length after its loop has begun, before it reads.
        if (begun := self._listed(self._begun, readers, self.epoch)) and all(each.is_unread for each in begun):
            return [each.counted() for each in begun]
        made = self._listed(self._counted, readers, self.epoch) or [
            self.samples(each, readers) for each in range(readers)
        ]
        counts = [each.counted() for each in made]
        self._counted = self.placement, made
        return counts

    def _listed(self, known: tuple[Placement, list[Samples]] | None, readers: int, epoch: int) -> list[Samples] | None:
        """Return the samples that are known, if they are those of so many readers in an epoch."""
        if known is None or known[0] != self.placement or (len(known[1]), known[1][0].epoch) != (readers, epoch):
            return None
        return known[1]

    def _check_can_count(self) -> None:
        """Raise TypeError if filters or transforms change the number of samples."""

    def __bool__(self) -> bool:
        return True  # without counting
