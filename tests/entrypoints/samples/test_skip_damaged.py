"""`Reading(skip_damaged=...)`: what is read after damage, in every format and input mode; what is recorded; when it is too much."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch.utils.data import DataLoader

from delivered_channels import config
from entrypoints import ChannelDataset, MixedDataset, Reading, ThreadLoader, contract
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.job.environment import Environment, load_environment
from entrypoints.records import SHORT_NAMES, format_of
from entrypoints.records.recordio import image_recordio, recordio
from entrypoints.sample import Sample
from entrypoints.samples.channel import open_channel

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")

OBJECTS, EACH = 3, 20
ALL = list(range(OBJECTS * EACH))


class Case(NamedTuple):
    """A format, how its objects are made of numbers, how the second one is damaged, and which of its samples are lost."""

    form: str
    write: Callable[[Sequence[int]], bytes]
    damage: Callable[[bytes], bytes]
    lost: Sequence[int]
    number: Callable[[Sample], int]


def written(form: str, sample: Callable[[int], Sample]) -> Callable[[Sequence[int]], bytes]:
    def write(numbers: Sequence[int]) -> bytes:
        stream = io.BytesIO()
        writer = format_of(form).write
        assert writer is not None
        writer(stream, map(sample, numbers))
        return stream.getvalue()

    return write


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        assert data.count(old) == 1
        return data.replace(old, new)

    return damage


def flipped(find: bytes, before: int = 0) -> Callable[[bytes], bytes]:
    """Flip the bits of the byte that is `before` bytes before the text."""

    def damage(data: bytes) -> bytes:
        place = data.index(find) - before
        return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]

    return damage


def payload(number: int) -> bytes:
    return b"<%04d>" % number * 10


def cut_gzip(data: bytes) -> bytes:
    return data[: len(data) // 2]


def in_the_middle(data: bytes) -> bytes:
    place = len(data) // 3
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def first_number(sample: Sample) -> int:
    return int(sample["data"][1:5])


def images(numbers: Sequence[int]) -> bytes:
    """Image records, of which number 25 is too short for its header."""
    stream = io.BytesIO()
    recordio.write(stream, [b"short" if each == 25 else image_recordio.encode(payload(each)) for each in numbers])
    return stream.getvalue()


def examples(numbers: Sequence[int]) -> bytes:
    """Examples, of which number 25 is a record that is none."""
    good = written("tfrecord-example", lambda number: {"x": payload(number)})
    bad = written("tfrecord", lambda _: {"data": b"\xff" * 20})
    return b"".join((bad if each == 25 else good)([each]) for each in numbers)


RECORDS = written("recordio", lambda number: {"data": payload(number)})
TFRECORDS = written("tfrecord", lambda number: {"data": payload(number)})
JSON = written("jsonl", lambda number: {"n": number, "text": "x" * 100})
ROWS = written("csv", lambda number: {"data": [number, f"r{number}"]})
TARS = written("tar", lambda number: {"__key__": f"{number:04d}", "a": b"a" * 600, "b": b"%d" % number})
ZIPS = written("zip", lambda number: {"__key__": f"{number:04d}", "a": payload(number), "b": b"%d" % number})
PARQUETS = written("parquet", lambda number: {"n": number, "data": payload(number)})
REST = range(25, 40)

CASES = {
    "jsonl": Case("jsonl", JSON, replaced(b'{"n": 25,', b'{"n": 25;'), [25], lambda sample: sample["n"]),
    "csv-width": Case("csv", ROWS, replaced(b"25,r25", b"25;r25"), [25], lambda sample: int(sample["data"][0])),
    "csv-utf-8": Case("csv", ROWS, replaced(b"25,r25", b"25,\xff25"), [25], lambda sample: int(sample["data"][0])),
    "csv-quote": Case("csv", ROWS, replaced(b"25,r25", b'"5,r25'), REST, lambda sample: int(sample["data"][0])),
    "recordio": Case("recordio", RECORDS, flipped(payload(25), 8), [25], first_number),
    "recordio-length": Case("recordio", RECORDS, flipped(payload(25), 2), REST, first_number),
    "image-recordio": Case("image-recordio", images, bytes, [25], first_number),
    "tfrecord": Case("tfrecord", TFRECORDS, flipped(payload(25)), [25], first_number),
    "tfrecord-length": Case("tfrecord", TFRECORDS, flipped(payload(25), 12), [25], first_number),
    "tfrecord-cut": Case("tfrecord", TFRECORDS, lambda data: data[:-3], [39], first_number),
    "tfrecord-example": Case("tfrecord-example", examples, bytes, [25], lambda sample: int(sample["x"][1:5])),
    # The sample before the damage and that of the next member may lack a member.
    "tar-first-member": Case("tar", TARS, flipped(b"0025.a"), [24, 25], lambda sample: int(sample["b"])),
    "tar-second-member": Case("tar", TARS, flipped(b"0025.b"), [25, 26], lambda sample: int(sample["b"])),
    "tar-cut": Case("tar", TARS, lambda data: data[: data.index(b"0039.b")], [39], lambda sample: int(sample["b"])),
    "zip": Case("zip", ZIPS, flipped(payload(25)), [25], lambda sample: int(sample["b"])),
    "zip-table": Case("zip", ZIPS, lambda data: data[:-30], range(20, 40), lambda sample: int(sample["b"])),
    "parquet": Case("parquet", PARQUETS, in_the_middle, range(20, 40), lambda sample: sample["n"]),
}


def content_of(case: Case) -> list[bytes]:
    objects = [case.write(range(EACH * each, EACH * (each + 1))) for each in range(OBJECTS)]
    objects[1] = case.damage(objects[1])
    return objects


def kept(case: Case) -> list[int]:
    return [number for number in ALL if number not in case.lost]


def job(root: Path, mode: str = "File", wrapper: str = "None") -> Environment:
    config(root, 0, 1, {"train": {"TrainingInputMode": mode, "RecordWrapperType": wrapper}})
    return load_environment(root, {})


def delivered(root: Path, objects: Sequence[bytes]) -> Environment:
    environment = job(root)
    folder = root / contract.DATA_DIR / "train"
    folder.mkdir()
    for number, data in enumerate(objects):
        (folder / str(number)).write_bytes(data)
    return environment


def piped(root: Path, objects: Sequence[bytes], wrapper: str = "None") -> Environment:
    environment = job(root, "Pipe", wrapper)
    fifo = root / contract.DATA_DIR / "train_0"
    os.mkfifo(fifo)
    threading.Thread(target=fifo.write_bytes, args=[b"".join(objects)], daemon=True).start()
    return environment


def records(environment: Environment) -> list[dict[str, Any]]:
    lines = (environment.output_data_dir / "skipped-algo-1-0.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", CASES)
def test_damage_is_skipped_recorded_and_leaves_every_state_right(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    environment = delivered(tmp_path, content_of(case))

    def opened() -> Any:
        return open_channel("train", 0, case.form, environment=environment, reading=Reading(skip_damaged=1))

    samples, states = opened(), []
    found = []
    for sample in samples:
        found.append(case.number(sample))
        states.append(samples.state_dict())
    assert found == kept(case)
    [record] = records(environment)
    assert (record["channel"], record["object"]) == ("train", "1")
    assert record["count"] == record["budget"] == 1
    assert f"object '1', byte {record['byte']}" in record["reason"]
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
        list(open_channel("train", 0, case.form, environment=environment))
    assert not environment.output_data_dir.exists()


@pytest.mark.parametrize("name", ["jsonl", "recordio", "tfrecord", "csv-width", "tar-second-member"])
def test_cut_gzip_loses_the_rest_of_its_object_only(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    objects = [gzip.compress(data, mtime=0) for data in content_of(case._replace(damage=bytes))]
    objects[1] = cut_gzip(objects[1])
    environment = delivered(tmp_path, objects)
    reading = Reading(skip_damaged=1)
    found = [
        case.number(each) for each in open_channel("train", 0, case.form, environment=environment, reading=reading)
    ]
    before = [number for number in found if number < 2 * EACH]
    assert before == ALL[: len(before)]
    assert EACH <= len(before) < 2 * EACH
    assert found[len(before) :] == ALL[2 * EACH :]
    assert "gzip" in records(environment)[0]["reason"]


def test_one_damage_too_many_names_the_first_ones(tmp_path: Path) -> None:
    lines = [b"good%d" % number if number % 2 else b'{"n": %d}' % number for number in range(10)]
    environment = delivered(tmp_path, [b"\n".join(lines)])
    samples = open_channel("train", 0, "jsonl", environment=environment, reading=Reading(skip_damaged=4))
    message = (
        r"^channel 'train': 5 damaged samples in epoch 0, but skip_damaged is 4: object '0', byte 9: .*; object '0', byte 24:"
        r" .*; object '0', byte 39: .*; \.\.\.; the job's output skipped-\*\.jsonl lists all of them"
    )
    with pytest.raises(ChannelError, match=message):
        list(samples)
    assert [record["count"] for record in records(environment)] == [1, 2, 3, 4, 5]
    # The budget is of one epoch.
    assert len(list(open_channel("train", 1, "jsonl", environment=environment, reading=Reading(skip_damaged=5)))) == 5


def test_shuffled_states_stay_right_after_damage(tmp_path: Path) -> None:
    case = CASES["tfrecord"]
    environment = delivered(tmp_path, content_of(case))

    def opened() -> Any:
        reading = Reading(seed=3, block=7, skip_damaged=1)
        return open_channel("train", 0, case.form, environment=environment, reading=reading)

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
        "recordio",
        "image-recordio",
        "tfrecord",
        "tfrecord-example",
        "tar-second-member",
    ],
)


@in_pipes
def test_pipe_continues_after_the_damaged_record(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    environment = piped(tmp_path, content_of(case))
    samples = open_channel("train", 0, case.form, environment=environment, reading=Reading(skip_damaged=1))
    assert [case.number(sample) for sample in samples] == kept(case)
    assert len(records(environment)) == 1


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
    reading = Reading(skip_damaged=1)
    dataset = ChannelDataset("train", case.form, Numbered(name), reading=reading, environment=environment)
    found = [int(number) for number in DataLoader(dataset, batch_size=None, num_workers=2)]
    assert sorted(found) == kept(case)
    assert len(records(environment)) == 1


def test_pipe_without_a_record_to_find_is_an_error(tmp_path: Path) -> None:
    case = CASES["csv-quote"]
    environment = piped(tmp_path, content_of(case))
    with pytest.raises(CorruptError, match="channel 'train': byte"):
        list(open_channel("train", 0, case.form, environment=environment, reading=Reading(skip_damaged=9)))


def test_wrapped_pipe_continues_with_the_next_object(tmp_path: Path) -> None:
    case = CASES["zip-table"]
    stream = io.BytesIO()
    recordio.write(stream, content_of(case))
    environment = piped(tmp_path, [stream.getvalue()], "RecordIO")
    samples = open_channel("train", 0, case.form, environment=environment, reading=Reading(skip_damaged=1))
    assert [case.number(sample) for sample in samples] == kept(case)
    [record] = records(environment)
    assert record["byte"] == 8 + len(case.write(range(EACH))) + -len(case.write(range(EACH))) % 4


class Picky:
    """A transform that fails on every tenth number with an error of this class."""

    def __init__(self, error: type[Exception], *arguments: Any) -> None:
        self._error, self._arguments = error, arguments

    def __call__(self, sample: Sample) -> int:
        number = int(sample["data"])
        if number % 10 == 3:
            raise self._error(*self._arguments)
        return number


def lines(root: Path) -> Environment:
    return delivered(
        root, [b"".join(b"%d\n" % number for number in range(20 * each, 20 * each + 20)) for each in range(3)]
    )


GOOD = [number for number in ALL if number % 10 != 3]
DECODING = [
    (ValueError, "x"),
    (OSError, "image file is truncated"),
    (SyntaxError, "broken PNG file"),
    (ZeroDivisionError,),
]


@pytest.mark.parametrize(
    "raised", [*DECODING, (CorruptError, "mine"), (struct.error, "x"), (KeyError, "png")], ids=repr
)
def test_undecodable_samples_of_a_transform_are_skipped(raised: Any, tmp_path: Path) -> None:
    environment = lines(tmp_path)
    reading = Reading(skip_damaged=6)
    dataset = ChannelDataset("train", "lines", Picky(*raised), reading=reading, environment=environment)
    assert list(dataset) == GOOD
    assert [(record["object"], record["count"]) for record in records(environment)] == [
        (str(number // 2), number + 1) for number in range(6)
    ]
    assert "ends at position 8 of object 0" in records(environment)[0]["reason"]


@pytest.mark.parametrize(
    "raised",
    [
        (NameError, "x"),
        (TypeError, "x"),
        (ImportError, "x"),
        (ChannelError, "x"),
        (OSError, 28, "full"),
        (MemoryError,),
    ],
    ids=repr,
)
def test_errors_of_the_program_or_the_machine_are_not_skipped(raised: Any, tmp_path: Path) -> None:
    dataset = ChannelDataset(
        "train", "lines", Picky(*raised), reading=Reading(skip_damaged=6), environment=lines(tmp_path)
    )
    with pytest.raises(raised[0]):
        list(dataset)


def test_workers_and_threads_have_a_budget_each(tmp_path: Path) -> None:
    environment = lines(tmp_path)
    reading = Reading(skip_damaged=4)  # Six samples are damaged, two in each of three objects.
    dataset = ChannelDataset("train", "lines", Picky(ValueError), reading=reading, environment=environment)
    assert sorted(map(int, DataLoader(dataset, batch_size=None, num_workers=2))) == GOOD
    assert len(records(environment)) == 6
    loader = ThreadLoader(dataset, 4, threads=2, collate=list)
    assert sorted(number for batch in loader for number in batch) == GOOD


def test_resumed_dataset_skips_the_same_samples(tmp_path: Path) -> None:
    environment = lines(tmp_path)

    def made() -> ChannelDataset:
        reading = Reading(skip_damaged=6)
        return ChannelDataset("train", "lines", Picky(ValueError), reading=reading, environment=environment)

    for stop in (1, 3, 4, 30, len(GOOD)):
        dataset = made()
        taken = [number for _, number in zip(range(stop), dataset, strict=False)]
        resumed = made()
        resumed.load_state_dict(dataset.state_dict())
        assert taken + list(resumed) == GOOD


def test_mixture_draws_another_sample_in_place_of_a_damaged_one(tmp_path: Path) -> None:
    environment = lines(tmp_path)
    part = ChannelDataset("train", "lines", Picky(ValueError), reading=Reading(skip_damaged=6), environment=environment)
    assert list(MixedDataset({part: 1.0})) == GOOD


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_card_says_what_follows_damage_if_its_format_continues(name: str) -> None:
    continues = {case.form for case in CASES.values() if len(case.lost) <= 2} | {"recordio-protobuf"}
    assert (SHORT_NAMES[name].after_damage is not None) == (name in continues)
