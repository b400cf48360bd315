"""Transforms that make several samples of one, and filters: the same samples from every loader, and exact positions."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from format_channels import lines_channel
from patience import wait_for
from sagemaker_channels.epoch.states import is_finished, merge_states
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.worker_loader import WorkerLoader

ORDERS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled": {"seed": 3, "block": 5},
    "shards": {"seed": 3, "block": 5, "shards": 4},
    "mixture": {"is_mixed": True, "block": 5, "seed": 3},
}
WITHOUT_SHARDS = [name for name in ORDERS if name != "shards"]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A channel of 21 lines in 7 objects."""
    return lines_channel(tmp_path, "lines", 7, 3)


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["data"]).decode()


def parts_of(sample: dict[str, Any]) -> Iterator[str]:
    """0 to 4 parts, by the line's numbers."""
    text = text_of(sample)
    for part in range(sum(map(int, text.split("-"))) % 5):
        yield f"{text}.{part}"


EVERY = sorted(
    part for shard in range(7) for line in range(3) for part in parts_of({"data": f"{shard}-{line}".encode()})
)


class Parts:
    """A generator function that is an object."""

    def __call__(self, sample: dict[str, Any]) -> Iterator[str]:
        yield from parts_of(sample)


LOADERS: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda dataset: dataset,
    "plain": lambda dataset: DataLoader(dataset, 4, collate_fn=list),
    "plain workers": lambda dataset: DataLoader(dataset, 4, collate_fn=list, num_workers=2),
    "threads": lambda dataset: ThreadLoader(dataset, 4, collate_fn=list, num_workers=3),
    "two readers": lambda dataset: ThreadLoader(dataset, 4, collate_fn=list, num_workers=3, readers=2),
    "three readers": lambda dataset: ThreadLoader(dataset, 4, collate_fn=list, num_workers=3, readers=3),
    "no workers": lambda dataset: WorkerLoader(dataset, 4, collate_fn=list),
    "workers": lambda dataset: WorkerLoader(dataset, 4, collate_fn=list, num_workers=2),
}
STATEFUL = [name for name in LOADERS if not name.startswith("plain")]


def places(count: int, *loaders: str) -> list[int]:
    """Return every place in an epoch, or three if a loader has workers: each takes 0.1 s, and their positions are the dataset's."""
    return [1, count // 2, count - 1] if "workers" in loaders else [*range(count)]


def is_tested(loader: str, order: str) -> bool:
    """Return whether a loader resumes in an order: not with workers in the simple ones, since their positions are the dataset's."""
    return loader != "workers" or order in ("shards", "mixture")


def dataset_of(environment: Environment, transform: Any = parts_of, *, is_mixed: bool = False, **how: Any) -> Any:
    """Return a dataset of the channel's lines, or a mixture of two of which each drops some objects."""
    dataset = ChannelDataset("lines", transform=transform, environment=environment, **how)
    others = dataset.filter(lambda sample: not is_of_object_1_to_4(sample))
    return MixedDataset([dataset.filter(is_of_object_1_to_4), others], weights=[2, 1]) if is_mixed else dataset


def flat(batches: Iterable[Any]) -> list[str]:
    return [text for batch in batches for text in ([batch] if isinstance(batch, str) else batch)]


@pytest.mark.parametrize("order", WITHOUT_SHARDS)
@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_yields_all_parts_in_each_epoch(environment: Environment, loader: str, order: str) -> None:
    batches = LOADERS[loader](dataset_of(environment, **ORDERS[order]))
    assert [sorted(flat(batches)) for _ in range(2)] == [EVERY, EVERY]


@pytest.mark.parametrize(
    "transform", [Parts(), partial(parts_of), Parts().__call__], ids=["object", "partial", "method"]
)
def test_generator_functions_of_every_kind_are_known(environment: Environment, transform: Any) -> None:
    assert sorted(dataset_of(environment, transform)) == EVERY


def test_parts_follow_each_other_in_the_order_of_the_samples(environment: Environment) -> None:
    lines = dataset_of(environment, text_of, seed=3, block=5)
    expected = [part for text in lines for part in parts_of({"data": text.encode()})]
    dataset = dataset_of(environment, seed=3, block=5)
    for loader in ("dataset", "threads", "no workers"):
        dataset.set_epoch(0)
        assert flat(LOADERS[loader](dataset)) == expected


@pytest.mark.parametrize(
    ("loader", "order"), [pair for pair in product(STATEFUL, ORDERS) if pair[0] != "three readers" and is_tested(*pair)]
)
def test_resumed_after_any_part_continues_in_the_same_order(environment: Environment, loader: str, order: str) -> None:
    def made() -> Any:
        return LOADERS[loader](dataset_of(environment, **ORDERS[order]))

    whole = list(made())
    for steps in places(len(whole), loader):
        begun, again = made(), made()
        first = list(islice(begun, steps))
        again.load_state_dict(json.loads(json.dumps(begun.state_dict())))
        assert first + list(again) == whole


@pytest.mark.parametrize(
    ("first", "then", "order"),
    [
        (first, then, order)
        for first, then in zip(STATEFUL, STATEFUL[1:] + STATEFUL[:1], strict=True)
        for order in WITHOUT_SHARDS
        if is_tested(first, order) and is_tested(then, order)
    ],
)
def test_resumed_after_any_part_by_another_number_of_readers_yields_each_part_once(
    environment: Environment, first: str, then: str, order: str
) -> None:
    def made(name: str) -> Any:
        return LOADERS[name](dataset_of(environment, **ORDERS[order]))

    whole = len(list(made(first)))
    for steps in places(whole, first, then):
        begun, again, last = map(made, (first, then, "dataset"))
        before = flat(islice(begun, steps))
        again.load_state_dict(json.loads(json.dumps(begun.state_dict())))
        between = flat(islice(again, 2))
        state = again.state_dict()
        last.load_state_dict(state)
        rest = [] if is_finished(state) else list(last)  # else the next epoch follows
        assert sorted(before + between + rest) == EVERY


def test_state_between_two_parts_is_refused_without_the_generator(environment: Environment) -> None:
    begun = dataset_of(environment)
    assert flat(islice(begun, 2)) == ["0-1.0", "0-2.0"]
    state = begun.state_dict()
    for dataset in (dataset_of(environment, text_of), MixedDataset([dataset_of(environment, text_of)])):
        dataset.load_state_dict(state)
        with pytest.raises(ChannelError, match=r"transform made several; use that transform|does not match"):
            list(dataset)
    mixed = MixedDataset([dataset_of(environment)])
    assert flat(islice(mixed, 2)) == ["0-1.0", "0-2.0"]
    again = MixedDataset([dataset_of(environment, text_of)])
    again.load_state_dict(mixed.state_dict())
    with pytest.raises(ChannelError, match=r"transform made several; use that transform"):
        list(again)


def two_nones(sample: dict[str, Any]) -> Iterator[None]:
    yield from (None, None)


@pytest.mark.parametrize("order", ORDERS)
def test_parts_may_be_anything(environment: Environment, order: str) -> None:
    assert list(dataset_of(environment, two_nones, **ORDERS[order])) == [None] * 42


@pytest.mark.parametrize("transform", [text_of, parts_of])
def test_steps_of_shards_are_the_same_on_any_number_of_ranks(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, transform: Any
) -> None:
    """Also if a filter or the transform changes how many samples each shard has."""

    def step(ranks: int) -> list[str]:
        found = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            dataset = dataset_of(environment, transform, seed=3, block=5, shards=4).filter(is_even)
            found += flat(islice(ThreadLoader(dataset, 4 // ranks, num_workers=1, collate_fn=list), 1))
        return sorted(found)

    assert step(1) == step(2) == step(4)


def test_length_is_unknown_with_a_generator_or_a_filter(tmp_path: Path) -> None:
    environment = lines_channel(tmp_path, "lines", 3, 1)
    whole = dataset_of(environment, None, format="application/octet-stream")
    assert len(whole) == 3
    for dataset in (whole.filter(bool), dataset_of(environment, parts_of, format="application/octet-stream")):
        for loader in (dataset, ThreadLoader(dataset, 2), WorkerLoader(dataset, 2)):
            with pytest.raises(TypeError, match="a filter or the transform changes it"):
                len(loader)
            assert loader


def is_even(sample: dict[str, Any]) -> bool:
    return int(text_of(sample)[-1]) % 2 == 0


def is_of_object_1_to_4(sample: dict[str, Any]) -> bool:
    return text_of(sample)[0] in "1234"


FILTERED = sorted(f"{shard}-{line}" for shard in range(1, 5) for line in (0, 2))


@pytest.mark.parametrize("loader", LOADERS)
def test_filters_see_samples_before_the_transform(environment: Environment, loader: str) -> None:
    whole = dataset_of(environment, text_of)
    dataset = whole.filter(is_even).filter(is_of_object_1_to_4)
    batches = LOADERS[loader](dataset)
    assert [sorted(flat(batches)) for _ in range(2)] == [FILTERED, FILTERED]
    mixed = LOADERS[loader](MixedDataset([dataset, whole.filter(lambda sample: not is_of_object_1_to_4(sample))]))
    others = sorted(f"{shard}-{line}" for shard in (0, 5, 6) for line in range(3))
    assert sorted(flat(mixed)) == sorted(FILTERED + others)
    assert len(list(whole)) == 21, "it is as it was"
    assert sorted(dataset_of(environment).filter(is_even).filter(is_of_object_1_to_4)) == sorted(
        part for part in EVERY if part.split(".")[0] in FILTERED
    )


def test_ranks_do_not_compare_the_epochs_of_two_filtered_datasets(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: dict[str, str] = {}
    monkeypatch.setattr("sagemaker_channels.torch_data.stream_dataset.exchange", stored.setdefault)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    whole = dataset_of(environment, text_of, seed=3)
    for keeps, epoch in ((is_even, 5), (is_of_object_1_to_4, 0)):
        dataset = whole.filter(keeps)
        dataset.set_epoch(epoch)
        for _ in range(2):
            assert list(dataset)
    assert {"1", "6"} <= {*stored.values()}


@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("loader", [name for name in STATEFUL if name != "workers"])
def test_filtered_dataset_resumes_after_any_batch(environment: Environment, loader: str, order: str) -> None:
    def made(name: str) -> Any:
        dataset = dataset_of(environment, text_of, **ORDERS[order])
        return LOADERS[name](dataset.filter(is_even).filter(is_of_object_1_to_4))

    whole = list(made(loader))
    for steps in places(len(whole), loader):
        begun, again = made(loader), made(loader)
        other = dataset_of(environment, text_of, **ORDERS[order])
        first = list(islice(begun, steps))
        state = begun.state_dict()
        again.load_state_dict(state)
        assert first + list(again) == whole
        other.load_state_dict(state)
        assert sorted(flat(first) + list(other.filter(is_even).filter(is_of_object_1_to_4))) == FILTERED


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("transform", [text_of, parts_of])
def test_left_loop_whose_filter_keeps_nothing_more_ends_to_read(tmp_path: Path, transform: Any, is_mixed: bool) -> None:
    seen: list[str] = []

    def keeps(sample: dict[str, Any]) -> bool:
        seen.append(text_of(sample))
        return len(seen) < 10

    dataset = dataset_of(lines_channel(tmp_path, "lines", 1, 1_000_000), transform).filter(keeps)
    batches = iter(ThreadLoader(MixedDataset([dataset]) if is_mixed else dataset, 4, collate_fn=list))
    next(batches)
    batches.close()
    wait_for(lambda: not loader_threads())
    assert len(seen) < 1_000_000


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loader"]


def fails(sample: dict[str, Any]) -> Any:
    raise ValueError("cannot decode")


def fails_at_second_part(sample: dict[str, Any]) -> Iterator[str]:
    for part in parts_of(sample):
        if part.endswith(".1"):
            raise ValueError("cannot decode")
        yield part


def test_error_of_a_filter_or_generator_names_the_sample_or_is_skipped(environment: Environment) -> None:
    for loader in ("dataset", "threads", "no workers"):
        for dataset in (dataset_of(environment, text_of).filter(fails), dataset_of(environment, fails_at_second_part)):
            with pytest.raises(ValueError, match="cannot decode") as raised:
                list(LOADERS[loader](dataset))
            shown = "".join(traceback.format_exception(raised.value))  # Python 3.10 has no notes.
            assert "of a sample of channel 'lines' with the key" in shown
    skipping = dataset_of(environment, fails_at_second_part, skip_damaged=30)
    assert sorted(skipping) == [part for part in EVERY if part.endswith(".0")]
    assert list(dataset_of(environment, text_of, skip_damaged=30).filter(fails)) == []


def test_ranks_of_a_group_read_the_same(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks, of which two hold parts of one model each."""

    def read(rank: int, state: Any = None, stop: int | None = None) -> Any:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        loader = ThreadLoader(dataset_of(environment, text_of, ranks=(rank // 2, 2)), 2, collate_fn=list)
        if state:
            loader.load_state_dict(state)
        return flat(islice(loader, stop)), loader.state_dict()

    whole = [read(rank)[0] for rank in range(4)]
    assert whole[0] == whole[1] != whole[2] == whole[3]
    assert len({*whole[0]} & {*whole[2]}) == 0
    assert len(whole[0] + whole[2]) == 21
    parts = [read(rank, stop=2) for rank in range(4)]
    for rank, (first, state) in enumerate(parts):
        assert first + read(rank, state)[0] == whole[rank]
    merged = merge_states([state for _, state in parts])
    rest = read(0, merged)[0] + read(2, merged)[0]
    assert sorted(parts[0][0] + parts[2][0] + rest) == sorted(whole[0] + whole[2])


@pytest.mark.parametrize("ranks", [(2, 2), (-1, 2), (0, 0), (0.5, 2), ("0", 2)])
def test_ranks_that_are_no_index_and_count_are_refused(environment: Environment, ranks: Any) -> None:
    with pytest.raises(ValueError, match=r"^ranks is "):
        dataset_of(environment, ranks=ranks)
