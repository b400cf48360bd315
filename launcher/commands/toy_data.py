"""`launch toy-data DIR`: shards of random images, as articles on reading speed use them."""

from __future__ import annotations

import random
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from launcher.commands.card import Command
from launcher.commands.options import LocalPath, argument, flag, option
from launcher.console import Console, counted, human_bytes, print_line
from launcher.errors import RefusedError

_SHARD = re.compile(r"\d{5,}\.(tar|zip|parquet|tfrecord)")
_POSITIVE = click.IntRange(min=1)
_MOST_PIXELS = 16_000  # readers refuse a sample of more than 1 GiB


class ToyData(Command):
    """Make shards of random images to measure with.

    Make DIR with tar shards of about 400 MB: 100 samples each, of an `image` (a PNG of 1024 x 1024 RGB pixels) and a `label` (a
    grey PNG of that size). The pixels are random, so nothing makes the files smaller, and the same options make the same bytes.
    DIR must be new or empty; it appears when all shards are complete.
    """

    exit_codes = (0, 2, 3)
    example = "toy-data toy --shards 2 --samples 3 --size 8 --replace"

    directory: Path = argument(type=LocalPath(file_okay=False, path_type=Path), metavar="DIR")
    shards: int = option(type=_POSITIVE, metavar="N", default=10, help="Number of shards; 10 by default.")
    samples: int = option(type=_POSITIVE, metavar="N", default=100, help="Samples in a shard; 100 by default.")
    size: int = option(
        type=click.IntRange(1, _MOST_PIXELS),
        metavar="PIXELS",
        default=1024,
        help="Width and height of an image; 1024 by default.",
    )
    format: str = option(
        type=click.Choice(("tar", "zip", "parquet", "tfrecord-example")),
        default="tar",
        help="The shards' format; tar by default.",
    )
    seed: int = option(type=int, metavar="N", default=0, help="Other numbers make other pixels; 0 by default.")
    replace: bool = flag(help="Replace DIR if it has nothing but shards.")

    def run(self) -> int:
        """Write the shards to a folder beside DIR, and rename it."""
        from sagemaker_channels.formats.shards import write_shards

        unfinished = self.directory.absolute().with_name(f".{self.directory.absolute().name}.unfinished")
        try:
            found = list(self.directory.iterdir()) if self.directory.exists() else []
            old = {each.name: each.is_file() and bool(_SHARD.fullmatch(each.name)) for each in found}
            if others := [name for name, is_shard in old.items() if not (self.replace and is_shard)]:
                remedy = "pass --replace, " if not self.replace and all(map(_SHARD.fullmatch, others)) else ""
                raise RefusedError(f"{self.directory} has {others[0]}; {remedy}use another folder, or delete it")
            shutil.rmtree(unfinished, ignore_errors=True)
            total = self.shards * self.samples * 4 * self.size * self.size
            free = shutil.disk_usage(next(folder for folder in unfinished.parents if folder.exists())).free
            if total > free:
                needs = f"needs {human_bytes(total)}, and its disk has {human_bytes(free)} free"
                raise RefusedError(f"{self.directory}: {needs}; make fewer or smaller shards, or use another folder")
            with Console(as_json=self.as_json).progress(f"making {self.directory}", total=total) as advance:
                made = write_shards(self._images(advance), unfinished, self.format, 1 << 62, self.samples)
            files = [(shard.name, shard.stat().st_size) for shard in made]
            for each in found:
                each.unlink()
            unfinished.replace(self.directory)
        except OSError as error:
            reason = f"cannot be made: {error.strerror}; correct that, or use another folder"
            raise RefusedError(f"{self.directory}: {reason}") from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        if self.as_json:
            shards = [{"name": name, "count": self.samples, "bytes": size} for name, size in files]
            self.print_json({"directory": str(self.directory), "shards": shards})
        else:
            what = f"{counted(len(files), 'shard')} of {counted(self.samples, 'sample')}"
            print_line(f"{self.directory}: {what}, {human_bytes(sum(size for _, size in files))}")
        return 0

    def _images(self, advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        pixels = random.Random(self.seed)
        for number in range(self.shards * self.samples):
            image, label = (png(pixels, self.size, channels) for channels in (3, 1))
            yield {"__key__": f"{number:08d}", "image": image, "label": label}
            advance(4 * self.size * self.size)


def png(pixels: random.Random, size: int, channels: int) -> bytes:
    """Return a square PNG of random pixels, grey or RGB by the number of channels."""
    rows = bytearray(pixels.randbytes(size * (1 + channels * size)))
    rows[:: 1 + channels * size] = bytes(size)  # the filter of each row: none
    header = struct.pack(">IIBBBBB", size, size, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    number = struct.Struct(">I").pack
    packed = (number(len(data)) + kind + data + number(zlib.crc32(kind + data)) for kind, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
