"""Jobs that are killed after a step and resumed on other ranks, in every framework: no sample is lost or repeated."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import framework_data
from framework_channels import make_job
from framework_ranks import ranks

OBJECTS = 64  # whole batches for 1, 2 and 4 ranks of 2 threads, also of what is left
CHANGES = [(1, 2), (2, 2), (2, 1), (4, 2)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_job(tmp_path_factory.mktemp("job"), objects=OBJECTS)


def check_exact(seen: list[dict[int, list[int]]], copies: int = 0) -> None:
    """Assert that each sample was read once in each epoch, but for some copies with which ranks fill the last step up."""
    for epoch in range(2):
        found = Counter(number for life in seen for number in life.get(epoch, []))
        assert not Counter(range(OBJECTS)) - found, f"epoch {epoch} has lost samples"
        assert found.total() - OBJECTS <= copies, f"epoch {epoch}"


@pytest.mark.parametrize(
    ("loader", "change"),
    [*(("threads", change) for change in CHANGES), ("stateful", (2, 2)), ("stateful workers", (4, 2))],
    ids=str,
)
def test_distributed_loop_resumes_on_any_number_of_ranks(root: Path, change: tuple[int, int], loader: str) -> None:
    before, after = change
    stop = 4 if before < 4 else 2
    first = ranks(before, "framework_data.by_loop", root, "objects", loader, None, stop)
    second = ranks(after, "framework_data.by_loop", root, "objects", loader, first[0][1])
    check_exact([seen for seen, _ in first + second])
    if before == after:
        whole = ranks(before, "framework_data.by_loop", root, "objects", loader)
        for (one, _), (two, _), (all_, _) in zip(first, second, whole, strict=True):
            assert {epoch: one.get(epoch, []) + two[epoch] for epoch in range(2)} == all_


@pytest.mark.parametrize(
    ("loader", "change"),
    [("threads", (1, 2)), ("threads", (4, 2)), ("stateful", (2, 2))],
    ids=str,
)
def test_lightning_resumes_on_any_number_of_ranks(
    root: Path, tmp_path: Path, change: tuple[int, int], loader: str
) -> None:
    before, after = change
    stop, checkpoint = 4 if before < 4 else 2, str(tmp_path / "checkpoint")

    def fit(count: int, resume: str | None, stop: int | None) -> Any:
        return ranks(
            count, "framework_loops.by_lightning", root, "objects", loader, True, False, resume, stop, checkpoint
        )

    seen = fit(before, None, stop) + fit(after, checkpoint, None)
    check_exact(seen, copies=0 if before >= after else framework_data.BATCH * (after - 1))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
@pytest.mark.parametrize("change", [(1, 2), (4, 2)], ids=str)
def test_trainer_resumes_on_any_number_of_ranks(root: Path, tmp_path: Path, change: tuple[int, int]) -> None:
    before, after = change
    batches, stop, output = OBJECTS // framework_data.BATCH, 4 if before < 4 else 2, str(tmp_path)
    left = stop + (2 * batches - stop * before) // after + (before < after)  # It may have a step that is filled up.
    first = ranks(
        before, "framework_loops.by_trainer", root, "objects", 2 * batches // before, output, True, 0, None, stop
    )
    checkpoint = f"{output}/checkpoint-{stop}"
    second = ranks(after, "framework_loops.by_trainer", root, "objects", left, output, True, 0, checkpoint)
    found, expected = Counter(number for rank in first + second for number in rank), Counter([*range(OBJECTS)] * 2)
    assert found >= expected
    assert before < after or found == expected


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
@pytest.mark.parametrize("number", range(3), ids=["lightning", "accelerate", "trainer"])
def test_examples_of_the_page_read_each_sample_once_and_resume(tmp_path: Path, number: int) -> None:
    page = (Path(__file__).parents[3] / "docs/howto/frameworks.md").read_text()
    text = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[number]
    root = make_job(tmp_path / "job", objects=OBJECTS, name="train")
    out = tmp_path / "out"
    out.mkdir()
    resume = (f"{out}/lightning.ckpt", None, f"{out}/checkpoint-4")[number]

    def run(count: int, *arguments: Any) -> Counter[int]:
        return Counter(n for rank in ranks(count, "framework_loops.by_page", text, root, *arguments) for n in rank)

    epochs = 1 if number == 2 else 2  # The example of the Trainer has 8 steps.
    assert run(2, tmp_path / "whole") == Counter([*range(OBJECTS)] * epochs)
    first = run(2, out, None, 4)
    assert first.total() == 4 * 2 * framework_data.BATCH
    copy = shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert first + run(2, out, resume) == Counter([*range(OBJECTS)] * epochs)
    if number < 2:
        assert first + run(1, copy, resume) == Counter([*range(OBJECTS)] * epochs)
