"""The samples of an augmented manifest: RecordIO with one record per attribute, combined to one sample per line.

For each line of the manifest, SageMaker streams the values of AttributeNames in their order: for a `-ref` attribute the content
of the object that it names, for any other the value as text; a number, a list or an object is JSON. It does so in Pipe mode with
RecordWrapperType RecordIO. The stream has no names: a channel that the launcher planned knows them, in other jobs the script
names them: `ChannelDataset("train", 'augmented; attributes="source-ref,class"')`. A sample is
{"source-ref": b"<the image>", "class": b"3"}: bytes, whatever the value is in the manifest.

Source: AWS developer guide, "Augmented Manifest Files for Training Jobs" (the order is that of AttributeNames; "any type of
data allowed by the JSON format"; 1 is sent as "1"). PipeModeDataset of sagemaker-tensorflow also yields an attribute's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from sagemaker_channels.errors import ChannelError, corrupt
from sagemaker_channels.formats import recordio
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format, names_in
from sagemaker_channels.formats.writing import content, write_each
from sagemaker_channels.sample import KEY, ByteStream, Sample


def of_attributes(names: tuple[str, ...]) -> Format:
    chosen, write = (("attributes", ",".join(names)),), partial(write_each, partial(_encode, names))
    return replace(FORMAT, chosen=chosen, read=partial(_read, names), write=write)


def is_augmented(form: Format) -> bool:
    """Return whether a format is this one, which reads the records of a Pipe itself: each is one attribute."""
    return form.name == FORMAT.name


def for_channel(form: Format, names: tuple[str, ...]) -> Format:
    """Return the format with its own names, else with those that the channel knows.

    Raises ChannelError if neither has names, or if the channel sends another number of attributes than the format names.
    """
    if not form.chosen and not names:
        raise ChannelError(_NAMELESS)
    chosen = names_in(dict(form.chosen)["attributes"]) if form.chosen else names
    if names and len(chosen) != len(names):
        raise ChannelError(
            f"augmented: attributes names {', '.join(chosen)}, but the channel sends {', '.join(names)} for each line",
            remedy="leave out the format, or write a name for each",
        )
    return of_attributes(chosen)


_NAMELESS = "format augmented needs the names of the attributes: format='augmented; attributes=\"source-ref,class\"'"


def _with_options(options: Mapping[str, str]) -> Format:
    names = names_in(options["attributes"])
    if not names or len(set(names)) < len(names):
        raise ChannelError(
            f"augmented: attributes is {options['attributes']!r}",
            remedy='write the channel\'s AttributeNames, each once, in their order: attributes="source-ref,class"',
        )
    return of_attributes(names)


def _read_nameless(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    raise ChannelError(_NAMELESS)


def _read(names: tuple[str, ...], stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples of a stream of records. Positions are RecordIO's."""
    inner = Cursor(cursor.start)
    start = cursor.start
    values: list[bytes] = []
    for payload in recordio.payloads(stream, key, inner):
        values.append(payload)
        if len(values) == len(names):
            cursor.position = start = inner.position
            sample: Sample = {} if key is None else {KEY: key}
            sample.update(zip(names, values, strict=True))
            yield sample
            values = []
    if values:
        raise corrupt(
            key,
            start,
            f"{len(values)} record(s) are left for the {len(names)} attributes {', '.join(names)}: "
            "the stream is cut, or these are not the channel's AttributeNames",
        )


def _encode(names: tuple[str, ...], sample: Sample) -> list[bytes]:
    """Return the records that SageMaker sends for a sample. Raises ValueError if it lacks an attribute."""
    return [piece for name in names for piece in recordio.encode(content(sample, name))]


FORMAT = Format(
    name="augmented",
    sample="a line of an augmented manifest: the bytes of each attribute, by the names in `attribute_names`",
    read=_read_nameless,  # no writer either: it needs names
    begins=recordio.is_own,
    options=("attributes",),
    with_options=_with_options,
    example=lambda _, data: {"x": data},
)
