"""Writing shards: samples into files of some size, `00000.tar`, `00001.tar` and on, as training reads them best.

Objects of 100 MB and more, and several for each DataLoader worker of the job, are what every way of arriving likes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from entrypoints.records import (
    csv_rows,
    example,
    image_recordio,
    json_lines,
    parquet,
    recordio,
    recordio_protobuf_write,
    tar_write,
    tfrecord,
    zip_write,
)
from entrypoints.records.sizes import size_of
from entrypoints.sample import DATA, Sample

Write = Callable[[BinaryIO, Iterable[Sample]], int]

SHARD_BYTES = 128 << 20


def _payloads(write: Callable[[BinaryIO, Iterable[bytes]], int]) -> Write:
    """A writer of records that are bytes, as one of samples with nothing but `data` that matters."""
    return lambda stream, samples: write(stream, (sample[DATA] for sample in samples))


def _lines(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    count = 0
    for sample in samples:
        if b"\n" in sample[DATA] or sample[DATA].endswith(b"\r"):
            raise ValueError(f"sample {count} holds a line's end, and would not come back as one line")
        stream.write(sample[DATA] + b"\n")
        count += 1
    return count


# Short name of a format -> the ending of its files, and what writes one.
WRITERS: dict[str, tuple[str, Write]] = {
    "tar": (".tar", tar_write.write),
    "zip": (".zip", zip_write.write),
    "recordio": (".rec", _payloads(recordio.write)),
    "image-recordio": (".rec", image_recordio.write),
    "recordio-protobuf": (".pbr", recordio_protobuf_write.write),
    "tfrecord": (".tfrecord", _payloads(tfrecord.write)),
    "tfrecord-example": (".tfrecord", example.write),
    "parquet": (".parquet", parquet.ROWS.write),
    "jsonl": (".jsonl", json_lines.write),
    "csv": (".csv", csv_rows.ROWS.write),
    "lines": (".txt", _lines),
}


def write_shards(samples: Iterable[Sample], folder: Path, format: str, shard_bytes: int = SHARD_BYTES) -> list[Path]:
    """Writes samples, as the format's `split` gives them, into numbered files of a folder, which is made; the files.

    A shard ends with the sample that brings it to `shard_bytes`, so all but the last are at least that big, about. Each is
    written under a name that ends in `.part` until it is complete; one that an error interrupts is removed. No samples
    are no shards. Raises ValueError for a format without a writer or a sample that it cannot hold, and FileExistsError,
    before anything is written, where the folder holds shards already: those of two runs must not be mixed.
    """
    if format not in WRITERS:
        raise ValueError(f"format {format!r} has no writer of shards; those that have one: {', '.join(WRITERS)}")
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes is {shard_bytes}; it must be 1 or more")
    ending, write = WRITERS[format]
    folder.mkdir(parents=True, exist_ok=True)
    old = min(folder.glob(f"[0-9][0-9][0-9][0-9][0-9]*{ending}"), default=None)
    if old is not None:
        raise FileExistsError(f"{old} exists: remove the old shards, or name another folder")
    shards: list[Path] = []
    rest = iter(samples)
    for first in rest:
        shard = folder / f"{len(shards):05d}{ending}"
        part = shard.with_name(shard.name + ".part")
        try:
            with part.open("wb") as stream:
                write(stream, _portion(itertools.chain([first], rest), stream, shard_bytes))
            part.replace(shard)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        shards.append(shard)
    return shards


def _portion(samples: Iterator[Sample], stream: BinaryIO, shard_bytes: int) -> Iterator[Sample]:
    """As many samples as a shard takes. Writers may keep some back, so these are reckoned by their sizes."""
    kept = 0
    for sample in samples:
        place = stream.tell()
        yield sample
        kept = 0 if stream.tell() > place else kept + size_of(sample)
        if stream.tell() + kept >= shard_bytes:
            return
