"""Any loader, such that its loops record their waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from sagemaker_channels.errors import expect
from sagemaker_channels.meter import Work
from sagemaker_channels.sample import weight
from sagemaker_channels.waits import RecordWriter, Waits, Write, about, are_recorded

T = TypeVar("T")


class Timed:
    """A loader whose loops are timed; everything else is the loader's."""

    def __init__(self, loader: Any, channel: str | None, write: Write | None) -> None:
        self._loader, self._channel, self._write, self._log = loader, channel or "loader", write, RecordWriter()
        self._shared = getattr(getattr(loader, "dataset", None), "shared_work", None)  # of our datasets
        if self._shared is not None:
            self._shared.is_timed = True

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if not are_recorded():
            yield from self._loader
            return
        workers = getattr(self._loader, "num_workers", 0)
        if self._shared is not None:
            # `chain` starts the workers when the first batch is waited for.
            yield from self._shared.loop(workers, write=self._write).over(chain.from_iterable([self._loader]))
            return
        seen = Work()

        def count() -> Iterator[Any]:
            for batch in self._loader:
                seen.samples += getattr(self._loader, "batch_size", None) or 1
                seen.bytes += weight({"": tuple(batch) if isinstance(batch, list) else batch})
                yield batch

        abouts = [about(self._channel, "unknown", workers)]
        yield from Waits(abouts, self._write or self._log, lambda: [replace(seen)]).meter.over(count())


def timed(loader: Iterable[T], channel: str | None = None, *, write: Write | None = None) -> Iterable[T]:
    """Return the loader such that each loop over it records its waits.

    Args:
        loader: Any iterable of batches; for a DataLoader of our datasets, the records say what was waited for, too.
        channel: The name in the records, if the loader's dataset has none.
        write: Receives the records instead of the log and the outputs.

    Raises:
        TypeError: The loader cannot be iterated over.
    """
    expect(isinstance(loader, Iterable), "loader", loader, "a loader, or another iterable of batches")
    if getattr(loader, "is_timed", False) is True:  # a ThreadLoader, which records by itself
        return loader
    return Timed(loader, channel, write)
