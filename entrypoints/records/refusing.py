"""Samples that a format cannot hold: one error for all writers. It says which sample, which field and what is expected.

What would be lost, or could not be read back, is refused when it is written, where the one who knows the samples is there.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from entrypoints.sample import DATA, KEY


class SampleError(ValueError):
    """A sample that cannot be written: its number, counted from 0, its `__key__` or None, and the reason."""

    def __init__(self, number: int, key: object, reason: str) -> None:
        super().__init__(number, key, reason)

    def __str__(self) -> str:
        number, key, reason = self.args
        return f"sample {number}{'' if key is None else f' (__key__ {key!r})'}: {reason}"


def refusal(number: int, sample: Mapping[str, Any], reason: object) -> SampleError:
    """The error of a sample."""
    return SampleError(number, sample.get(KEY), str(reason))


def content(number: int, sample: Mapping[str, Any], field: str) -> bytes:
    """A field's bytes. Raises SampleError where the field is not there or something else."""
    value = sample.get(field)
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if field not in sample:
        raise refusal(number, sample, f"it lacks field {field!r}; it has {', '.join(map(repr, sample)) or 'none'}")
    remedy = "; encode the text: .encode()" if isinstance(value, str) else ""
    raise refusal(number, sample, f"field {field!r} is {type(value).__name__}, and bytes are expected{remedy}")


def refuse_others(number: int, sample: Mapping[str, Any], known: Container[str] = (DATA,)) -> None:
    """Raises SampleError where a sample has fields that the format leaves out. A `__key__` may be there: it is the object's."""
    for field in sample:
        if field not in known and field != KEY:
            raise refusal(
                number,
                sample,
                f"field {field!r} would be lost: this format has no place for it; leave it out, or "
                "choose another format",
            )
