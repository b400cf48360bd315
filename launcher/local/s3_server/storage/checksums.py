"""The checksums that clients send with a body: `x-amz-checksum-*`, as a header or a trailer, and Content-MD5.

CRC32, SHA1 and SHA256 are always compared; CRC32C if the package crc32c or awscrt is installed, CRC64NVME if awscrt is. Without
these packages the client's value is stored unchecked, since computing it in Python would take minutes for a checkpoint.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from launcher.local.s3_server.documents import Pairs, S3Error

PREFIX = "x-amz-checksum-"
TYPE = PREFIX + "type"
FULL, COMPOSITE = "FULL_OBJECT", "COMPOSITE"
_BUFFER = 1 << 20  # bytes


class _Crc:
    """A CRC of `size` bytes with hashlib's methods."""

    def __init__(self, function: Callable[[Any, int], int], size: int) -> None:
        self._function, self._size, self._value = function, size, 0

    def update(self, data: Any, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


def _optional(size: int, *places: tuple[str, str]) -> Callable[[], Any] | None:
    """Return a CRC from the first of the modules that is installed; None if none is."""
    for module, name in places:
        try:
            function = getattr(import_module(module), name)
        except ImportError:
            continue
        return lambda: _Crc(function, size)
    return None


_ALGORITHMS: Mapping[str, Callable[[], Any] | None] = {
    "crc32": lambda: _Crc(zlib.crc32, 4),
    "crc32c": _optional(4, ("crc32c", "crc32c"), ("awscrt.checksums", "crc32c")),
    "crc64nvme": _optional(8, ("awscrt.checksums", "crc64nvme")),
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "sha256": hashlib.sha256,
}


def algorithm(name: str) -> str:
    """Return the algorithm's name in lower case. Raises S3Error InvalidRequest if it is unknown."""
    if name.lower() not in _ALGORITHMS:
        raise S3Error("InvalidRequest", Message=f"Checksum algorithm provided is unsupported: {name}")
    return name.lower()


class HashedBody(io.RawIOBase):
    """A body whose checksum is computed while it is read.

    `names` are the algorithms to compute; `trailers` are those of the innermost body, filled in at its end.
    """

    def __init__(self, body: io.RawIOBase, names: set[str], trailers: Mapping[str, str]) -> None:
        self._body = body
        self._trailers = trailers
        self._hashes = {name: make() if (make := _ALGORITHMS[name]) else None for name in sorted(names)}

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._body.readinto(buffer) or 0
        for each in self._hashes.values():
            if each is not None and count:
                each.update(memoryview(buffer)[:count])
        return count

    def checksums(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Compare what was read with what the client stated, and return header name -> base64 text of each algorithm.

        Raises:
            S3Error: BadDigest if they differ, InvalidRequest if the client stated no checksum of the right length.
        """
        found = {}
        for name, computed in self._hashes.items():
            header = PREFIX + name
            stated = headers.get(header) or self._trailers.get(header)
            if computed is not None:
                text = base64.b64encode(computed.digest()).decode()
                if stated is not None and stated != text:
                    _require_digest(header, stated, len(computed.digest()))
                    raise S3Error("BadDigest", Message=f"The {name.upper()} you specified did not match the body's.")
                found[header] = text
            elif stated:
                found[header] = stated
        return found


def stated(headers: Mapping[str, str]) -> set[str]:
    """Return the algorithms whose checksum a request states, in its headers or trailers. Raises S3Error InvalidRequest."""
    names = {name for name in _ALGORITHMS if PREFIX + name in headers}
    if len(names) > 1:
        message = f"Expecting a single {PREFIX} header. Multiple checksum Types are not allowed."
        raise S3Error("InvalidRequest", Message=message)
    trailer = headers.get("x-amz-trailer", "").strip().lower()
    return names | ({algorithm(trailer.removeprefix(PREFIX))} if trailer.startswith(PREFIX) else set())


def computable(name: str) -> bool:
    """Return whether the package that computes an algorithm is installed."""
    return _ALGORITHMS[name] is not None


def read(file: io.RawIOBase, name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Read a file to its end and return what `HashedBody.checksums` does."""
    body = HashedBody(file, {name}, {})
    buffer = bytearray(_BUFFER)
    while computable(name) and body.readinto(buffer):
        pass
    return body.checksums(headers)


def check_md5(headers: Mapping[str, str], md5: str) -> None:
    """Compare a body's MD5, in hex, with the request's Content-MD5. Raises S3Error BadDigest or InvalidDigest."""
    given = headers.get("content-md5")
    if given is not None and given != base64.b64encode(bytes.fromhex(md5)).decode():
        _require_digest("Content-MD5", given, 16)
        raise S3Error("BadDigest", Message="The Content-MD5 you specified did not match what we received.")


def _require_digest(header: str, text: str, size: int) -> None:
    try:
        right = len(base64.b64decode(text, validate=True)) == size
    except binascii.Error:
        right = False
    if not right:
        code = "InvalidDigest" if header == "Content-MD5" else "InvalidRequest"
        raise S3Error(code, Message=f"Value for {header} header is invalid.")


def composite(name: str, parts: list[str]) -> str:
    """Return the checksum of the parts' checksums (base64 texts), followed by their count."""
    make = _ALGORITHMS[name]
    assert make is not None, "the caller's parts have checksums of it"
    whole = make()
    for part in parts:
        whole.update(base64.b64decode(part))
    return f"{base64.b64encode(whole.digest()).decode()}-{len(parts)}"


def as_pairs(headers: Mapping[str, str]) -> Pairs:
    """Return the checksums among an object's headers as elements of a response: ChecksumCRC32, ChecksumType and so on."""
    return [
        ("ChecksumType" if name == TYPE else "Checksum" + name.removeprefix(PREFIX).upper(), value)
        for name, value in headers.items()
        if name.startswith(PREFIX)
    ]
