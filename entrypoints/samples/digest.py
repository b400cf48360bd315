"""Count, bytes and an order-independent digest of samples, to compare what two jobs or input modes read.

The digest is the sum of the samples' SHA-256 modulo 2^256. A sum does not depend on the order, which ranks, workers and shuffling
change, and digests of ranks and hosts add up to the digest of the channel. With XOR a sample read twice would cancel out.

A sample's SHA-256 covers its fields, sorted by name, without `__key__`, which a Pipe does not know. For each field: the length of
the name and of the value (8 bytes each, little-endian), then both, so that different samples never hash the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from entrypoints.sample import KEY, Sample

MODULUS = 1 << 256
_LENGTHS = struct.Struct("<QQ")


def sample_digest(sample: Sample) -> int:
    """Return a sample's SHA-256 as a number. Raises TypeError for a field that does not hold bytes."""
    digest = hashlib.sha256()
    for name in sorted(sample):
        if name == KEY:
            continue
        value = sample[name]
        if not isinstance(value, bytes):
            raise TypeError(f"field {name!r} holds {type(value).__name__}; a digest needs bytes")
        encoded = name.encode("utf-8", "surrogateescape")
        digest.update(_LENGTHS.pack(len(encoded), len(value)) + encoded)
        digest.update(value)
    return int.from_bytes(digest.digest(), "big")


@dataclass
class Tally:
    """The samples read so far. Tallies of ranks or epochs add up.

    Attributes:
        count: Samples.
        bytes: Bytes of all fields except `__key__`.
        digest: The sum of the samples' digests modulo 2^256.
    """

    count: int = 0
    bytes: int = 0
    digest: int = 0

    def add(self, sample: Sample) -> None:
        """Count one more sample."""
        self.digest = (self.digest + sample_digest(sample)) % MODULUS
        self.bytes += sum([len(value) for name, value in sample.items() if name != KEY])
        self.count += 1

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of both together."""
        return Tally(self.count + other.count, self.bytes + other.bytes, (self.digest + other.digest) % MODULUS)

    @property
    def hex(self) -> str:
        """The digest as 64 hexadecimal digits."""
        return f"{self.digest:064x}"
