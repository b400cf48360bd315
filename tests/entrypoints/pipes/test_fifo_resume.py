"""States of a Pipe: a job that resumes in a new container, whose FIFOs are counted from 0 again, gets the samples that are left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forked import printed
from pipe_feeder import Feed, Feeder, make_root
from pipe_jobs import epoch_of, job, job_of_ranks, lines_of, words
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader


@pytest.fixture(autouse=True)
def feeder(feed: Feed) -> Feeder:
    return feed("lines", lines_of)


RESUME = """
dataset = ChannelDataset("lines", transform=words, **({"seed": 1, "block": 50} if sys.argv[1] == "shuffled" else {}))
loader = WorkerLoader(dataset, 10, num_workers=int(sys.argv[2]), collate_fn=list)
file = Path(sys.argv[3] + os.environ.get("RANK", "0"))
if file.exists():
    loader.load_state_dict(pickle.loads(file.read_bytes()))
else:
    dataset.set_epoch(int(sys.argv[4]))
given = []
for number, batch in enumerate(loader):
    given += batch
    if not file.exists() and number + 1 == int(sys.argv[5]):
        break
report(given)
if not file.exists():
    file.write_bytes(pickle.dumps(loader.state_dict()))
else:
    dataset.set_epoch(int(sys.argv[4]) + 1)
    report([sample for batch in loader for sample in batch])
"""


def run(root: Path, *arguments: str) -> list[Any]:
    """What RESUME reports."""
    return printed(job(root, RESUME, *arguments))


def in_two_containers(
    root: Path, tmp_path: Path, *arguments: str, run: Callable[..., list[Any]] = run
) -> tuple[list[Any], list[Any]]:
    """What RESUME reports at `root`, and then in a container whose FIFOs are counted from 0 again."""
    first = run(root, *arguments)
    other = tmp_path / "again"
    other.mkdir()
    make_root(other)
    feeder = Feeder(other, "lines", lines_of)
    second = run(other, *arguments)
    feeder.stop()
    return first, second


@pytest.mark.parametrize(("workers", "how"), [(0, "plain"), (2, "shuffled")])
def test_state_in_the_middle_of_a_later_epoch_resumes_in_a_new_container(
    tmp_path: Path, root: Path, workers: int, how: str
) -> None:
    [first], [rest, following] = in_two_containers(root, tmp_path, how, str(workers), str(tmp_path / "state"), "3", "7")
    assert len(first) == 70
    assert sorted(first + rest) == epoch_of(0)
    assert sorted(following) == epoch_of(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_state_of_a_pipe_that_sagemaker_shuffles_begins_its_epoch_again(
    tmp_path: Path, root: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{contract.SHUFFLED_CHANNELS_VARIABLE}0", '["lines"]')
    [first], [again, following] = in_two_containers(
        root, tmp_path, "plain", str(workers), str(tmp_path / "state"), "3", "7"
    )
    assert len(first) == 70
    assert sorted(again) == epoch_of(0)
    assert sorted(following) == epoch_of(1)


def test_thread_loaders_state_of_a_shuffled_pipe_begins_its_epoch_again(root: Path) -> None:
    environment = load_environment(root, {f"{contract.SHUFFLED_CHANNELS_VARIABLE}0": '["lines"]'})

    def loader(epoch: int | None) -> ThreadLoader:
        dataset = ChannelDataset("lines", environment=environment)
        if epoch is not None:
            dataset.set_epoch(epoch)
        return ThreadLoader(dataset, 50, num_workers=2, collate_fn=words)

    middle, whole = loader(3), loader(4)
    given = [batch for batch, _ in zip(middle, range(7), strict=False)]
    assert len(given) == 7
    assert middle.state_dict()["at"] == {"0": {"at": [0, 0]}}
    # In this container the next FIFO follows.
    assert sorted(line for batch in whole for line in batch) == epoch_of(1)
    state = json.loads(json.dumps(whole.state_dict()))
    after = loader(None)
    after.load_state_dict(state)
    assert after.dataset.epoch == 5  # a finished epoch is finished here, too
    after.load_state_dict(middle.state_dict())
    assert after.dataset.epoch == 3


def test_ranks_with_workers_resume_a_later_epoch(tmp_path: Path, root: Path) -> None:
    def ranks(root: Path, *arguments: str) -> list[Any]:
        return job_of_ranks(root, RESUME, *arguments)

    first, parts = in_two_containers(root, tmp_path, "plain", "2", str(tmp_path / "state"), "3", "5", run=ranks)
    assert [len(part) for part in first] == [50, 50]
    rest = [sample for part in parts for sample in part if sample[0] == 0]
    assert sorted([*first[0], *first[1], *rest]) == epoch_of(0)
    assert sorted(sample for part in parts for sample in part if sample[0] == 1) == epoch_of(1)


def test_state_of_a_pipe_is_refused_by_a_reader_of_objects(root: Path, feeder: Feeder, tmp_path: Path) -> None:
    """Its positions count samples, so that a position in objects would leave samples out."""
    with open_channel("lines", environment=load_environment(root, {})) as samples:
        next(samples)
        state = samples.state_dict()
    (tmp_path / "folder").mkdir()
    again = open_channel(tmp_path / "folder", format="lines")
    with pytest.raises(
        ChannelError, match="it has input 'Pipe', but this reader has input 'objects'; restart the epoch"
    ):
        again.load_state_dict(state)
