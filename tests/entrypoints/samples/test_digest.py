"""Digests depend on the samples and on nothing else; parts add up."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.sample import Sample
from entrypoints.samples.digest import MODULUS, Tally, sample_digest

samples = st.lists(
    st.dictionaries(st.text(max_size=3).filter(lambda name: name != "__key__"), st.binary(max_size=4)), max_size=6
)


def tally(items: list[Sample]) -> Tally:
    total = Tally()
    for item in items:
        total.add(item)
    return total


@given(samples, st.randoms(use_true_random=False), st.integers(0, 6))
def test_order_and_division_do_not_matter(items: list[Sample], random: object, cut: int) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert tally(shuffled[:cut]) + tally(shuffled[cut:]) == tally(items)


@given(samples, samples)
def test_different_samples_differ(first: list[Sample], second: list[Sample]) -> None:
    def kinds(items: list[Sample]) -> list[list[tuple[str, bytes]]]:
        return sorted(sorted(item.items()) for item in items)

    assert (tally(first) == tally(second)) == (kinds(first) == kinds(second))


def test_the_definition() -> None:
    content = b"".join(struct.pack("<QQ", len(n), len(v)) + n + v for n, v in [(b"cls", b"3"), (b"jpg", b"\xff\xd8")])
    sample = {"__key__": "a/1", "jpg": b"\xff\xd8", "cls": b"3"}
    assert sample_digest(sample) == int(hashlib.sha256(content).hexdigest(), 16)
    assert tally([sample]) == Tally(1, 3, sample_digest(sample))
    assert tally([sample] * 3).hex == f"{3 * sample_digest(sample) % MODULUS:064x}"


def test_what_is_not_bytes_has_no_digest() -> None:
    with pytest.raises(TypeError, match="field 'label' holds int"):
        sample_digest({"label": 3})
