"""The card of a format: what reading, writing, the documentation and the tests need to know about it.

One string names a format, in a spec's `content_type`, in inputdataconfig.json and between processes: a content type or a short
name, followed by options as a content type has parameters (`csv; header=present; delimiter="|"`). Parameters of a content type
that are meant for others (`label_size`, `charset`) are ignored; after a short name, an unknown option is an error.

Source: RFC 9110, section 5.6.6; RFC 4180 for CSV's `header`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from sagemaker_channels.errors import ChannelError, corrupt, foreign
from sagemaker_channels.formats import signatures
from sagemaker_channels.formats.cursor import OTHER, Cursor
from sagemaker_channels.formats.gunzip import Begun, Gunzip
from sagemaker_channels.sample import DATA, KEY, ByteStream, Sample

# Yields the samples of a stream that is at its beginning, as `Format.split`.
Read = Callable[[ByteStream, "str | None", Cursor], Iterator[Sample]]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format. Cards with the same name and the same chosen options are equal."""

    name: str  # the short name
    sample: str = field(compare=False)  # for the reference: what a sample is
    read: Read | None = field(compare=False, default=None)  # of uncompressed streams; None if `framing` reads
    # Whether a stream with these first bytes is certainly in this format, although it may begin as another one, and how many bytes
    # that needs: a slow Pipe must not wait for more.
    begins: Callable[[bytes], bool] = field(compare=False, default=lambda head: False)
    head: int = field(compare=False, default=12)
    # Writes samples to a stream and returns their number; None if the format has no writer. Raises SampleError for a sample
    # that would not read back the same.
    write: Callable[[BinaryIO, Iterable[Sample]], int] | None = field(compare=False, default=None)
    # The ending of the files of `write_shards`; None if it cannot write them.
    ending: str | None = field(compare=False, default=None)
    content_types: tuple[str, ...] = field(compare=False, default=())  # that select this format
    named: bool = field(compare=False, default=False)  # whether each sample has a `__key__` of its own
    # What the writer takes of samples of any other format, for `launch reshard`: fields by their names, bytes among them, or one
    # field of bytes as `data`; None: neither.
    holds: Literal["fields", "data"] | None = field(compare=False, default=None)
    # Returns such a sample, which may have a `label`, as it is read again from this format.
    fit: Callable[[Sample], Sample] = field(compare=False, default=lambda sample: sample)
    # Whether records can be found from the beginning on: in joined objects, as in a Pipe, and in gzip-compressed ones.
    boundaries: bool = field(compare=False, default=True)
    # For the reference: what is read next after skipped damage. A format without it does not know the next record in the object.
    after_damage: str | None = field(compare=False, default=None)
    # A format whose records have to be decoded: the format that finds them, and what makes a sample of one record's bytes
    # (ValueError if it cannot). Several readers of a Pipe then decode in parallel.
    framing: Format | None = field(compare=False, default=None)
    decode: Callable[[bytes], Sample] | None = field(compare=False, default=None)
    # Returns the number of an object's samples from its index; 1 if each object is one sample, None if there is no index.
    count: Callable[[ByteStream, str | None], int] | int | None = field(compare=False, default=None)
    options: tuple[str, ...] = field(compare=False, default=())  # names of what can be chosen
    # Returns the format with these options; raises ChannelError for an impossible value.
    with_options: Callable[[Mapping[str, str]], Format] | None = field(compare=False, default=None)
    chosen: tuple[tuple[str, str], ...] = ()  # the options chosen, by name
    # For the contract tests: a sample that holds these bytes as its only payload, with its number in the object.
    example: Callable[[int, bytes], Sample] = field(compare=False, default=lambda number, data: {DATA: data})

    def __str__(self) -> str:
        return "; ".join([self.name, *(f"{key}={_quoted(value)}" for key, value in self.chosen if value)])

    def split(self, stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
        """Yield the samples of one object, or of several joined objects, in order and in constant memory.

        Before each sample, the cursor's `position` becomes that of the next one. Positions in a gzip-compressed stream are
        negative: they are reached by reading from its beginning. Offsets in the format's errors are then those of the content.
        Raises CorruptError if the data is damaged or cut, or begins as another format does, and the cursor does not skip it.
        """
        cursor = cursor or Cursor()
        if self.read is None:
            return self._decoded(stream, key, cursor)
        if not self.boundaries or cursor.start > 0:
            return self.read(stream, key, cursor)
        begun = Begun(stream, self.head)
        is_own = self.begins(begun.head)
        if begun.is_gzip and (cursor.start or not is_own):
            return self._unzipped(begun, key, cursor)
        if cursor.start < 0:
            raise corrupt(key, 0, "a gzip stream was read before, but this is not one; start the epoch again")
        if not is_own:
            signatures.check(begun.head, key)
        return self.read(begun, key, cursor)

    def _unzipped(self, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
        assert self.read is not None
        content = Begun(Gunzip(stream, key), self.head)
        if not self.begins(content.head):
            if content.is_gzip:
                raise corrupt(key, 0, "a gzip stream inside another: it was compressed twice; unzip it once")
            signatures.check(content.head, key)
        inner = Cursor(-cursor.start, cursor.skips, cursor.turns)
        for sample in self.read(content, key, inner):
            cursor.position = -inner.position
            yield sample

    def _decoded(self, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
        assert self.framing is not None and self.decode is not None, "a card has `read`, or both `framing` and `decode`"
        decode, offset = self.decode, cursor.start
        start: Sample = {} if key is None else {KEY: key}
        for record in self.framing.split(stream, key, cursor):
            if record is OTHER:
                yield record
                continue
            try:
                sample = start | decode(record[DATA])
            except ValueError as error:
                cursor.skip(foreign(f"a record of {self.name}", key, abs(offset), error))
                offset = cursor.position
                continue
            offset = cursor.position
            yield sample


def with_options(form: Format, text: str) -> Format:
    """Return the format with the options in `text`, a content type or a short name with parameters.

    Raises ChannelError for an impossible value, and for an unknown option after a short name.
    """
    from email.message import Message

    name = text.partition(";")[0].strip()
    header = Message()
    header["content-type"] = text
    options = {key.lower(): value for key, value in header.get_params([])[1:] if key}
    unknown = [key for key in options if key not in form.options]
    if unknown and "/" not in name:
        near = difflib.get_close_matches(unknown[0], form.options, 1)
        raise ChannelError(
            f"format {text!r}: {name} has no parameter {unknown[0]!r}",
            remedy=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(form.options) or 'none'}",
        )
    for key in unknown:
        del options[key]
    return form.with_options(options) if options and form.with_options else form


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w.,-]+", value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def names_in(value: str) -> tuple[str, ...]:
    """Return the names in an option's value, `a, b`."""
    return tuple(name.strip() for name in value.split(",") if name.strip())
