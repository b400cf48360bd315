"""Every framework and loader on 1, 2 and 4 ranks: each sample once, or one error that names the remedy.

Jobs that are killed after a step and resumed on other ranks lose or repeat no sample. One file, since one import serves it.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import framework_data
from framework_data import make_job
from framework_ranks import RankError, ranks

SAMPLES = {"objects": [*range(61)], "map": [*range(61)], "lines": [*range(65)], "mixed": [*range(61), *range(65)]}
PREPARED = [
    {"dispatch_batches": dispatch, "split_batches": split}
    for dispatch in (None, False, True)
    for split in (False, True)
]
# Ranks and what they read: what matters to a framework is whether the samples divide among the ranks, and mixtures on several.
CASES = [(1, "lines"), (2, "lines"), (2, "objects"), (4, "mixed")]
EVEN = 64  # whole batches for 1, 2 and 4 ranks of 2 threads, also of what is left
CHANGES = [(1, 2), (2, 2), (2, 1), (4, 2)]


def pairs(loaders: Iterable[str]) -> list[tuple[str, int, str]]:
    """Return the last loader with every case, and the others with samples that do not divide among two ranks."""
    *others, last = loaders
    return [*((loader, 2, "lines") for loader in others), *((last, *case) for case in CASES)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_job(tmp_path_factory.mktemp("job"), objects=61)


@pytest.fixture(scope="module")
def even_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_job(tmp_path_factory.mktemp("job"), objects=EVEN)


def check_once(kind: str, seen: list[dict[int, list[int]]], copies: int = 0, epochs: int = 2) -> None:
    """Assert that the ranks have got each sample once in each epoch, and at most so many samples again."""
    for epoch in range(epochs):
        found = Counter(number for rank in seen for number in rank[epoch])
        expected = Counter(SAMPLES[kind])
        assert not expected - found, f"epoch {epoch} has lost {sorted((expected - found).elements())}"
        assert (found - expected).total() <= copies, f"epoch {epoch} repeats {sorted((found - expected).elements())}"
    if kind != "map":
        assert all(rank[0] != rank[1] for rank in seen), "both epochs have one order"


@pytest.mark.parametrize(
    ("count", "kind", "options"),
    [(2, "lines", options) for options in PREPARED] + [(1, "lines", {}), (4, "mixed", {}), (4, "map", {})],
    ids=str,
)
def test_prepared_loader_has_each_sample_and_accelerates_own_copies(
    root: Path, count: int, kind: str, options: dict[str, Any]
) -> None:
    seen = ranks(count, "framework_loops.by_accelerate", root, kind, "plain", options)
    # accelerate fills the last step up, by default to a whole batch on each rank.
    check_once(kind, seen, copies=framework_data.BATCH * count - 1 if count > 1 else 0)


@pytest.mark.parametrize(("count", "kind"), CASES)
def test_prepared_thread_loader_has_each_sample_once(root: Path, count: int, kind: str) -> None:
    check_once(kind, ranks(count, "framework_loops.by_accelerate", root, kind, "threads", {}))


def test_dispatcher_with_workers_is_refused_because_it_drops_samples(root: Path) -> None:
    with pytest.raises(RankError, match=r"accelerate drops samples .* use num_workers=1, or use a ThreadLoader"):
        ranks(2, "framework_loops.by_accelerate", root, "lines", "workers", {})
    seen = ranks(2, "framework_loops.by_accelerate", root, "lines", "workers", {"dispatch_batches": False})
    check_once("lines", seen, copies=2 * (2 * framework_data.BATCH - 1))  # of each worker


@pytest.mark.parametrize(("loader", "count", "kind"), pairs(framework_data.LOADERS))
def test_distributed_loop_has_each_sample_once_without_torchruns_variables(
    root: Path, count: int, kind: str, loader: str
) -> None:
    check_once(kind, [seen for seen, _ in ranks(count, "framework_data.by_loop", root, kind, loader)])


@pytest.mark.parametrize("loader", ["plain", "workers", "threads"])
def test_ranks_that_leave_loops_at_different_places_of_an_epoch_need_set_epoch(root: Path, loader: str) -> None:
    """A rank that has read its part of the epoch goes on with the next one, and the others began theirs again, silently.

    Without a seed it reads the same again."""
    if loader != "workers":  # Its processes read on to the end, unless they are too slow for that.
        with pytest.raises(RankError, match="call set_epoch before each loop that may be left early"):
            ranks(2, "framework_data.by_left_loops", root, loader, False)
    for is_set, seed in [(True, 7), (False, None)]:
        for loop in zip(*ranks(2, "framework_data.by_left_loops", root, loader, is_set, seed), strict=True):
            found = [number for rank in loop for number in rank]
            assert len(found) == len(set(found))


@pytest.mark.parametrize("loader", ["plain", "workers", "threads"])
def test_rank_that_begins_an_epoch_again_before_another_has_ended_it_is_an_error(root: Path, loader: str) -> None:
    """The one that begins its second loop later notices it."""
    with pytest.raises(RankError, match="call set_epoch before each loop that may be left early"):
        ranks(2, "framework_data.by_one_left_loop", root, loader)


@pytest.mark.parametrize("loader", ["workers", "threads"])
def test_ranks_forked_with_a_dataset_have_each_sample_once(root: Path, loader: str) -> None:
    [seen] = ranks(1, "framework_data.by_fork", root, "lines", loader, 2)
    check_once("lines", seen)


def test_ranks_that_get_a_pickled_dataset_have_each_sample_once(root: Path) -> None:
    """As ranks do that are started by spawn."""
    dataset = framework_data.dataset_of(root, "lines")
    check_once("lines", ranks(2, "framework_data.by_given", dataset, "workers"))


@pytest.mark.parametrize(("loader", "count", "kind"), pairs(["stateful", "stateful workers", "threads"]))
def test_lightning_has_each_sample_once(root: Path, count: int, kind: str, loader: str) -> None:
    seen = ranks(count, "framework_loops.by_lightning", root, kind, loader, True, loader == "threads")
    check_once(kind, seen, copies=framework_data.BATCH * (count - 1))


@pytest.mark.parametrize(
    ("count", "loader"),
    [(2, "plain"), (2, "workers"), (2, "threads"), (1, "threads"), (1, "stateful"), (1, "stateful workers")],
)
def test_loader_that_lightning_would_lose_samples_of_is_refused(root: Path, count: int, loader: str) -> None:
    with pytest.raises(
        RankError, match=re.escape("give it sagemaker_channels.LightningLoader(loader) in place of the loader")
    ):
        ranks(count, "framework_loops.by_lightning", root, "lines", loader, False)


def test_lightning_takes_a_plain_loader_on_one_rank_and_for_validation(root: Path) -> None:
    check_once("lines", ranks(1, "framework_loops.by_lightning", root, "lines", "plain", False))
    # Lightning drops what is beyond the length, so each worker's incomplete batch counts.
    check_once("objects", ranks(1, "framework_loops.by_lightning", root, "objects", "workers", False))
    seen = ranks(2, "framework_loops.by_lightning", root, "lines", "threads", True, False, None, None, "", True)
    check_once("lines", [{0: rank[-1], 1: rank[-2]} for rank in seen])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
@pytest.mark.parametrize(
    ("own", "count", "kind"),
    [(False, 1, "lines"), (False, 2, "lines"), (False, 4, "map"), (True, 2, "lines"), (True, 4, "mixed")],
    ids=lambda value: {True: "loader", False: "dataset"}.get(value) if isinstance(value, bool) else None,
)
def test_trainer_has_each_sample(root: Path, tmp_path: Path, own: bool, count: int, kind: str) -> None:
    steps = -(-len(SAMPLES[kind]) // (framework_data.BATCH * count))
    if own:
        steps += 1  # Each thread of a rank may end with an incomplete batch.
    seen = ranks(count, "framework_loops.by_trainer", root, kind, steps, str(tmp_path), own)
    found = Counter(number for rank in seen for number in rank)
    assert not Counter(SAMPLES[kind]) - found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
def test_trainer_with_workers_reads_all_on_one_rank_and_is_refused_on_two(root: Path, tmp_path: Path) -> None:
    # The Trainer takes the number of steps from the loader's length.
    arguments = "framework_loops.by_trainer", root, "objects", -1, str(tmp_path), False, 2
    [seen] = ranks(1, *arguments)
    assert sorted(seen) == SAMPLES["objects"]
    with pytest.raises(RankError, match="use num_workers=1, or use a ThreadLoader"):
        ranks(2, *arguments)
    with pytest.raises(RankError, match="epoch 0, but the loaded state continues in epoch 2; return an EvenLoader"):
        ranks(1, "framework_loops.misuse", root, "epoch of the Trainer after resuming")


@pytest.mark.parametrize(
    ("what", "remedy"),
    {
        "position of a prepared loader": "use a ThreadLoader, which accelerate leaves as it is",
        "checkpoint of a prepared loader": "use a ThreadLoader, which accelerate leaves as it is",
        "resuming a prepared loader": "use a ThreadLoader, which accelerate leaves as it is",
        "position in a prepared loop": "take the state_dict() of a ThreadLoader or WorkerLoader",
        "epoch of accelerate after resuming": "call set_epoch(2) of the loader that it has prepared before the loop",
        "skipping batches": "with TrainingArguments(ignore_data_skip=True)",
        "skipping batches of threads": "call load_state_dict() with the position",
        "late process group": "begin to iterate after init_process_group",
    }.items(),
    ids=lambda text: str(text).replace(" ", "-"),
)
def test_misuse_that_would_lose_samples_is_an_error_with_its_remedy(root: Path, what: str, remedy: str) -> None:
    with pytest.raises(RankError, match=re.escape(remedy)):
        ranks(2, "framework_loops.misuse", root, what)


@pytest.mark.parametrize(("kind", "is_wrong"), [("lines", True), ("objects", False)])
def test_batches_that_are_skipped_without_a_length_are_warned_of(root: Path, kind: str, is_wrong: bool) -> None:
    [log] = ranks(1, "framework_loops.skipping", root, kind)
    assert ("would read samples again; return an EvenLoader of a ThreadLoader" in log) == is_wrong


def test_fabric_takes_a_thread_loader(root: Path) -> None:
    [seen] = ranks(1, "framework_loops.fabric", root)
    assert sorted(seen) == SAMPLES["lines"]


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


def test_ranks_that_read_the_same_take_the_same_batches(root: Path) -> None:
    """The third group runs out first, and takes batches of both others."""
    first, second, third, its_other_rank = ranks(4, "framework_data.by_groups", root, [0, 1, 2, 2])
    assert third == its_other_rank
    found = [number for batch, counts in [*first, *second, *third] if counts for number in batch]
    assert sorted(found) == SAMPLES["lines"]
    assert len(first) == len(second) == len(third)


def check_exact(seen: list[dict[int, list[int]]], copies: int = 0) -> None:
    """Assert that each sample was read once in each epoch, but for some copies with which ranks fill the last step up."""
    for epoch in range(2):
        found = Counter(number for life in seen for number in life.get(epoch, []))
        assert not Counter(range(EVEN)) - found, f"epoch {epoch} has lost samples"
        assert found.total() - EVEN <= copies, f"epoch {epoch}"


@pytest.mark.parametrize(
    ("loader", "change"),
    [*(("threads", change) for change in CHANGES), ("stateful", (2, 2)), ("stateful workers", (4, 2))],
    ids=str,
)
def test_distributed_loop_resumes_on_any_number_of_ranks(even_root: Path, change: tuple[int, int], loader: str) -> None:
    before, after = change
    stop = 4 if before < 4 else 2
    first = ranks(before, "framework_data.by_loop", even_root, "objects", loader, None, stop)
    second = ranks(after, "framework_data.by_loop", even_root, "objects", loader, first[0][1])
    check_exact([seen for seen, _ in first + second])
    if before == after:
        whole = ranks(before, "framework_data.by_loop", even_root, "objects", loader)
        for (one, _), (two, _), (all_, _) in zip(first, second, whole, strict=True):
            assert {epoch: one.get(epoch, []) + two[epoch] for epoch in range(2)} == all_


@pytest.mark.parametrize(
    ("loader", "change"),
    [("threads", (1, 2)), ("threads", (4, 2)), ("stateful", (2, 2))],
    ids=str,
)
def test_lightning_resumes_on_any_number_of_ranks(
    even_root: Path, tmp_path: Path, change: tuple[int, int], loader: str
) -> None:
    before, after = change
    stop, checkpoint = 4 if before < 4 else 2, str(tmp_path / "checkpoint")

    def fit(count: int, resume: str | None, stop: int | None) -> Any:
        return ranks(
            count, "framework_loops.by_lightning", even_root, "objects", loader, True, False, resume, stop, checkpoint
        )

    seen = fit(before, None, stop) + fit(after, checkpoint, None)
    check_exact(seen, copies=0 if before >= after else framework_data.BATCH * (after - 1))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
@pytest.mark.parametrize("change", [(1, 2), (4, 2)], ids=str)
def test_trainer_resumes_on_any_number_of_ranks(even_root: Path, tmp_path: Path, change: tuple[int, int]) -> None:
    """It stops in the middle of the second epoch, and after the last batch of the first."""
    before, after = change
    batches, stop, output = EVEN // framework_data.BATCH, 20 if before < 4 else 4, str(tmp_path)
    left = stop + (2 * batches - stop * before) // after + (before < after)  # It may have a step that is filled up.
    first = ranks(
        before, "framework_loops.by_trainer", even_root, "objects", 2 * batches // before, output, True, 0, None, stop
    )
    checkpoint = f"{output}/checkpoint-{stop}"
    second = ranks(after, "framework_loops.by_trainer", even_root, "objects", left, output, True, 0, checkpoint)
    found, expected = Counter(number for rank in first + second for number in rank), Counter([*range(EVEN)] * 2)
    assert found >= expected
    assert before < after or found == expected


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
@pytest.mark.parametrize("number", range(3), ids=["lightning", "accelerate", "trainer"])
def test_examples_of_the_page_read_each_sample_once_and_resume(tmp_path: Path, number: int) -> None:
    page = (Path(__file__).parents[3] / "docs/howto/frameworks.md").read_text()
    text = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[number]
    root = make_job(tmp_path / "job", objects=EVEN, name="train")
    out = tmp_path / "out"
    out.mkdir()
    resume = (f"{out}/lightning.ckpt", None, f"{out}/checkpoint-4")[number]

    def run(count: int, *arguments: Any) -> Counter[int]:
        return Counter(n for rank in ranks(count, "framework_loops.by_page", text, root, *arguments) for n in rank)

    epochs = 1 if number == 2 else 2  # The example of the Trainer has 8 steps.
    assert run(2, tmp_path / "whole") == Counter([*range(EVEN)] * epochs)
    first = run(2, out, None, 4)
    assert first.total() == 4 * 2 * framework_data.BATCH
    copy = shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert first + run(2, out, resume) == Counter([*range(EVEN)] * epochs)
    if number < 2:
        assert first + run(1, copy, resume) == Counter([*range(EVEN)] * epochs)
