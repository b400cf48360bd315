"""Whether two readings gave the same samples: count, bytes, and a digest that does not depend on order.

The digest is the sum, modulo 2^256, of each sample's SHA-256. A sum and not a hash of the whole, because ranks, workers and
shuffling change the order and because the parts that hosts and ranks report must add up: the digest of a job's channel
is the sum of its ranks' digests modulo 2^256. Sum and not XOR, so that a sample read twice does not cancel out.

A sample's SHA-256 covers its fields, sorted by name, without `__key__` (which only some ways of arriving know): for each
the name and the value, each after its own length as 8 bytes, little-endian, so that no two samples look alike.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from entrypoints.sample import KEY, Sample

MODULUS = 1 << 256
_LENGTHS = struct.Struct("<QQ")


def sample_digest(sample: Sample) -> int:
    """One sample's SHA-256 as a number. Raises TypeError for a field that does not hold bytes."""
    digest = hashlib.sha256()
    for name in sorted(sample):
        if name == KEY:
            continue
        value = sample[name]
        if not isinstance(value, bytes):
            raise TypeError(f"field {name!r} holds {type(value).__name__}, and only bytes have a digest")
        encoded = name.encode("utf-8", "surrogateescape")
        digest.update(_LENGTHS.pack(len(encoded), len(value)) + encoded)
        digest.update(value)
    return int.from_bytes(digest.digest(), "big")


@dataclass
class Tally:
    """What has been read so far; add samples to it, or another part's tally."""

    count: int = 0  # samples
    bytes: int = 0  # of all fields but `__key__`
    digest: int = 0

    def add(self, sample: Sample) -> None:
        """Counts one more sample."""
        self.digest = (self.digest + sample_digest(sample)) % MODULUS
        self.bytes += sum([len(value) for name, value in sample.items() if name != KEY])
        self.count += 1

    def __add__(self, other: Tally) -> Tally:
        """The tally of both parts together."""
        return Tally(self.count + other.count, self.bytes + other.bytes, (self.digest + other.digest) % MODULUS)

    @property
    def hex(self) -> str:
        """The digest as 64 hexadecimal digits."""
        return f"{self.digest:064x}"
