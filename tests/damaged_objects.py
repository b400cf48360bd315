"""Channels of every format whose second object is damaged, in files and in Pipes, and the records of what was skipped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from delivered_channels import feed, job, recordio_of
from sagemaker_channels import contract
from sagemaker_channels.formats import format_of, image_recordio
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import Sample

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


def flipped_at(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def flipped(find: bytes, before: int = 0) -> Callable[[bytes], bytes]:
    """Flip the bits of the byte that is `before` bytes before the text."""
    return lambda data: flipped_at(data, data.index(find) - before)


def payload(number: int) -> bytes:
    return b"<%04d>" % number * 10


def first_number(sample: Sample) -> int:
    return int(sample["data"][1:5])


def images(numbers: Sequence[int]) -> bytes:
    """Return image records; number 25 is too short for its header."""
    return recordio_of(b"short" if each == 25 else image_recordio.encode(payload(each)) for each in numbers)


def examples(numbers: Sequence[int]) -> bytes:
    """Return Examples; the record of number 25 is not one."""
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
    "recordio": Case("recordio", RECORDS, flipped(payload(25), 8), REST, first_number),
    "recordio-length": Case("recordio", RECORDS, flipped(payload(25), 2), REST, first_number),
    "image-recordio": Case("image-recordio", images, bytes, [25], first_number),
    "tfrecord": Case("tfrecord", TFRECORDS, flipped(payload(25)), [25], first_number),
    "tfrecord-length": Case("tfrecord", TFRECORDS, flipped(payload(25), 12), REST, first_number),
    "tfrecord-cut": Case("tfrecord", TFRECORDS, lambda data: data[:-3], [39], first_number),
    "tfrecord-example": Case("tfrecord-example", examples, bytes, [25], lambda sample: int(sample["x"][1:5])),
    # The sample before the damage may lack a member.
    "tar-first-member": Case("tar", TARS, flipped(b"0025.a"), range(24, 40), lambda sample: int(sample["b"])),
    "tar-second-member": Case("tar", TARS, flipped(b"0025.b"), REST, lambda sample: int(sample["b"])),
    "tar-cut": Case("tar", TARS, lambda data: data[: data.index(b"0025.b")], REST, lambda sample: int(sample["b"])),
    "tar-cut-member": Case(
        "tar", TARS, lambda data: data[: data.index(b"0025.a") + 700], REST, lambda sample: int(sample["b"])
    ),
    "zip": Case("zip", ZIPS, flipped(payload(25)), [25], lambda sample: int(sample["b"])),
    "zip-table": Case("zip", ZIPS, lambda data: data[:-30], range(20, 40), lambda sample: int(sample["b"])),
    "parquet": Case(
        "parquet", PARQUETS, lambda data: flipped_at(data, len(data) // 3), range(20, 40), lambda sample: sample["n"]
    ),
}


def content_of(case: Case) -> list[bytes]:
    objects = [case.write(range(EACH * each, EACH * (each + 1))) for each in range(OBJECTS)]
    objects[1] = case.damage(objects[1])
    return objects


def kept(case: Case) -> list[int]:
    return [number for number in ALL if number not in case.lost]


def delivered(root: Path, objects: Sequence[bytes]) -> Environment:
    environment = job(root, train={"TrainingInputMode": "File"})
    folder = root / contract.DATA_DIR / "train"
    folder.mkdir()
    for number, data in enumerate(objects):
        (folder / str(number)).write_bytes(data)
    return environment


def piped(root: Path, objects: Sequence[bytes], wrapper: str = "None") -> Environment:
    environment = job(root, train={"TrainingInputMode": "Pipe", "RecordWrapperType": wrapper})
    feed(root / contract.DATA_DIR / "train_0", objects)
    return environment


def skipped(environment: Environment) -> list[dict[str, Any]]:
    """Return the records of what was skipped."""
    lines = (environment.output_data_dir / "skipped-algo-1-0.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
