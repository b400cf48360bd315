"""even_batches: equally many steps on every rank, and each batch on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from patience import PATIENCE
from sagemaker_channels.torch_data.ranks import even_batches


def test_even_batches_of_one_process_all_count() -> None:
    assert list(even_batches([1, 2, 3])) == [(1, True), (2, True), (3, True)]


RANK = """
import json, os, sys
import torch.distributed as dist
from sagemaker_channels.torch_data.ranks import even_batches

rank, store, lengths = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=len(lengths))
try:
    batches = list(even_batches([f"{rank}.{number}" for number in range(lengths[rank])]))
except Exception as error:
    batches = str(error)
print(json.dumps(batches), flush=True)
os._exit(0)  # gloo's threads abort one exit in some ten
"""


def ranks(folder: Path, lengths: list[int]) -> list[Any]:
    command = [sys.executable, "-c", RANK]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "entrypoints"), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "store"), json.dumps(lengths)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
        )
        for rank in range(len(lengths))
    ]
    try:
        return [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_batches_that_are_left_are_taken_by_the_ranks_that_have_run_out(tmp_path: Path) -> None:
    first, second, third = ranks(tmp_path, [5, 2, 5])
    assert first == [["0.0", True], ["0.1", True], ["0.2", True], ["0.4", True]]
    assert second == [["1.0", True], ["1.1", True], ["0.3", True], ["2.4", True]]
    assert third == [["2.0", True], ["2.1", True], ["2.2", True], ["2.3", True]]


def test_fewer_last_batches_than_ranks_count_once(tmp_path: Path) -> None:
    first, empty, last = ranks(tmp_path, [2, 0, 2])
    assert first == [["0.0", True], ["2.1", False]]
    assert empty == [["0.1", True], ["2.1", False]]
    assert last == [["2.0", True], ["2.1", True]]
