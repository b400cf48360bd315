"""What becomes of samples: filters, then a transform, without those on which it fails as far as `skip_damaged` allows it.

An error of a transform gets a note that names its sample, as part of the traceback, which a DataLoader passes on from its workers.

A transform that is a generator function makes any number of samples of one. It runs where samples are read, since batches are cut
after it; any other runs where batches are made.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from sagemaker_channels.errors import expect
from sagemaker_channels.formats.damage import Damage
from sagemaker_channels.formats.signatures import shard_in
from sagemaker_channels.sample import DATA, KEY, Sample
from sagemaker_channels.waits import timed_transform

Place: TypeAlias = Callable[[], str]  # returns where a sample is, in words
Make: TypeAlias = Callable[[Any, Place], Any]
NOTHING: Any = object()  # in place of a sample that was skipped


@dataclass(frozen=True)
class Steps:
    transform: Callable[[Sample], Any] | None = None
    filters: tuple[Callable[[Sample], Any], ...] = ()

    def __post_init__(self) -> None:
        for name, function in (("transform", self.transform), *(("filter", each) for each in self.filters)):
            expect(function is None or callable(function), name, function, "a function of a sample")

    @property
    def are_several(self) -> bool:
        function: Any = self.transform
        while isinstance(function, partial):
            function = function.func
        call = getattr(type(function), "__call__", None)  # noqa: B004 - of a class of the user's own
        return inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(call)

    @property
    def change_number(self) -> bool:
        """Whether there may be more or fewer samples than are read."""
        return bool(self.filters) or self.are_several

    def maker(self, source: Any) -> Make | None:
        """Return what makes a finished sample of a source, or NOTHING if that is damaged and skipped; None if all are finished.

        An error gets a note with the sample's place.
        """
        transform = timed_transform(self.transform)
        if transform is None or self.are_several:
            return None

        def make(sample: Any, place: Place) -> Any:
            try:
                return transform(sample)
            except Exception as error:
                if is_skipped(error, sample, source, place):
                    return NOTHING
                raise

        return make

    def keeps(self, sample: Sample, source: Any, place: Place) -> bool:
        """Return whether the filters leave a sample of a source; they do not if it is damaged and skipped."""
        try:
            return all(keeps(sample) for keeps in self.filters)
        except Exception as error:
            if is_skipped(error, sample, source, place):
                return False
            raise

    def parts(self, sample: Sample, source: Any, place: Place) -> Iterator[Any]:
        """Yield what the transform makes of a sample of a source, several of each; nothing if the filters drop it."""
        several: Any = self.transform
        if not self.keeps(sample, source, place):
            return
        try:
            yield from several(sample)
        except Exception as error:
            if not is_skipped(error, sample, source, place):
                raise


NO_STEPS = Steps()


def finished(items: Iterator[Any], make: Make, place: Place) -> Generator[Any, None, None]:
    """Yield what `make` makes of the items; `place` returns where the last one was."""
    sample: Any
    for sample in items:
        sample = make(sample, place)  # one name, so that only one of the two is in memory
        if sample is not NOTHING:
            yield sample
        sample = None  # frees it while the next is read


def is_skipped(error: Exception, sample: Any, source: Any, place: Place) -> bool:
    """Return whether a sample of a source on which a transform failed is skipped; if not, the error gets a note with its place."""
    damage: Damage = source.damage
    if not damage.allows(error):
        add_sample_note(error, sample, source.channel.name, place())
        return False
    damage.skip(error, sample.get(KEY) if isinstance(sample, dict) else None, place())
    return True


def add_sample_note(error: Exception, sample: Sample, channel: str, place: str) -> None:
    """Add a note with the channel, key and place of a sample.

    The key of a line, row or record is only its object's, and samples of a Pipe mostly have none, so the position is added. For a
    KeyError the fields come before it, where a job's failure reason shows them. Bytes that are a shard of samples are named last.
    """
    fields = f", which has the fields {', '.join(sample)}" if isinstance(error, KeyError) else ""
    more = f"{fields}; {place}"
    if found := shard_in(sample.get(DATA)):
        more += f"; its bytes are {found.what}: {found.remedy}"
    add_key_note(error, sample.get(KEY), channel, more)


def add_key_note(error: Exception, key: str | None, channel: str, more: str = "") -> None:
    """Add a note with the channel and key of the sample; `more` is appended."""
    note = f"in the transform of a sample of channel {channel!r}{'' if key is None else f' with the key {key!r}'}{more}"
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:  # Python 3.10 has no notes, so the note is the exception's cause, before what that was.
        cause = RuntimeError(note)
        cause.__cause__ = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        error.__cause__ = cause
