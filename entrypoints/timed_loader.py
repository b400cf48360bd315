"""Any loader, such that its loops record their waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from entrypoints.errors import expect
from entrypoints.sample import weight
from entrypoints.waits import Waits, Work, Write, about, are_recorded, write_record

T = TypeVar("T")


class Timed:
    """A loader whose loops are timed; everything else is the loader's."""

    def __init__(self, loader: Any, channel: str | None, write: Write | None) -> None:
        dataset = getattr(loader, "dataset", None)
        self._loader = loader
        self._write: Write = write if write is not None else getattr(dataset, "write_waits", None) or write_record
        self._shared = getattr(dataset, "shared_work", None)  # of our datasets
        if dataset is not None and self._shared is not None:
            dataset.is_timed = True
        name, mode = getattr(dataset, "source", ("loader", "unknown"))
        self._about = about(channel or name, mode, getattr(loader, "num_workers", 0))

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
        seen = Work()

        def count(batches: Iterable[Any]) -> Iterator[Any]:
            for batch in batches:
                seen.samples += getattr(self._loader, "batch_size", None) or 1
                seen.bytes += weight({"": tuple(batch) if isinstance(batch, list) else batch})
                yield batch

        shared = self._shared
        batches = self._loader if shared is not None else count(self._loader)
        done = shared.total if shared is not None else lambda: Work(samples=seen.samples, bytes=seen.bytes)
        yield from Waits(self._about, done, self._write).loop(batches)


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
