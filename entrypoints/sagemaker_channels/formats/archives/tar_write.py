"""The writer of tar shards, for every reader of WebDataset shards: ours, webdataset's, tarfile and GNU tar.

Plain ustar headers with fixed owner, mode and time, so that the same samples become the same bytes; a pax header before
them only if a name or a size does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from sagemaker_channels.formats.archives.members import members_of
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import KEY, Sample

BLOCK = 512
_END = bytes(2 * BLOCK)
_MAX_OCTAL_SIZE = 8**11


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples as one archive, each field as the member `<__key__>.<field>`, and return their number.

    Raises:
        SampleError: A sample would not be read back the same (see `members.py`), or has the same key as the one before.
    """
    before = None

    def encode(sample: Sample) -> list[bytes]:
        nonlocal before
        members = members_of(sample)
        if sample[KEY] == before:
            raise ValueError("the sample before has the same __key__, and both would be read as one; give each its own")
        before = sample[KEY]
        return [piece for name, data in members for piece in _member(name, data)]

    count = write_each(encode, stream, samples)
    stream.write(_END)
    return count


def _member(name: str, data: bytes) -> list[bytes]:
    try:
        encoded = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r} cannot be a file's name: {error}") from error
    records = b""
    if len(encoded) > 100 or not encoded.isascii():
        records += _pax_record(b"path", encoded)
    if len(data) >= _MAX_OCTAL_SIZE:
        records += _pax_record(b"size", b"%d" % len(data))
    described = [_header(b"PaxHeader", len(records), b"x"), records, bytes(-len(records) % BLOCK)] if records else []
    return [*described, _header(encoded[:100], len(data) % _MAX_OCTAL_SIZE, b"0"), data, bytes(-len(data) % BLOCK)]


def _header(name: bytes, size: int, kind: bytes) -> bytes:
    # name, mode, owner, group, size, time, checksum, kind, target of a link, magic; the rest stays zero
    start = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"%011o\0" % 0
    end = (kind + bytes(100) + b"ustar\x0000").ljust(BLOCK - len(start) - 8, b"\0")
    return start + b"%06o\0 " % (sum(start) + sum(end) + 8 * 32) + end


def _pax_record(name: bytes, value: bytes) -> bytes:
    r"""Return `<length> <name>=<value>\n`, whose length counts its own digits."""
    rest = b" %s=%s\n" % (name, value)
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest
