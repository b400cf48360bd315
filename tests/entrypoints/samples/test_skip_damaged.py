"""`Reading(skip_damaged=...)`: what is read after damage, in every format and input mode; what is recorded; when it is too much."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from damaged_objects import ALL, CASES, EACH, content_of, delivered, kept, piped, skipped
from delivered_channels import recordio_of
from sagemaker_channels import ChannelDataset
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.states import merge_states
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import SHORT_NAMES
from sagemaker_channels.sample import Sample


@pytest.mark.parametrize("name", CASES)
def test_damage_is_skipped_recorded_and_leaves_every_state_right(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    environment = delivered(tmp_path, content_of(case))

    def opened() -> Any:
        return open_channel("train", 0, format=case.form, environment=environment, skip_damaged=1)

    samples, states = opened(), []
    found = []
    for sample in samples:
        found.append(case.number(sample))
        states.append(samples.state_dict())
    assert found == kept(case)
    [record] = skipped(environment)
    assert (record["channel"], record["object"]) == ("train", "1")
    assert record["count"] == record["budget"] == 1
    assert f"object '1', byte {record['byte']}" in record["reason"]
    assert record["reason"].endswith("; the rest of the object is skipped") == (39 in case.lost)
    assert "skipped channel=train epoch=0 rank=0 count=1 budget=1 object=1 byte=" in capsys.readouterr().err
    for number, state in enumerate(states):
        resumed = opened()
        resumed.load_state_dict(state)
        assert [case.number(sample) for sample in resumed] == found[number + 1 :]


@pytest.mark.parametrize("name", CASES)
def test_damage_without_a_budget_is_an_error_and_no_record(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    environment = delivered(tmp_path, content_of(case))
    with pytest.raises(CorruptError, match=r"^channel 'train': object '1', "):
        list(open_channel("train", 0, format=case.form, environment=environment))
    assert not environment.output_data_dir.exists()


@pytest.mark.parametrize("name", ["jsonl", "recordio", "tfrecord", "csv-width", "tar-second-member"])
def test_cut_gzip_loses_the_rest_of_its_object_only(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    objects = [gzip.compress(data, mtime=0) for data in content_of(case._replace(damage=bytes))]
    objects[1] = objects[1][: len(objects[1]) // 2]
    environment = delivered(tmp_path, objects)
    reading: dict[str, Any] = {"skip_damaged": 1}
    found = [
        case.number(each) for each in open_channel("train", 0, format=case.form, environment=environment, **reading)
    ]
    before = [number for number in found if number < 2 * EACH]
    assert before == ALL[: len(before)]
    assert EACH <= len(before) < 2 * EACH
    assert found[len(before) :] == ALL[2 * EACH :]
    assert "gzip" in skipped(environment)[0]["reason"]


def test_one_damage_too_many_names_the_first_ones(tmp_path: Path) -> None:
    lines = [b"good%d" % number if number % 2 else b'{"n": %d}' % number for number in range(10)]
    environment = delivered(tmp_path, [b"\n".join(lines)])
    samples = open_channel("train", 0, format="jsonl", environment=environment, skip_damaged=4)
    message = (
        r"^channel 'train': 5 damaged samples in epoch 0, but skip_damaged is 4: object '0', byte 9: .*; object '0', byte 24:"
        r" .*; object '0', byte 39: .*; \.\.\.; the job's output skipped-\*\.jsonl lists all of them"
    )
    with pytest.raises(ChannelError, match=message):
        list(samples)
    assert [record["count"] for record in skipped(environment)] == [1, 2, 3, 4, 5]
    # The budget is of one epoch.
    assert len(list(open_channel("train", 1, format="jsonl", environment=environment, skip_damaged=5))) == 5


def test_rest_of_an_object_is_said_to_be_skipped_only_if_it_is(tmp_path: Path) -> None:
    case = CASES["tar-cut"]
    objects = content_of(case)
    environment = delivered(tmp_path, [objects[1], objects[1]])
    with pytest.raises(ChannelError, match=r"2 damaged samples"):
        list(open_channel("train", 0, format=case.form, environment=environment, skip_damaged=1))
    ends = [record["reason"].endswith("; the rest of the object is skipped") for record in skipped(environment)]
    assert ends == [True, False]


def test_shuffled_states_stay_right_after_damage(tmp_path: Path) -> None:
    case = CASES["tfrecord"]
    environment = delivered(tmp_path, content_of(case))

    def opened() -> Any:
        reading: dict[str, Any] = {"seed": 3, "block": 7, "skip_damaged": 1}
        return open_channel("train", 0, format=case.form, environment=environment, **reading)

    samples = opened()
    found = [(case.number(sample), samples.state_dict()) for sample in samples]
    assert sorted(number for number, _ in found) == kept(case)
    for place, (_, state) in enumerate(found):
        resumed = opened()
        resumed.load_state_dict(state)
        assert [case.number(sample) for sample in resumed] == [number for number, _ in found[place + 1 :]]


in_pipes = pytest.mark.parametrize(
    "name",
    [
        "jsonl",
        "csv-width",
        "csv-utf-8",
        "image-recordio",
        "tfrecord",
        "tfrecord-example",
    ],
)


@in_pipes
def test_pipe_continues_after_the_damaged_record(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    environment = piped(tmp_path, content_of(case))
    samples = open_channel("train", 0, format=case.form, environment=environment, skip_damaged=1)
    assert [case.number(sample) for sample in samples] == kept(case)
    assert len(skipped(environment)) == 1


class Numbered:
    """A transform to a number, which pickles by the case's name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, sample: Sample) -> int:
        return CASES[self._name].number(sample)


@in_pipes
def test_pipe_of_two_workers_continues_after_the_damaged_record(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    environment = piped(tmp_path, content_of(case))
    reading: dict[str, Any] = {"skip_damaged": 1}
    dataset = ChannelDataset("train", format=case.form, transform=Numbered(name), **reading, environment=environment)
    found = [int(number) for number in DataLoader(dataset, batch_size=None, num_workers=2)]
    assert sorted(found) == kept(case)
    assert len(skipped(environment)) == 2, "each reads the whole stream"


@pytest.mark.parametrize("name", ["csv-quote", "tar-second-member", "recordio", "tfrecord-length"])
def test_pipe_without_a_record_to_find_is_an_error(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    environment = piped(tmp_path, content_of(case))
    with pytest.raises(CorruptError, match="channel 'train': byte"):
        list(open_channel("train", 0, format=case.form, environment=environment, skip_damaged=9))


def test_wrapped_pipe_continues_with_the_next_object(tmp_path: Path) -> None:
    case = CASES["zip-table"]
    environment = piped(tmp_path, [recordio_of(content_of(case))], "RecordIO")
    samples = open_channel("train", 0, format=case.form, environment=environment, skip_damaged=1)
    assert [case.number(sample) for sample in samples] == kept(case)
    [record] = skipped(environment)
    assert record["byte"] == 8 + len(case.write(range(EACH))) + -len(case.write(range(EACH))) % 4


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_card_says_what_follows_damage_if_its_format_continues(name: str) -> None:
    continues = {case.form for case in CASES.values() if len(case.lost) <= 2} | {"recordio-protobuf"}
    assert (SHORT_NAMES[name].after_damage is not None) == (name in continues)


@pytest.mark.parametrize("shards", [None, 4])
@pytest.mark.parametrize("seed", [None, 3])
def test_damage_is_skipped_by_any_readers_that_continue_each_other(
    seed: int | None, shards: int | None, tmp_path: Path
) -> None:
    """A resumed reader of the damaged object skips it again, and each other sample is read once."""
    case = CASES["tfrecord"]
    environment = delivered(tmp_path, content_of(case))
    reading: dict[str, Any] = {"seed": seed, "block": 5, "skip_damaged": 1, "shards": shards}
    found, merged = [], None
    for count, most in ((2, 7), (4, 3), (1, 9), (2, None)):
        states = []
        for index in range(count):
            shard = Shard(index, count)
            with open_channel("train", 0, format=case.form, environment=environment, shard=shard, **reading) as samples:
                if merged is not None:
                    samples.load_state_dict(merged)
                found += [case.number(sample) for sample in islice(samples, most)]
                states.append(samples.state_dict())
        merged = merge_states(states)
    assert sorted(found) == kept(case)
