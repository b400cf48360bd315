"""The first samples of a channel: the objects come through the survey's listing, and the library's formats read them.

So the keys, fields and bytes are those that a training script gets, without a job and without the S3 Connector.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.console import human_bytes
from launcher.errors import InputError, RefusedError
from launcher.local.channels.objects import Objects
from launcher.s3.manifests import AugmentedManifest
from launcher.s3.uri import S3Location
from launcher.survey.channels import Channel, named_keys
from launcher.survey.inventory import format_of as known_format
from sagemaker_channels.epoch.channel import Recipe
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import Format, format_of
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.gunzip import Gunzip
from sagemaker_channels.job import environment
from sagemaker_channels.mask import Mask
from sagemaker_channels.sample import KEY, Sample
from sagemaker_channels.sources.listing import Listed
from sagemaker_channels.sources.s3 import key_of

MOST_BYTES = 1 << 28  # that are read of a channel
_CHUNK = 1 << 18  # of a request
_HEAD = 512  # bytes of a field that are looked at
_SHOWN = 200  # characters of a text
_IMAGES = ("jpeg", "png", "gif", "webp")


@dataclass
class Peek:
    format: str
    samples: list[Sample] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    objects: int = 0  # that were opened
    bytes: int = 0


class _Object(io.RawIOBase):
    """An object as a file of which only the parts that are needed are read."""

    def __init__(self, objects: Objects, place: S3Location, size: int, peek: Peek) -> None:
        self._objects, self._place, self._size, self._peek, self._at = objects, place, size, peek, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readall(self) -> bytes:
        return self._take(self._size)

    def readinto(self, buffer: Any, /) -> int:
        data = self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _take(self, count: int) -> bytes:
        count = max(min(count, self._size - self._at), 0)
        if self._peek.bytes + count > MOST_BYTES:
            most = f"more than {human_bytes(MOST_BYTES)} would have to be read"
            raise RefusedError(f"{self._place.key}: {most}; lower --count, or state the objects' format by --format")
        data = self._objects.head(self._place, count, self._at) if count else b""
        self._at, self._peek.bytes = self._at + len(data), self._peek.bytes + len(data)
        return data


def first_samples(channel: Channel, objects: Objects, place: S3Location, count: int) -> Peek:
    """Return the first samples of a channel, up to `count`, and what is damaged among them.

    Raises RefusedError if the objects at `place` cannot be listed or read, or are not in the channel's format.
    """
    if channel.attributes:
        return _of_manifest(channel, objects, count)
    is_pipe, peek = channel.present == "Pipe", Peek("")
    wrapper = "RecordIO" if channel.is_wrapped else "None"
    place, named = named_keys(channel, objects) or (place, None)
    job = environment.Channel(channel.name, "Pipe", channel.content_type, "", wrapper, Path(), str(place))
    try:
        form = format_of(channel.content_type)
        peek.format = str(form)
        if is_pipe:
            Recipe.check_stream(job, form)
        for key, size in _entries(objects, place, named):
            raw: Any = io.BufferedReader(_Object(objects, S3Location(place.bucket, key), size, peek), _CHUNK)
            peek.objects += 1
            name = key_of(job, Listed(key, size))
            stream = Gunzip(raw, name) if is_pipe and channel.is_gzip else raw
            _read(form, stream, None if is_pipe else name, count, peek)
            if len(peek.samples) >= count or len(peek.damaged) >= count:
                break
    except (ChannelError, ImportError) as error:
        raise RefusedError(f"{channel.name}: {error}") from None
    return peek


def _read(form: Format, stream: Any, key: str | None, count: int, peek: Peek) -> None:
    """Add the samples of an object, up to `count` in all."""

    def skip(error: CorruptError) -> None:
        peek.damaged.append(str(error))
        if len(peek.damaged) >= count:
            raise error

    try:
        for sample in form.split(stream, key, Cursor(skips=skip)):
            peek.samples.append(sample)
            if len(peek.samples) >= count:
                return
    except CorruptError as error:
        if str(error) not in peek.damaged:
            peek.damaged.append(str(error))


def _of_manifest(channel: Channel, objects: Objects, count: int) -> Peek:
    """Return the first lines of an augmented manifest with the values and contents that a Pipe sends. Raises RefusedError."""
    peek = Peek(f"augmented, with {', '.join(channel.attributes)}")
    manifest = AugmentedManifest(objects.read, str(channel.manifest), channel.attributes)
    for index in range(min(count, len(manifest))):
        sample: Sample = {}
        for name, value in zip(channel.attributes, manifest.values(index), strict=True):
            if isinstance(value, bytes):
                sample[name] = value
                continue
            try:
                (size,) = objects.sizes([value])
                sample[name] = io.BufferedReader(_Object(objects, value, size, peek)).read()
                peek.objects += 1
            except RefusedError as error:
                peek.damaged.append(str(error))
        peek.samples.append(sample)
    return peek


def _entries(objects: Objects, place: S3Location, named: set[str] | None) -> Iterator[tuple[str, int]]:
    """Yield key and size of each object, of a manifest those that it names; no more are listed than are taken."""
    if named is not None:
        keys = sorted(named)
        yield from zip(keys, objects.sizes(S3Location(place.bucket, key) for key in keys), strict=True)
        return
    is_empty = True
    for key, size, *_ in objects.entries(place):
        if not key.endswith("/"):
            is_empty = False
            yield key, size
    if is_empty:
        raise InputError(f"{place}: {objects.missing(place)}, or correct the URI")


def described(name: str, value: Any, mask: Mask) -> dict[str, Any]:
    """Return a field for people and programs: its type, bytes, and the beginning of a text."""
    if not isinstance(value, bytes):
        kind = f"{value.dtype} {list(value.shape)}" if hasattr(value, "dtype") else type(value).__name__
        return {"field": name, "type": kind, "text": mask.apply(str(value))[:_SHOWN]}
    about: dict[str, Any] = {"field": name, "type": known_format(value[:_HEAD], ""), "bytes": len(value)}
    if about["type"] in _IMAGES:
        return about | _image(value)
    if about["type"] == "unknown":
        text = value[:_HEAD].decode("utf-8", "ignore")
        is_text = len(text.encode()) >= min(len(value), _HEAD) - 3 and all(
            each.isprintable() or each.isspace() for each in text
        )
        about["type"] = "text" if is_text else "bytes"
        about |= {"text": mask.apply(text)[:_SHOWN]} if is_text else {}
    return about


def _image(data: bytes) -> dict[str, Any]:
    """Return size and colours of an image, or why it is damaged; nothing without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return {}
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            return {"size": list(image.size), "mode": image.mode}
    except (OSError, SyntaxError, ValueError, ArithmeticError, EOFError, Image.DecompressionBombError) as error:
        return {"damaged": f"the image cannot be decoded: {error}"}


def contact_sheet(samples: list[Sample], file: Path) -> int:
    """Draw the images of samples into a PNG file, and return their number. Raises RefusedError."""
    pillow = check_sheet(file)
    fields = (value for sample in samples for name, value in sample.items() if name != KEY and isinstance(value, bytes))
    found = [each for each in fields if known_format(each[:_HEAD], "") in _IMAGES and "damaged" not in _image(each)]
    columns, side = max(round(len(found) ** 0.5 + 0.49), 1), 128
    sheet = pillow.new("RGB", (columns * side, max(-(-len(found) // columns), 1) * side), "white")
    for number, data in enumerate(found):
        with pillow.open(io.BytesIO(data)) as image:
            image.thumbnail((side - 4, side - 4))
            row, column = divmod(number, columns)
            sheet.paste(image.convert("RGB"), (column * side + 2, row * side + 2))
    try:
        sheet.save(file)
    except OSError as error:
        raise RefusedError(f"--sheet {file}: cannot be written: {error.strerror or error}") from None
    return len(found)


def check_sheet(file: Path) -> Any:
    """Return Pillow's module. Raises RefusedError if it is missing or the file cannot be a PNG in a folder."""
    if file.suffix.lower() != ".png" or not file.absolute().parent.is_dir():
        raise InputError(f"--sheet {file}: expected a file that ends in .png, in a folder that exists")
    try:
        from PIL import Image
    except ImportError:
        raise RefusedError("--sheet needs Pillow: pip install pillow, or 'sagemaker-launch[torch]'") from None
    return Image
