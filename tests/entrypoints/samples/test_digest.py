"""Digests depend on the samples and on nothing else; parts add up."""

from __future__ import annotations

import hashlib
import struct
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_channels.sample import Sample
from sagemaker_channels.samples.digest import MODULUS, Tally

samples = st.lists(
    st.dictionaries(st.text(max_size=3).filter(lambda name: name != "__key__"), st.binary(max_size=4)), max_size=6
)


def tally(items: list[Sample]) -> Tally:
    total = Tally()
    for item in items:
        total.add(item)
    return total


@given(samples, st.randoms(use_true_random=False), st.integers(0, 6))
def test_tally_is_independent_of_order_and_division(items: list[Sample], random: object, cut: int) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert tally(shuffled[:cut]) + tally(shuffled[cut:]) == tally(items)


@given(samples, samples)
def test_tally_differs_exactly_if_samples_differ(first: list[Sample], second: list[Sample]) -> None:
    def kinds(items: list[Sample]) -> list[list[tuple[str, bytes]]]:
        return sorted(sorted(item.items()) for item in items)

    assert (tally(first) == tally(second)) == (kinds(first) == kinds(second))


def test_digest_is_the_sum_of_sha256_of_named_fields() -> None:
    content = b"".join(struct.pack("<QQ", len(n), len(v)) + n + v for n, v in [(b"cls", b"3"), (b"jpg", b"\xff\xd8")])
    sample = {"__key__": "a/1", "jpg": b"\xff\xd8", "cls": b"3"}
    assert tally([sample]).digest == int(hashlib.sha256(content).hexdigest(), 16)
    assert tally([sample]) == Tally(1, 3, tally([sample]).digest)
    assert tally([sample] * 3).hex == f"{3 * tally([sample]).digest % MODULUS:064x}"


def parsed(**changes: object) -> Sample:
    """A sample with every kind of value that a parsed format yields."""
    return {
        "label": 3,
        "text": "é",
        "row": {"b": [1.5, None], "a": (b"\xff", True)},
        "when": datetime(2024, 1, 2),
        "values": np.arange(6, dtype="float32").reshape(2, 3),
        "nanoseconds": np.datetime64(1, "ns"),
        "objects": np.array(["x", None], dtype=object),
        **changes,
    }


def test_parsed_values_have_the_digest_of_their_content() -> None:
    assert tally([parsed()]).digest == tally([parsed(row={"a": (b"\xff", True), "b": [1.5, None]})]).digest
    assert tally([{"label": 3, "data": b"ab"}]).bytes == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"label": 4},
        {"label": "3"},
        {"row": {"b": [1.5], "a": (b"\xff", True)}},
        {"row": {"b": [1.5, None], "a": (b"\xfe", True)}},
        {"when": datetime(2024, 1, 3)},
        {"values": np.arange(6, dtype="float32").reshape(3, 2)},
        {"values": np.arange(6, dtype="int32").reshape(2, 3)},
        {"nanoseconds": np.datetime64(1, "us")},
        {"objects": np.array(["y", None], dtype=object)},
    ],
)
def test_changed_parsed_value_changes_the_digest(changes: Sample) -> None:
    assert tally([parsed(**changes)]).digest != tally([parsed()]).digest
