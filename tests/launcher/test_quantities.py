"""Durations and sizes, as every key, option and answer takes them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from launcher.commands.options import duration
from launcher.console import human_bytes
from launcher.quantities import bytes_of, seconds_of
from launcher.spec.job import JobSpec
from launcher.spec.values import Plain


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("45s", 45), ("90m", 5400), ("1h30m", 5400), ("2d", 172_800), ("1w2d", 777_600), ("0s", 0), (" 10m ", 600)],
)
def test_durations_are_one_grammar_in_specs_and_options(written: str, seconds: int) -> None:
    assert seconds_of(written) == duration(written) == seconds
    condition = {"max_runtime_in_seconds": written}
    spec = JobSpec.model_validate({"base_name": "a", "stopping_condition": condition})
    assert spec.stopping_condition is not None
    assert spec.stopping_condition.max_runtime_in_seconds == seconds


def test_sizes_have_decimal_units_and_one_byte_its_singular() -> None:
    assert [human_bytes(size) for size in (0, 1, 999, 1e3, 2.5e9, 3e15)] == [
        *("0 bytes", "1 byte", "999 bytes", "1.0 kB", "2.5 GB", "3000.0 TB")
    ]


@pytest.mark.parametrize("written", ["", "10", "m", "10 minutes", "1.5h", "30m1h", "-5s", "٣s"])
def test_other_texts_are_no_durations(written: str) -> None:
    assert seconds_of(written) is None


@pytest.mark.parametrize(
    ("written", "size"),
    [("4096", 4096), ("256MB", 256 * 10**6), ("1.5 GiB", 3 << 29), ("2tb", 2 * 10**12), ("64KiB", 1 << 16)],
)
def test_sizes_are_decimal_unless_the_unit_is_binary(written: str, size: int) -> None:
    assert bytes_of(written) == size


@pytest.mark.parametrize(
    ("written", "size"), [("100GB", 100), ("1.5 tb", 1500), ("4.1TB", 4100), ("500000MB", 500), ("7", 7)]
)
def test_sizes_are_one_grammar_in_specs_and_options(written: str, size: int) -> None:
    spec = JobSpec.model_validate({"base_name": "a", "resource_config": {"volume_size_in_gb": Plain(written)}})
    assert spec.resource_config is not None
    assert spec.resource_config.volume_size_in_gb == size


@pytest.mark.parametrize("written", ["0.1GB", "50GiB", "2000000000.0", "GB"])
def test_sizes_that_are_no_whole_gigabytes_are_refused_in_specs(written: str) -> None:
    with pytest.raises(
        ValidationError, match=r"a whole number of GB belongs here(, such as 50, 100GB or 2TB|; write 2000000000)"
    ):
        JobSpec.model_validate({"base_name": "a", "resource_config": {"volume_size_in_gb": Plain(written)}})


@pytest.mark.parametrize("written", ["", "MB", "5XB", "1e3MB", "-1MB", "5 M"])
def test_other_texts_are_no_sizes(written: str) -> None:
    assert bytes_of(written) is None
