"""Count, bytes and an order-independent digest of samples, to compare what two jobs or input modes read.

The digest is the sum of the samples' SHA-256 modulo 2^256. A sum does not depend on the order, which ranks, workers and shuffling
change, and digests of ranks and hosts add up to the digest of the channel. With XOR a sample read twice would cancel out.

A sample's SHA-256 covers its fields, sorted by name, without `__key__`, which a Pipe does not know. For each field: the length of
the name and of the value (8 bytes each, little-endian), then both, so that different samples never hash the same bytes. Bytes are
hashed as they are; every other value as JSON with sorted keys, in which an array is its type, shape and content.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

from sagemaker_channels.sample import KEY, Sample

MODULUS = 1 << 256
_LENGTHS = struct.Struct("<QQ")


def _plain(value: Any) -> Any:
    """Return a value as what JSON can hold: bytes in hexadecimal, numpy's arrays and scalars by type, shape and content.

    A list stays a list and a tuple becomes one; times, decimals and UUIDs become Python's text of them.
    """
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if hasattr(value, "dtype"):
        # The references of an array of objects differ from process to process; its values do not.
        content = _plain(value.tolist()) if value.dtype.hasobject else value.tobytes().hex()
        return {"dtype": value.dtype.str, "shape": value.shape, "content": content}
    return value if value is None or isinstance(value, (bool, int, float, str)) else f"{type(value).__name__} {value}"


@dataclass
class Tally:
    """The samples read so far. Tallies of ranks or epochs add up."""

    count: int = 0
    bytes: int = 0  # of all fields except `__key__`, in the form that is hashed
    digest: int = 0  # the sum of the samples' digests modulo 2^256

    def add(self, sample: Sample) -> None:
        digest = hashlib.sha256()
        for name, value in sorted(sample.items()):
            if name == KEY:
                continue
            data = value if isinstance(value, bytes) else json.dumps(_plain(value), sort_keys=True).encode()
            encoded = name.encode("utf-8", "surrogateescape")
            digest.update(_LENGTHS.pack(len(encoded), len(data)) + encoded)
            digest.update(data)
            self.bytes += len(data)
        self.digest = (self.digest + int.from_bytes(digest.digest(), "big")) % MODULUS
        self.count += 1

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.bytes + other.bytes, (self.digest + other.digest) % MODULUS)

    def __str__(self) -> str:
        return f"{self.count:,} samples, digest {self.hex[:16]}"

    @property
    def hex(self) -> str:
        """The digest as 64 hexadecimal digits."""
        return f"{self.digest:064x}"
