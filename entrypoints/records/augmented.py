"""What an augmented manifest sends: RecordIO with one record per attribute, put together to one sample per line.

SageMaker streams, for each line of the manifest, the values of AttributeNames in their order, a `-ref` value as the content
of the object that it names. Nothing in the stream, nor in inputdataconfig.json, tells the names, so they are given here:

    environment = whole_stream(load_environment(), "train")
    dataset = ChannelDataset("train", 'augmented; attributes="source-ref,class"', environment=environment)

A sample is {"source-ref": b"<the image>", "class": b"3"}: bytes, as they come (a text as it is, anything else as JSON). It
works in Pipe mode with RecordWrapperType RecordIO, the only way in which SageMaker tells attributes apart.

Source: AWS developer guide, "Augmented Manifest Files for Training Jobs".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

from entrypoints.environment import Environment
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.records import options as parameters
from entrypoints.records import recordio
from entrypoints.records.cursor import Cursor
from entrypoints.sample import KEY, ByteStream, Sample


@dataclass(frozen=True)
class Augmented:
    """The format, with the attributes' names; without them nothing can be read."""

    attributes: tuple[str, ...] = ()

    BOUNDARIES = True
    OPTIONS = ("attributes",)

    def with_options(self, options: Mapping[str, str]) -> Augmented:
        """Raises ChannelError where the attributes are none, or one of them stands twice."""
        names = parameters.names(options["attributes"])
        if not names or len(set(names)) < len(names):
            raise ChannelError(
                f"augmented: attributes is {options['attributes']!r}; write the channel's AttributeNames, each once, in "
                'their order: attributes="source-ref,class"'
            )
        return Augmented(names)

    def split(self, stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
        """The samples of a stream of records. Positions are RecordIO's, bytes.

        Raises CorruptError, naming the offset, where a record is damaged or the last line lacks records; ChannelError
        where no names were given.
        """
        if not self.attributes:
            raise ChannelError(
                "format augmented needs the names of the attributes: format='augmented; attributes=\"source-ref,class\"'"
            )
        cursor = cursor or Cursor()
        inner = Cursor(cursor.start)
        start = cursor.start
        values: list[bytes] = []
        for payload in recordio.payloads(stream, key, inner):
            values.append(payload)
            if len(values) == len(self.attributes):
                cursor.position = start = inner.position
                sample: Sample = {} if key is None else {KEY: key}
                sample.update(zip(self.attributes, values, strict=True))
                yield sample
                values = []
        if values:
            place = f"object {key!r}, " if key is not None else ""
            raise CorruptError(
                f"{place}byte {start}: {len(values)} record(s) are left for the {len(self.attributes)} attributes "
                f"{', '.join(self.attributes)}: the stream is cut, or these are not the channel's AttributeNames"
            )

    def write(self, stream: BinaryIO, samples: Iterable[Sample]) -> int:
        """Writes samples as SageMaker sends them; how many. Raises KeyError for a sample without one of the attributes."""
        count = 0
        for sample in samples:
            recordio.write(stream, [sample[name] for name in self.attributes])
            count += 1
        return count


RECORDS = Augmented()


def whole_stream(environment: Environment, name: str) -> Environment:
    """The environment in which a channel's RecordIO wrapping is its data: open_channel does not take records apart then.

    Raises ChannelError where the channel is not one that brings an augmented manifest.
    """
    channel = environment.channels.get(name)
    if channel is None or channel.mode != "Pipe" or channel.record_wrapper != "RecordIO":
        what = "is none of this job's" if channel is None else f"arrives by {channel.mode}"
        raise ChannelError(
            f"channel {name!r} {what}; an augmented manifest needs input_mode: Pipe and record_wrapper_type: RecordIO"
        )
    return replace(environment, channels={**environment.channels, name: replace(channel, record_wrapper="None")})
