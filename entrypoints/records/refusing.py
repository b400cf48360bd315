"""Errors of samples that a format cannot hold. They name the sample, its field and what is expected.

What would be lost, or not read back the same, is refused when it is written, where the author of the samples sees it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from entrypoints.sample import DATA, KEY, Sample


class SampleError(ValueError):
    """A sample that cannot be written: its number, counted from 0, its `__key__` or None, and the reason."""

    def __init__(self, number: int, key: object, reason: str) -> None:
        super().__init__(number, key, reason)

    def __str__(self) -> str:
        number, key, reason = self.args
        return f"sample {number}{'' if key is None else f' (__key__ {key!r})'}: {reason}"


def refusal(number: int, sample: Mapping[str, Any], reason: object) -> SampleError:
    """Return the error of a sample."""
    return SampleError(number, sample.get(KEY), str(reason))


def content(number: int, sample: Mapping[str, Any], field: str) -> bytes:
    """Return a field's bytes. Raises SampleError if the field is missing or is not bytes."""
    value = sample.get(field)
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if field not in sample:
        raise refusal(
            number, sample, f"field {field!r} is missing; the sample has {', '.join(map(repr, sample)) or 'none'}"
        )
    remedy = "; encode the text: .encode()" if isinstance(value, str) else ""
    raise refusal(number, sample, f"field {field!r}: expected bytes, got {type(value).__name__}{remedy}")


def refuse_others(number: int, sample: Mapping[str, Any], known: Container[str] = (DATA,)) -> None:
    """Raise SampleError if a sample has fields that the format leaves out, except for a `__key__`, which names its object."""
    for field in sample:
        if field not in known and field != KEY:
            raise refusal(
                number, sample, f"field {field!r} would be lost in this format; leave it out, or choose another format"
            )


def payloads(samples: Iterable[Sample], most: int | None = None) -> Iterator[bytes]:
    """Yield the `data` of samples with no other field. Raises SampleError for other samples, and for more than `most` bytes."""
    for number, sample in enumerate(samples):
        data = content(number, sample, DATA)
        refuse_others(number, sample)
        if most is not None and len(data) > most:
            raise refusal(number, sample, f"field {DATA!r} has {len(data)} bytes; a record holds at most {most}")
        yield data
