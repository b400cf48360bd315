"""`launch toy-data DIR`: shards of random images, as articles on reading speed use them."""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from launcher.commands import options
from launcher.console import Console, counted, human_bytes, print_line
from launcher.errors import RefusedError
from sagemaker_channels.formats import FORMATS

_POSITIVE = click.IntRange(min=1)
_MOST_PIXELS = 16_000  # readers refuse a sample of more than 1 GiB


@options.command("toy-data", "toy-data toy --shards 2 --samples 3 --size 8")
@click.argument("directory", type=options.LocalPath(file_okay=False, path_type=Path), metavar="DIR")
@options.group(
    "toy",
    click.option("--shards", type=_POSITIVE, metavar="N", default=10, help="Number of shards."),
    click.option("--samples", type=_POSITIVE, metavar="N", default=100, help="Samples in a shard."),
    click.option(
        "--size",
        type=click.IntRange(1, _MOST_PIXELS),
        metavar="PIXELS",
        default=128,
        help="Width and height of an image.",
    ),
    click.option(
        "--format",
        type=click.Choice([*(form.name for form in FORMATS if form.holds == "fields"), "folders"]),
        default="tar",
        help="The shards' format; `folders` makes a folder of images in place of each, which is a class.",
    ),
    click.option("--seed", type=int, metavar="N", default=0, help="Other numbers make other pixels."),
)
@options.json_option
def toy_data(directory: Path, toy: SimpleNamespace, as_json: bool) -> None:
    """Make shards of random images to measure with.

    DIR gets ten tar shards of 7 MB: 100 samples each, of an `image` (a PNG of 128 x 128 RGB pixels) and a `label` (a grey PNG of
    that size). With --size 1024, they have 400 MB each. The pixels are random, so nothing makes the files smaller, and the same
    options make the same bytes. DIR must be new or empty; it appears when all shards are complete. Class folders have images of
    increasing brightness.
    """
    try:
        files = _make(directory, toy, Console(as_json=as_json))
    except OSError as error:
        reason = f"cannot be made: {error.strerror}; correct that, or use another folder"
        raise RefusedError(f"{directory}: {reason}") from None
    if as_json:
        shards = [{"name": name, "count": toy.samples, "bytes": size} for name, size in files]
        options.print_json({"directory": str(directory), "shards": shards})
    else:
        kind = "folder" if toy.format == "folders" else "shard"
        what = f"{counted(len(files), kind)} of {counted(toy.samples, 'sample')}"
        print_line(f"{directory}: {what}, {human_bytes(sum(size for _, size in files))}")


def _make(directory: Path, toy: SimpleNamespace, console: Console) -> list[tuple[str, int]]:
    """Write the shards to a folder beside the directory, rename it, and return their names and sizes."""
    from sagemaker_channels.formats.shards import write_shards

    if directory.exists() and any(directory.iterdir()):
        raise RefusedError(f"{directory} is not empty; use another folder, or delete it")
    unfinished = directory.absolute().with_name(f".{directory.absolute().name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        channels = 3 if toy.format == "folders" else 4
        total = toy.shards * toy.samples * channels * toy.size * toy.size
        free = shutil.disk_usage(next(folder for folder in unfinished.parents if folder.exists())).free
        if total > free:
            needs = f"needs {human_bytes(total)}, and its disk has {human_bytes(free)} free"
            raise RefusedError(f"{directory}: {needs}; make fewer or smaller shards, or use another folder")
        console.say(f"{directory}: writing {human_bytes(total)}")
        with console.progress(f"making {directory}", total=total) as advance:
            if toy.format == "folders":
                files = list(_write_folders(unfinished, toy, advance))
            else:
                made = write_shards(_images(toy, advance), unfinished, toy.format, 1 << 62, toy.samples)
                files = [(shard.name, shard.stat().st_size) for shard in made]
        unfinished.replace(directory)
        return files
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _images(toy: SimpleNamespace, advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    pixels = random.Random(toy.seed)
    for number in range(toy.shards * toy.samples):
        image, label = (png(pixels, toy.size, channels) for channels in (3, 1))
        yield {"__key__": f"{number:08d}", "image": image, "label": label}
        advance(4 * toy.size * toy.size)


def _write_folders(directory: Path, toy: SimpleNamespace, advance: Callable[[int], None]) -> Iterator[tuple[str, int]]:
    """Write a folder of images for each class, and yield its name and size; a class has a range of brightness of its own."""
    pixels = random.Random(toy.seed)
    for number in range(toy.shards):
        shades = bytes((255 * number + value) // toy.shards for value in range(256))
        folder = directory / f"class-{number}"
        folder.mkdir(parents=True)
        for image in range(toy.samples):
            (folder / f"{image:05d}.png").write_bytes(png(pixels, toy.size, 3, shades))
            advance(3 * toy.size * toy.size)
        yield folder.name, sum(file.stat().st_size for file in folder.iterdir())


def png(pixels: random.Random, size: int, channels: int, shades: bytes | None = None) -> bytes:
    """Return a square PNG of random pixels, grey or RGB by the number of channels; `shades` replaces each of 256 values."""
    rows = bytearray(pixels.randbytes(size * (1 + channels * size)).translate(shades))
    rows[:: 1 + channels * size] = bytes(size)  # the filter of each row: none
    header = struct.pack(">IIBBBBB", size, size, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    number = struct.Struct(">I").pack
    packed = (number(len(data)) + kind + data + number(zlib.crc32(kind + data)) for kind, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
