"""even_batches: equally many steps on every rank, and each batch on one."""

from __future__ import annotations

from framework_ranks import ranks
from sagemaker_channels.torch_data.ranks import even_batches


def test_even_batches_of_one_process_all_count() -> None:
    assert list(even_batches([1, 2, 3])) == [(1, True), (2, True), (3, True)]


def test_batches_that_are_left_are_taken_by_the_ranks_that_have_run_out() -> None:
    first, second, third = ranks(3, "framework_data.by_even_batches", [5, 2, 5])
    assert first == [("0.0", True), ("0.1", True), ("0.2", True), ("0.4", True)]
    assert second == [("1.0", True), ("1.1", True), ("0.3", True), ("2.4", True)]
    assert third == [("2.0", True), ("2.1", True), ("2.2", True), ("2.3", True)]


def test_fewer_last_batches_than_ranks_count_once() -> None:
    first, empty, last = ranks(3, "framework_data.by_even_batches", [2, 0, 2])
    assert first == [("0.0", True), ("2.1", False)]
    assert empty == [("0.1", True), ("2.1", False)]
    assert last == [("2.0", True), ("2.1", True)]
