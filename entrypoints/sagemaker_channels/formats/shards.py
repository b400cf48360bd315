"""The writer of shards: samples in numbered files of one size, `00000.tar`, `00001.tar` and so on.

Every input mode is fast with objects of 100 MB and more, and several of them for each DataLoader worker of the job.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from sagemaker_channels.formats import SHORT_NAMES
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.writing import SampleError, refusal, replacing, size_of
from sagemaker_channels.sample import Sample

SHARD_BYTES = 128 << 20


def write_shards(
    samples: Iterable[Sample],
    folder: str | os.PathLike[str],
    format: str,
    shard_bytes: int = SHARD_BYTES,
    shard_samples: int = sys.maxsize,
) -> list[Path]:
    """Write samples, as the format's `split` yields them, to numbered files in a folder.

    A shard's name ends in `.part` until it is complete; a shard that an error interrupts is removed.

    Args:
        samples: The samples; without any, no shard is written.
        folder: The folder, created if necessary.
        format: The format's short name.
        shard_bytes: A shard ends with the sample that reaches about this size.
        shard_samples: A shard ends at the latest with so many samples.

    Returns:
        The files, in order.

    Raises:
        ValueError: The format has no writer, or `shard_bytes` or `shard_samples` is less than 1.
        SampleError: A sample would not be read back the same; it has its number among all samples. A ValueError, too.
        FileExistsError: The folder has shards already, and nothing was written: shards of two runs must not be mixed.
    """
    ending = writer_of(format).ending
    for name, limit in (("shard_bytes", shard_bytes), ("shard_samples", shard_samples)):
        if limit < 1:
            raise ValueError(f"{name} is {limit}; it must be 1 or more")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    old = min(folder.glob(f"[0-9][0-9][0-9][0-9][0-9]*{ending}"), default=None)
    if old is not None:
        raise FileExistsError(f"{old} exists; remove the old shards, or choose another folder")
    shards: list[Path] = []
    before = 0
    rest = iter(samples)
    for first in rest:
        shard = folder / f"{len(shards):05d}{ending}"
        portion = itertools.islice(itertools.chain([first], rest), shard_samples)
        try:
            before += write_shard(portion, shard, format, shard_bytes)
        except SampleError as error:
            number, *what = error.args
            raise SampleError(before + number, *what) from error
        shards.append(shard)
    return shards


def writer_of(format: str) -> Format:
    """Return the format of this short name. Raises ValueError if it cannot write shards."""
    writers = {name: form for name, form in SHORT_NAMES.items() if form.write and form.ending}
    if format not in writers:
        raise ValueError(f"format {format!r} has no writer of shards; expected one of {', '.join(writers)}")
    return writers[format]


def write_shard(samples: Iterator[Sample], shard: Path, format: str, shard_bytes: int) -> int:
    """Write the samples of one file, up to the one that reaches `shard_bytes`, and return their number.

    Raises what `write_shards` does; no file is left then.
    """
    write = writer_of(format).write
    assert write is not None
    part = shard.with_name(shard.name + ".part")
    with replacing(shard, part), part.open("wb") as stream:
        return write(stream, _portion(samples, stream, shard_bytes))


def _portion(samples: Iterator[Sample], stream: BinaryIO, shard_bytes: int) -> Iterator[Sample]:
    """Yield the samples of one shard. Writers may buffer samples, which count by their approximate sizes."""
    kept = 0
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise SampleError(number, None, f"expected a dict of fields, got {type(sample).__name__}")
        if not all(isinstance(name, str) for name in sample):
            raise refusal(number, sample, f"its fields are {list(sample)}; their names must be texts")
        place = stream.tell()
        yield sample
        kept = 0 if stream.tell() > place else kept + size_of(sample)
        if stream.tell() + kept >= shard_bytes:
            return
