"""Files that any function opens, as a dataset."""

# ruff: noqa: TID253 - a dataset of torch

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from sagemaker_channels.formats import format_of
from sagemaker_channels.sample import Sample


class Files(IterableDataset[Sample]):
    """The samples of objects that any function opens, divided among the workers: what our readers are compared with.

    `names` has the same order in every process. `opened` returns the file object of a name; it must pickle if workers are started
    by spawn. `format` is what an object holds: a word of formats.SHORT_NAMES.
    """

    def __init__(self, names: Sequence[str], opened: Callable[[str], Any], format: str) -> None:
        super().__init__()
        self._names, self._opened, self._format = names, opened, format

    def __iter__(self) -> Iterator[Sample]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        form = format_of(self._format)
        for name in self._names[first::step]:
            with closing(self._opened(name)) as stream:
                yield from form.split(stream, name)
