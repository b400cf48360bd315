"""What all writers share: the loop over samples, the errors of samples that a format cannot hold, and files that appear whole.

What would be lost, or not read back the same, is refused when it is written, where the author of the samples sees it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from sagemaker_channels.sample import DATA, KEY, Sample


@contextmanager
def replacing(file: str | Path, part: str | Path) -> Iterator[None]:
    """Replace a file by `part`, which is written meanwhile; after an error, remove that."""
    try:
        yield
        os.replace(part, file)  # noqa: PTH105 (Path costs 5 us each)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)  # noqa: PTH108
        raise


class SampleError(ValueError):
    """A sample that cannot be written: its number, counted from 0, its `__key__` or None, and the reason."""

    def __init__(self, number: int, key: object, reason: str) -> None:
        super().__init__(number, key, reason)

    def __str__(self) -> str:
        number, key, reason = self.args
        return f"sample {number}{'' if key is None else f' (__key__ {key!r})'}: {reason}"


def refusal(number: int, sample: Mapping[str, Any], reason: object) -> SampleError:
    return SampleError(number, sample.get(KEY), str(reason))


def write_each(encode: Callable[[Sample], Iterable[bytes]], stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write the pieces that `encode` returns for each sample, and return the number of samples.

    Raises SampleError for a sample for which `encode` raises ValueError.
    """
    count = 0
    for count, sample in enumerate(samples, 1):
        try:
            pieces = encode(sample)
        except ValueError as error:
            raise refusal(count - 1, sample, error) from error.__cause__
        stream.writelines(pieces)
    return count


def content(sample: Mapping[str, Any], field: str) -> bytes:
    """Return a field's bytes. Raises ValueError if the field is missing or is not bytes."""
    value = sample.get(field)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if field not in sample:
        raise ValueError(f"field {field!r} is missing; the sample has {', '.join(map(repr, sample)) or 'none'}")
    remedy = "; encode the text: .encode()" if isinstance(value, str) else ""
    raise ValueError(f"field {field!r}: expected bytes, got {type(value).__name__}{remedy}")


def refuse_others(sample: Mapping[str, Any], known: Container[str]) -> None:
    """Raise ValueError if a sample has fields that the format leaves out, except for a `__key__`, which names its object."""
    for field in sample:
        if field not in known and field != KEY:
            raise ValueError(f"field {field!r} would be lost in this format; leave it out, or choose another format")


def data_of(sample: Sample) -> bytes:
    """Return the `data` of a sample with no other field. Raises ValueError for other samples."""
    data = content(sample, DATA)
    refuse_others(sample, (DATA,))
    return data


def size_of(value: Any) -> int:
    """Return about how many bytes a field or a sample takes when it is written: one for a character, 8 for a number."""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    size = getattr(value, "nbytes", 8)
    return size if isinstance(size, int) else 8


def with_arrays(floats: str, sample: Sample, *, alone: bool = False) -> Sample:
    """Return a sample with its lists of numbers, and if `alone` its numbers, as arrays of int64 or of this type of floats."""
    import numpy as np

    def converted(value: Any) -> Any:
        if isinstance(value, list):
            is_numeric = all(type(item) in (int, float) for item in value)
            return np.asarray(value, floats if float in map(type, value) else "<i8") if is_numeric else value
        array = np.atleast_1d(value) if alone and not isinstance(value, (bytes, str)) else None
        kind = None if array is None else {"f": floats, "i": "<i8", "u": "<i8"}.get(array.dtype.kind)
        return value if array is None or kind is None else array.astype(kind)

    return {name: converted(value) for name, value in sample.items()}
