"""What an augmented manifest sends: RecordIO with one record per attribute, put together to one sample per line.

SageMaker streams, for each line of the manifest, the values of AttributeNames in their order: of a `-ref` attribute the content
of the object that it names, of any other the value as a text. Nothing in the stream, nor in inputdataconfig.json, tells the
names. Of a job that the launcher planned the channel knows them, and `open_channel("train")` is all; of another they are given:

    dataset = ChannelDataset("train", 'augmented; attributes="source-ref,class"')

A sample is {"source-ref": b"<the image>", "class": b"3"}: bytes, as they come, whatever the value is in the manifest. A text is
`sample["class"].decode()`; a number, a list or an object (Ground Truth's `-metadata`) is JSON: `json.loads(sample["class"])`.
It works in Pipe mode with RecordWrapperType RecordIO, the only way in which SageMaker tells attributes apart.

Source: AWS developer guide, "Augmented Manifest Files for Training Jobs" (the order is that of AttributeNames; "any type of
data allowed by the JSON format ... including text, numerical, data arrays, or objects"; 1 is sent as "1"). Its own reader,
PipeModeDataset of sagemaker-tensorflow, gives an attribute's bytes, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from entrypoints.errors import ChannelError, corrupt
from entrypoints.records import gunzip
from entrypoints.records import options as parameters
from entrypoints.records.cursor import Cursor
from entrypoints.records.recordio import recordio
from entrypoints.records.refusing import content
from entrypoints.sample import KEY, ByteStream, Sample


@dataclass(frozen=True)
class Augmented:
    """The format, with the attributes' names; without them nothing can be read."""

    attributes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return parameters.text("augmented", {"attributes": ",".join(self.attributes)})

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

    def named(self, names: tuple[str, ...] = ()) -> Augmented:
        """With the names that were chosen, else with those that the channel knows.

        Raises ChannelError where there are neither, or where the channel sends more or fewer attributes than were chosen.
        """
        if not self.attributes and not names:
            raise ChannelError(
                "format augmented needs the names of the attributes: format='augmented; attributes=\"source-ref,class\"'"
            )
        if self.attributes and names and len(self.attributes) != len(names):
            raise ChannelError(
                f"augmented: attributes names {', '.join(self.attributes)}, but of each line the channel sends {', '.join(names)};"
                " leave out the format, or write a name for each"
            )
        return self if self.attributes else Augmented(names)

    def split(self, stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
        """The samples of a stream of records, gzip-compressed or not. Positions are RecordIO's.

        Raises CorruptError, naming the offset, where a record is damaged or the last line lacks records; ChannelError
        where no names were given.
        """
        self.named()
        return gunzip.split_either(self._split, stream, key, cursor)

    def _split(self, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
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
            raise corrupt(
                key,
                start,
                f"{len(values)} record(s) are left for the {len(self.attributes)} attributes {', '.join(self.attributes)}: "
                "the stream is cut, or these are not the channel's AttributeNames",
            )

    def write(self, stream: BinaryIO, samples: Iterable[Sample]) -> int:
        """Writes samples as SageMaker sends them; how many. Raises SampleError for one without one of the attributes."""
        count = 0
        for count, sample in enumerate(samples, 1):
            recordio.write(stream, [content(count - 1, sample, name) for name in self.attributes])
        return count


RECORDS = Augmented()
