"""One run of one way, in a process of its own: the digest of its samples."""

# ruff: noqa: TID253 - it runs torch's loaders

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset

from entrypoints.samples.digest import Tally
from entrypoints.ways.card import Source, Way


def batches_of(way: Way, source: Source) -> Iterable[Sequence[Any]]:
    """Return the way's own loader, or a DataLoader of its dataset; both yield lists of items."""
    opened = way.open(source)
    if not isinstance(opened, Dataset):
        return opened  # type: ignore[no-any-return]
    return DataLoader(
        opened,
        source.batch_size,
        num_workers=source.workers,
        collate_fn=list,
        multiprocessing_context=way.start_method if source.workers else None,
    )


def digest(way: Way, source: Source) -> dict[str, Any]:
    """Read everything by a way, and return the samples' count, bytes and digest."""
    tally = Tally()
    with source.exits:
        for batch in batches_of(way, source):
            for item in batch:
                tally.add(way.plain(item))
    return {"samples": tally.count, "bytes": tally.bytes, "digest": tally.hex}
