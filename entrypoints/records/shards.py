"""Writing shards: samples into files of some size, `00000.tar`, `00001.tar` and on, as training reads them best.

Objects of 100 MB and more, and several for each DataLoader worker of the job, are what every way of arriving likes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from entrypoints.records import gunzip
from entrypoints.records.archives import tar_write, zip_write
from entrypoints.records.parquet import parquet_write
from entrypoints.records.recordio import image_recordio, recordio, recordio_protobuf_write
from entrypoints.records.refusing import SampleError, content, refusal, refuse_others
from entrypoints.records.sizes import size_of
from entrypoints.records.text import csv_rows, json_lines
from entrypoints.records.tfrecord import example, tfrecord
from entrypoints.sample import DATA, Sample

Write = Callable[[BinaryIO, Iterable[Sample]], int]

SHARD_BYTES = 128 << 20


def _payloads(write: Callable[[BinaryIO, Iterable[bytes]], int], most: int | None = None) -> Write:
    """A writer of records that are bytes, of at most so many, as one of samples with nothing but `data`."""

    def payload(number: int, sample: Sample) -> bytes:
        data = content(number, sample, DATA)
        refuse_others(number, sample)
        if most is not None and len(data) > most:
            raise refusal(number, sample, f"field {DATA!r} has {len(data)} bytes, and a record holds {most}")
        return data

    return lambda stream, samples: write(stream, (payload(*numbered) for numbered in enumerate(samples)))


def _lines(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    count = 0
    for sample in samples:
        line = content(count, sample, DATA)
        refuse_others(count, sample)
        if b"\n" in line or line.endswith(b"\r"):
            raise refusal(count, sample, "it holds a line's end, and would not come back as one line")
        if not count and line.startswith(gunzip.MAGIC):
            raise refusal(
                count, sample, "it begins as gzip does, and would be unzipped; these bytes are no lines: use recordio"
            )
        stream.write(line + b"\n")
        count += 1
    return count


# Short name of a format -> the ending of its files, and what writes one.
WRITERS: dict[str, tuple[str, Write]] = {
    "tar": (".tar", tar_write.write),
    "zip": (".zip", zip_write.write),
    "recordio": (".rec", _payloads(recordio.write, recordio.MAX_LENGTH)),
    "image-recordio": (".rec", image_recordio.write),
    "recordio-protobuf": (".pbr", recordio_protobuf_write.write),
    "tfrecord": (".tfrecord", _payloads(tfrecord.write)),
    "tfrecord-example": (".tfrecord", example.write),
    "parquet": (".parquet", parquet_write.write),
    "jsonl": (".jsonl", json_lines.write),
    "csv": (".csv", csv_rows.ROWS.write),
    "lines": (".txt", _lines),
}


def write_shards(
    samples: Iterable[Sample], folder: str | os.PathLike[str], format: str, shard_bytes: int = SHARD_BYTES
) -> list[Path]:
    """Writes samples, as the format's `split` gives them, into numbered files of a folder, which is made; the files.

    A shard ends with the sample that brings it to `shard_bytes`, so all but the last are at least that big, about. Each is
    written under a name that ends in `.part` until it is complete; one that an error interrupts is removed. No samples
    are no shards. Raises ValueError for a format without a writer; SampleError, which is one too, for a sample that it
    cannot hold or that would not come back, with its number among all; and FileExistsError, before anything is
    written, where the folder holds shards already: those of two runs must not be mixed.
    """
    if format not in WRITERS:
        raise ValueError(f"format {format!r} has no writer of shards; those that have one: {', '.join(WRITERS)}")
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes is {shard_bytes}; it must be 1 or more")
    ending, write = WRITERS[format]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    old = min(folder.glob(f"[0-9][0-9][0-9][0-9][0-9]*{ending}"), default=None)
    if old is not None:
        raise FileExistsError(f"{old} exists: remove the old shards, or name another folder")
    shards: list[Path] = []
    before = 0
    rest = iter(samples)
    for first in rest:
        shard = folder / f"{len(shards):05d}{ending}"
        part = shard.with_name(shard.name + ".part")
        try:
            with part.open("wb") as stream:
                count = write(stream, _portion(itertools.chain([first], rest), stream, shard_bytes))
            part.replace(shard)
        except BaseException as error:
            part.unlink(missing_ok=True)
            if isinstance(error, SampleError):
                number, *what = error.args
                raise SampleError(before + number, *what) from error
            raise
        before += count
        shards.append(shard)
    return shards


def _portion(samples: Iterator[Sample], stream: BinaryIO, shard_bytes: int) -> Iterator[Sample]:
    """As many samples as a shard takes. Writers may keep some back, so these are reckoned by their sizes."""
    kept = 0
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise SampleError(number, None, f"it is {type(sample).__name__}, and a dict of fields is expected")
        if not all(isinstance(name, str) for name in sample):
            raise refusal(number, sample, f"its fields are {list(sample)}, and their names must be texts")
        place = stream.tell()
        yield sample
        kept = 0 if stream.tell() > place else kept + size_of(sample)
        if stream.tell() + kept >= shard_bytes:
            return
