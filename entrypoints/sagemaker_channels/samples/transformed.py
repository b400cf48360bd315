"""Transformed samples, without those on which the transform fails as far as `skip_damaged` allows it (records/damage.py)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from sagemaker_channels.order.samples import Samples
from sagemaker_channels.records.damage import Damage
from sagemaker_channels.sample import KEY, Sample
from sagemaker_channels.samples.error_notes import add_sample_note


def transformed(samples: Samples, transform: Callable[[Sample], Any]) -> Generator[Any, None, None]:
    """Yield the transformed samples without the damaged ones. An error of the transform gets a note with the sample's place."""
    sample: Any
    for sample in samples:
        try:
            sample = transform(sample)  # one name, so that only one of the two is in memory
        except Exception as error:
            if not is_skipped(error, sample, samples):
                raise
            continue
        yield sample
        sample = None  # frees it while the next is read


def is_skipped(error: Exception, sample: Sample, samples: Samples) -> bool:
    """Return whether the sample that `samples` yielded last, on which a transform failed, is skipped.

    If not, the error gets a note with its place.
    """
    damage: Damage | None = samples.damage
    if damage is None or not damage.allows(error):
        add_sample_note(error, sample, samples)
        return False
    damage.skip(error, sample.get(KEY), samples.place())
    return True
