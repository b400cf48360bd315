"""Mixtures: who is drawn once a channel has ended, and which weights and states are refused."""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format_channels import LINES, configured
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.loader import ThreadLoader

SIZES = {"a": 30, "b": 8, "c": 15}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Three channels of some lines."""
    environment = configured(tmp_path, **dict.fromkeys(SIZES, LINES))
    for name, size in SIZES.items():
        text = "".join(f"{name}{number}\n" for number in range(size))
        (environment.data_dir / name / "0.txt").write_text(text)
    return environment


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["data"]).decode()


def mixed(environment: Environment, *weights: Any, **how: Any) -> MixedDataset:
    parts = [ChannelDataset(name, transform=text_of, environment=environment) for name in SIZES]
    return MixedDataset(parts[: len(weights)], weights=weights, **how)


def every(*names: str) -> list[str]:
    return sorted(f"{name}{number}" for name in names for number in range(SIZES[name]))


@pytest.mark.parametrize("weights", [(1e-300, 1), (1, 1e300), (1, 1e6, 1e-6)])
def test_light_channels_are_read_whole_after_the_heavy_ones(
    environment: Environment, weights: tuple[float, ...]
) -> None:
    texts = list(mixed(environment, *weights))
    assert sorted(texts) == every(*[*SIZES][: len(weights)])
    heaviest = weights.index(max(weights))
    assert {text[0] for text in texts[:8]} == {[*SIZES][heaviest]}


class Counted(random.Random):
    """Chances that count how often they are made."""

    made = 0

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        Counted.made += 1


def test_each_draw_yields_a_sample_of_a_remaining_channel(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.Random", Counted)
    Counted.made = 0
    assert len(list(mixed(environment, 1e-9, 1))) == 38
    assert Counted.made == 2, "the chances of the first draws, before and after the heavy channel has ended"


def test_order_follows_the_weights_of_the_remaining_channels(environment: Environment) -> None:
    """Drawn again by the rule: of the same chances, each among those that have not ended."""
    weights = {"a": 3.0, "b": 5.0, "c": 1.0}
    dataset = mixed(environment, *weights.values(), seed=4)
    dataset.set_epoch(2)
    chance = random.Random("mixture/4/2/0/1/0")
    left = {name: [f"{name}{number}" for number in range(size)] for name, size in SIZES.items()}
    expected = []
    while left:
        point = chance.random() * sum(weights[name] for name in left)
        for name in left:  # the last one where rounding leaves a rest
            point -= weights[name]
            if point < 0:
                break
        if left[name]:
            expected.append(left[name].pop(0))
        else:
            del left[name]
    assert list(dataset) == expected


def test_state_at_every_sample_resumes_exactly(environment: Environment) -> None:
    def made() -> MixedDataset:
        return mixed(environment, np.float32(1), 4, 2, seed=1)

    whole = list(made())
    assert sorted(whole) == every(*SIZES)
    for count in range(len(whole) + 1):
        dataset = made()
        samples = iter(dataset)
        before = [next(samples) for _ in range(count)]
        again = made()
        again.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        assert before + list(again) == whole, count


def is_even(sample: dict[str, Any]) -> bool:
    return int(sample["data"][1:]) % 2 == 0


def test_weights_are_those_of_what_filters_leave(environment: Environment) -> None:
    """Also on more readers, after a state at any sample."""

    def made(**how: Any) -> MixedDataset:
        a, b, c = (ChannelDataset(name, transform=text_of, environment=environment, **how) for name in SIZES)
        return MixedDataset(
            [a.filter(is_even), b, c.filter(is_even).filter(lambda sample: sample["data"] != b"c4")], seed=2
        )

    whole = list(made())
    left = [text for text in every(*SIZES) if text[0] == "b" or (int(text[1:]) % 2 == 0 and text != "c4")]
    assert sorted(whole) == left
    assert len({text[0] for text in whole[:6]}) == len(SIZES)
    for count in range(len(whole) + 1):
        dataset = made()
        samples = iter(dataset)
        before = [next(samples) for _ in range(count)]
        state = json.loads(json.dumps(dataset.state_dict()))
        again, loader = made(), ThreadLoader(made(), 4, readers=2, collate_fn=list)
        again.load_state_dict(state)
        assert before + list(again) == whole, count
        if count < len(whole):
            loader.load_state_dict(state)
            assert sorted([*before, *(text for batch in loader for text in batch)]) == left
    with pytest.raises(TypeError, match="a filter or the transform changes it"):
        len(dataset)


def test_filter_of_a_mixture_fails_with_the_place_of_its_sample(environment: Environment) -> None:
    broken = ChannelDataset("a", environment=environment).filter(lambda sample: sample["label"])
    with pytest.raises(KeyError) as raised:
        list(MixedDataset([broken]))
    text = "".join(traceback.format_exception(raised.value))  # Python 3.10 has no notes.
    assert (
        "of channel 'a' with the key '0.txt', which has the fields __key__, data; it ends at position 3 of object 0"
        in text
    )


@pytest.mark.parametrize(
    ("read", "place"),
    [
        (list, "it ends at position 18 of object 0"),
        (
            lambda dataset: list(ThreadLoader(dataset, 3, collate_fn=list)),
            "it is number 3 of those from sample 12 of the mixture on",
        ),
    ],
)
def test_transform_of_a_mixture_fails_with_the_place_of_its_sample(
    environment: Environment, read: Callable[[Any], object], place: str
) -> None:
    broken = ChannelDataset("b", transform=lambda sample: 1 // int(sample["data"] != b"b5"), environment=environment)
    with pytest.raises(ZeroDivisionError) as raised:
        read(MixedDataset([ChannelDataset("a", transform=text_of, environment=environment), broken], seed=5))
    text = "".join(traceback.format_exception(raised.value))
    assert f"of channel 'b' with the key '0.txt'; {place}" in text


@pytest.mark.parametrize("size", [4, 9])
def test_loader_resumes_exactly_after_a_channel_has_ended(environment: Environment, size: int) -> None:
    def made(seed: int) -> ThreadLoader:
        dataset = mixed(environment, 1, 4, 2, seed=seed)
        return ThreadLoader(dataset, size, num_workers=1, collate_fn=list)

    for seed in range(2):
        whole = list(made(seed))
        for count in range(len(whole) + 1):
            begun, again = made(seed), made(seed)
            before = list(islice(iter(begun), count))
            again.load_state_dict(json.loads(json.dumps(begun.state_dict())))
            assert before + list(again) == whole


@pytest.mark.parametrize(
    "weights", [(0, 1), (-1, 1), (float("nan"), 1), (float("inf"), 1), (1e308, 1e308), ("3", 1), (None, 1), ()]
)
def test_invalid_weights_are_refused_immediately(environment: Environment, weights: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="each needs one, a finite number above 0"):
        mixed(environment, *weights)


def test_number_of_weights_must_equal_that_of_datasets(environment: Environment) -> None:
    with pytest.raises(ValueError, match=r"1 datasets have the weights \[1.0, 2.0\]; each needs one"):
        MixedDataset([ChannelDataset("a", environment=environment)], weights=[1.0, 2.0])


def test_mixture_of_mixtures_is_refused_immediately(environment: Environment) -> None:
    with pytest.raises(TypeError, match="a mixture needs ChannelDatasets, got MixedDataset"):
        MixedDataset([mixed(environment, 1, 1)])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("weights", "how", "differs"),
    [
        ((1, 3), {}, r"it has weights \[3.0, 1.0\], but this reader has weights \[1.0, 3.0\]"),
        ((3, 1), {"seed": 1}, "it has seed 0, but this reader has seed 1"),
        ((3, 1, 1), {}, r"it has mixture .*, weights \[3.0, 1.0\], but this reader has .* weights \[3.0, 1.0, 1.0\]"),
    ],
)
def test_state_of_another_mixture_is_refused(
    environment: Environment, weights: tuple[float, ...], how: dict[str, Any], differs: str
) -> None:
    first = mixed(environment, 3, 1)
    samples = iter(first)
    next(samples)
    again = mixed(environment, *weights, **how)
    again.load_state_dict(first.state_dict())
    with pytest.raises(ChannelError, match=f"does not match this reading: {differs}"):
        next(iter(again))


def test_state_without_weights_is_refused(environment: Environment) -> None:
    first = mixed(environment, 3, 1)
    samples = iter(first)
    next(samples)
    state = {name: value for name, value in first.state_dict().items() if name != "of"}
    again = mixed(environment, 3, 1)
    with pytest.raises(ChannelError, match="restart the epoch"):
        again.load_state_dict({**state, "seed": "0"})


def test_state_that_was_loaded_into_a_part_is_refused(environment: Environment) -> None:
    part = ChannelDataset("a", environment=environment)
    next(loop := iter(part))
    part.load_state_dict(part.state_dict())
    loop.close()
    with pytest.raises(ChannelError, match="would not use the state loaded into one of its parts; load its own"):
        MixedDataset([part])
    part.set_epoch(3)
    assert len(list(MixedDataset([part]))) == SIZES["a"], "the state is not used"
    part.set_epoch(0)
    with pytest.raises(ChannelError, match="load its own"):
        MixedDataset([part])
    list(part)
    assert len(list(MixedDataset([part]))) == SIZES["a"]
