"""File signatures: the first bytes that show that an object is not in the format that the channel's content type says.

A format asks when it begins an object, or when the object turns out not to be in the format. Only signatures that cannot be text
are here, since lines and CSV may begin with any text.

Source: each format's specification, and the IANA registry of media types.
"""

from __future__ import annotations

from typing import NamedTuple

from sagemaker_channels.errors import CorruptError

SIZE = 512  # bytes from the beginning of an object in which all signatures are
_DELETE = "delete the channel's content_type (or format=), and each object is one sample"
_SET = "set the channel's content_type (or format=) to {}"
_ZIP = "application/zip; for files such as .npz, .pt or .xlsx delete it, and each object is one sample"
_UNZIP = "store the objects uncompressed, or compressed by gzip"


class Signature(NamedTuple):
    """What an object is that has one of these starts at this offset."""

    offset: int
    starts: tuple[bytes, ...]
    what: str
    remedy: str = _DELETE
    has_samples: bool = False  # certainly many, in one of our formats
    is_compressed: bool = False


_SIGNATURES = (
    Signature(0, (b"\x89PNG\r\n\x1a\n",), "a PNG image"),
    Signature(0, (b"\xff\xd8\xff",), "a JPEG image"),
    Signature(0, (b"GIF87a", b"GIF89a"), "a GIF image"),
    Signature(0, (b"II*\0", b"MM\0*"), "a TIFF image"),
    Signature(8, (b"WEBPVP8",), "a WebP image"),
    Signature(8, (b"WAVEfmt ",), "a WAV file"),
    Signature(0, (b"fLaC\0",), "a FLAC file"),
    Signature(0, (b"OggS\0",), "an Ogg file"),
    Signature(0, (b"ID3\3\0", b"ID3\4\0"), "an MP3 file"),
    Signature(4, (b"ftypisom", b"ftypmp42"), "an MP4 file"),
    Signature(4, (b"ftypavif",), "an AVIF image"),
    Signature(4, (b"ftypheic",), "a HEIC image"),
    Signature(0, (b"\x93NUMPY",), "a NumPy file"),
    Signature(0, (b"\x89HDF\r\n\x1a\n",), "an HDF5 file"),
    Signature(0, (b"ARROW1\0\0",), "an Arrow file"),
    Signature(257, (b"ustar\0", b"ustar  \0"), "a tar", _SET.format("application/x-tar"), True),
    Signature(0, (b"PK\3\4",), "a zip archive", _SET.format(_ZIP)),
    Signature(0, (b"\x0a\x23\xd7\xce",), "RecordIO", _SET.format("application/x-recordio"), True),
    Signature(0, (b"PAR1\x15",), "a Parquet file", _SET.format("application/x-parquet"), True),
    Signature(0, (b"\x1f\x8b\x08",), "compressed by gzip", "store the objects uncompressed", is_compressed=True),
    Signature(0, (b"\x28\xb5\x2f\xfd",), "compressed by Zstandard", _UNZIP, is_compressed=True),
    Signature(0, (b"\xfd7zXZ\0",), "compressed by xz", _UNZIP, is_compressed=True),
    Signature(0, (b"BZh91AY&SY",), "compressed by bzip2", _UNZIP, is_compressed=True),
)


def shard_in(data: object) -> Signature | None:
    """Return the signature of bytes that certainly are many samples; None for others, and for what is not bytes."""
    found = found_in(data[:SIZE]) if isinstance(data, bytes) else None
    return found if found and found.has_samples else None


def found_in(head: bytes) -> Signature | None:
    """Return the signature in an object's first bytes; None if they have none that is known."""
    return next((each for each in _SIGNATURES if head.startswith(each.starts, each.offset)), None)


def check(head: bytes, key: str | None, own: bytes = b"") -> None:
    """Raise CorruptError if an object's first bytes have a signature other than the format's own."""
    if not (own and head.startswith(own)) and (found := found_in(head)):
        problem = f"these bytes are {found.what}, but are read as another format"
        raise CorruptError(problem, object=key, position=0, remedy=found.remedy)
