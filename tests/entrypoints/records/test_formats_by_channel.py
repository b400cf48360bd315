"""zip, Parquet, JSON lines, CSV rows and batches of RecordIO-protobuf by every way of arriving that can bring them, and one clear
error where none can.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from entrypoints import contract
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.job.environment import Environment, load_environment
from entrypoints.order.sampling import Reading
from entrypoints.records import format_of
from entrypoints.records.recordio import recordio, recordio_protobuf
from entrypoints.records.recordio.protobuf_record import Blob
from entrypoints.records.recordio.recordio_protobuf_batches import as_tensors
from entrypoints.records.shards import write_shards
from entrypoints.sample import Sample
from entrypoints.samples.channel import open_channel
from entrypoints.torch_data.dataset import ChannelDataset
from launcher.local.s3_server import serve
from pipe_feeder import Feeder, brokers

KINDS = {
    "zip": ("application/zip", None),
    "parquet": ("application/x-parquet", None),
    "jsonl": ("application/jsonlines", "jsonl"),
    "csv": ("text/csv", "csv; header=present"),
}
every_kind = pytest.mark.parametrize("kind", list(KINDS))
BATCHES = "application/x-recordio-protobuf; batch=100"


def samples_of(kind: str) -> list[Sample]:
    texts = [f"{number:03d} " * 1000 for number in range(50)]
    if kind == "zip":
        return [{"__key__": text[:3], "txt": text.encode(), "n": text[:3].encode()} for text in texts]
    return [{"__key__": text[:3], "text": text} for text in texts]


def job(root: Path, kind: str, mode: str, wrapper: str = "None") -> Environment:
    directory = root / contract.CONFIG_DIR
    directory.mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir(parents=True)
    entry = {"TrainingInputMode": mode, "RecordWrapperType": wrapper, "ContentType": KINDS.get(kind, [kind])[0]}
    (directory / "inputdataconfig.json").write_text(json.dumps({"train": entry}))
    return load_environment(root, {})


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "s3" / "bucket").mkdir(parents=True)
    with serve(tmp_path / "s3", tmp_path / "overlay") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        yield tmp_path / "s3" / "bucket"


@every_kind
def test_files(kind: str, tmp_path: Path) -> None:
    environment = job(tmp_path, kind, "File")
    shards = write_shards(samples_of(kind), tmp_path / contract.DATA_DIR / "train", kind, 30_000)
    assert len(shards) > 3
    assert list(open_channel("train", format=KINDS[kind][1], environment=environment)) == samples_of(kind)
    # A CSV that is cut between quotes looks whole.
    shards[2].write_bytes(shards[2].read_bytes()[:-9] + (b'\n"' if kind == "csv" else b""))
    with pytest.raises(CorruptError, match=r"channel 'train': object '00002\.\w+', byte \d+"):
        list(open_channel("train", format=KINDS[kind][1], environment=environment))


def test_a_column_that_is_not_there_is_told_with_channel_object_and_columns(tmp_path: Path) -> None:
    environment = job(tmp_path, "parquet", "File")
    write_shards(samples_of("parquet"), tmp_path / contract.DATA_DIR / "train", "parquet")
    told = r"^channel 'train': object '00000.parquet', there is no column 'nope'; the file has __key__, text$"
    with pytest.raises(ChannelError, match=told):
        list(open_channel("train", format="parquet; columns=nope", environment=environment))


@pytest.mark.parametrize("kind", list(KINDS))
def test_states_call_a_format_as_one_writes_it(kind: str, tmp_path: Path) -> None:
    environment = job(tmp_path, kind, "File")
    write_shards(samples_of(kind), tmp_path / contract.DATA_DIR / "train", kind)
    samples = open_channel("train", format=KINDS[kind][1], environment=environment)
    state = samples.state_dict()
    assert state["of"]["format"] == (KINDS[kind][1] or kind)
    with pytest.raises(ChannelError, match=rf"{KINDS[kind][1] or kind}.*'objects'|'objects'.*{KINDS[kind][1] or kind}"):
        open_channel("train", format="objects", environment=environment).load_state_dict(state)


# Formats whose objects may be gzip-compressed, and what else they are called when they are read.
GZIPPED = {
    "tar": "tar",
    "recordio": "recordio",
    "tfrecord": "tfrecord",
    "jsonl": "jsonl",
    "csv": "csv; header=present",
    "lines": "lines",
    "application/jsonlines": "lines",
    "recordio-protobuf": "recordio-protobuf",
}
every_gzipped = pytest.mark.parametrize("form", list(GZIPPED))


def gzipped(form: str, root: Path) -> tuple[list[Sample], list[bytes]]:
    """Samples, and objects of them that are gzip-compressed, the first of them in two members."""
    texts = [f"{number:03d} " * 1000 for number in range(50)]
    samples: list[Sample]
    match GZIPPED[form]:
        case "tar":
            samples = [{"__key__": text[:3], "txt": text.encode()} for text in texts]
        case "jsonl" | "csv; header=present":
            samples = [{"__key__": text[:3], "text": text} for text in texts]
        case "recordio-protobuf":
            samples = [{"features": {"x": Blob([text.encode()], "")}, "label": {}} for text in texts]
        case _:
            samples = [{"data": text.encode()} for text in texts]
    short = GZIPPED[form].partition(";")[0]
    objects = [shard.read_bytes() for shard in write_shards(samples, root / "shards", short, 30_000)]
    assert len(objects) > 3
    return samples, [gzip.compress(data[:777]) + gzip.compress(data[777:]) for data in objects]


def without_key(samples: Any) -> list[Sample]:
    found = list(samples)
    return [{k: v for k, v in sample.items() if k != "__key__" or not str(v).endswith(".gz")} for sample in found]


@every_gzipped
def test_gzipped_files(form: str, tmp_path: Path) -> None:
    samples, objects = gzipped(form, tmp_path)
    environment = job(tmp_path, form, "File")
    folder = tmp_path / contract.DATA_DIR / "train"
    folder.mkdir()
    for number, data in enumerate(objects):
        (folder / f"{number}.gz").write_bytes(data)
    assert without_key(open_channel("train", format=GZIPPED[form], environment=environment)) == samples
    for reading in (None, Reading(seed=3, block=4)):
        opened = open_channel("train", format=GZIPPED[form], environment=environment, reading=reading)
        before = [next(opened) for _ in range(9)]
        again = open_channel("train", format=GZIPPED[form], environment=environment, reading=reading)
        again.load_state_dict(json.loads(json.dumps(opened.state_dict())))
        rest = list(opened)
        assert list(again) == rest
        assert len(before) + len(rest) == len(samples)
    (folder / "2.gz").write_bytes(objects[2][:-1])
    with pytest.raises(
        CorruptError, match=r"channel 'train': object '2\.gz', byte \d+: the gzip stream is damaged or cut"
    ):
        list(open_channel("train", format=GZIPPED[form], environment=environment))


@every_gzipped
def test_gzipped_objects_of_the_connector(form: str, s3: Path, tmp_path: Path) -> None:
    samples, objects = gzipped(form, tmp_path)
    (s3 / "train").mkdir()
    for number, data in enumerate(objects):
        (s3 / f"train/{number}.gz").write_bytes(data)
    entry = {"channel": "train", "s3_uri": "s3://bucket/train/", "style": "iterable"}
    environment = load_environment(tmp_path / "root", {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
    assert without_key(open_channel("train", format=GZIPPED[form], environment=environment)) == samples


@every_gzipped
@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
def test_gzipped_objects_that_a_pipe_joins_or_wraps(form: str, wrapper: str, tmp_path: Path) -> None:
    samples, objects = gzipped(form, tmp_path)
    environment = job(tmp_path / "root", form, "Pipe", wrapper)
    data = io.BytesIO(b"".join(objects))
    if wrapper == "RecordIO":
        recordio.write(data, objects)
    assert piped(environment, GZIPPED[form], data.getvalue()) == samples


@every_kind
def test_the_connector(kind: str, s3: Path, tmp_path: Path) -> None:
    write_shards(samples_of(kind), s3 / "train", kind, 30_000)
    entry = {"channel": "train", "s3_uri": "s3://bucket/train/", "style": "iterable", "content_type": KINDS[kind][0]}
    environment = load_environment(tmp_path / "root", {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
    assert list(open_channel("train", format=KINDS[kind][1], environment=environment)) == samples_of(kind)


@every_kind
def test_a_pipe(kind: str, tmp_path: Path) -> None:
    shards = write_shards(samples_of(kind), tmp_path / "shards", kind, 30_000)
    environment = job(tmp_path / "root", kind, "Pipe")
    form = KINDS[kind][1]
    if form is None:
        refused = (
            "boundaries in a Pipe; set record_wrapper_type" if kind == "objects" else f"{kind} is read from its end"
        )
        with pytest.raises(ChannelError, match=f"channel 'train': .*{refused}"):
            open_channel("train", format=form, environment=environment)
        return
    found = piped(environment, form, b"".join(shard.read_bytes() for shard in shards))
    assert found == samples_of(kind)


@every_kind
def test_a_pipe_that_wraps_each_object(kind: str, tmp_path: Path) -> None:
    shards = write_shards(samples_of(kind), tmp_path / "shards", kind, 30_000)
    stream = io.BytesIO()
    recordio.write(stream, [shard.read_bytes() for shard in shards])
    environment = job(tmp_path / "root", kind, "Pipe", "RecordIO")
    assert piped(environment, KINDS[kind][1], stream.getvalue()) == samples_of(kind)


def test_damage_inside_of_a_wrapped_object_is_told_by_the_place_of_both(tmp_path: Path) -> None:
    shards = write_shards(samples_of("zip"), tmp_path / "shards", "zip", 30_000)
    first, second = shards[0].read_bytes(), bytearray(shards[1].read_bytes())
    second[100] ^= 1
    stream = io.BytesIO()
    recordio.write(stream, [first, bytes(second)])
    environment = job(tmp_path / "root", "zip", "Pipe", "RecordIO")
    place = 8 + len(first) + -len(first) % 4
    with pytest.raises(
        CorruptError,
        match=rf"^channel 'train': object at byte {place} of the Pipe, byte 0: member .*: its CRC is wrong",
    ):
        piped(environment, None, stream.getvalue())


def piped(environment: Environment, form: str | None, data: bytes) -> list[Sample]:
    fifo = environment.data_dir / "train_0"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=[data])
    feeder.start()
    found = list(open_channel("train", format=form, environment=environment))
    feeder.join()
    return found


ROWS = np.arange(3 * 250 * 4, dtype="f4").reshape(-1, 4)  # of three objects


@pytest.fixture
def objects() -> list[bytes]:
    def file(rows: Any) -> bytes:
        stream = io.BytesIO()
        samples = [{"features": {"values": row}, "label": {"values": row[:1]}} for row in rows]
        assert recordio_protobuf.FORMAT.write is not None
        recordio_protobuf.FORMAT.write(stream, samples)
        return stream.getvalue()

    return [file(rows) for rows in np.split(ROWS, 3)]


def numbers(batches: Any) -> list[list[int]]:
    """Which rows each batch has; the labels go with the rows."""
    found = []
    for batch in batches:
        values, labels = np.asarray(batch["features"]["values"]), np.asarray(batch["label"]["values"])
        assert values.shape == (len(labels), 4)
        assert (values == ROWS[(labels[:, 0] / 4).astype(int)]).all()
        found.append((labels[:, 0] / 4).astype(int).tolist())
    return found


def spans(*lengths: int) -> list[list[int]]:
    ends = np.cumsum(lengths)
    return [list(range(end - length, end)) for end, length in zip(ends, lengths, strict=True)]


OBJECT_BY_OBJECT = spans(*[100, 100, 50] * 3)


def files(root: Path, objects: list[bytes]) -> Environment:
    environment = job(root, BATCHES, "File")
    for number, data in enumerate(objects):
        (root / contract.DATA_DIR / "train").mkdir(exist_ok=True)
        (root / contract.DATA_DIR / f"train/{number}.pbr").write_bytes(data)
    return environment


def test_batches_of_files_go_on_behind_each(tmp_path: Path, objects: list[bytes]) -> None:
    environment = files(tmp_path, objects)
    assert numbers(open_channel("train", environment=environment)) == OBJECT_BY_OBJECT
    for reading in (None, Reading(seed=7, block=4)):
        samples = open_channel("train", environment=environment, reading=reading)
        states, whole = [samples.state_dict()], []
        for found in samples:
            whole += numbers([found])
            states.append(samples.state_dict())
        assert sorted(whole) == OBJECT_BY_OBJECT
        for number, state in enumerate(states):
            again = open_channel("train", environment=environment, reading=reading)
            again.load_state_dict(json.loads(json.dumps(state)))
            assert numbers(again) == whole[number:]


def test_blocks_of_batches_end_where_they_are_heavy(tmp_path: Path, objects: list[bytes]) -> None:
    environment = files(tmp_path, objects)
    # 100 rows of 20 bytes each: with 3 kB a block has two batches, and these are neighbours.
    found = numbers(
        open_channel("train", environment=environment, reading=Reading(seed=0, block=1000, block_bytes=3000))
    )
    starts = [rows[0] // 250 for rows in found]
    assert starts[:3] == [starts[0]] * 3
    assert sorted(found) == OBJECT_BY_OBJECT


def test_batches_of_the_connector(s3: Path, tmp_path: Path, objects: list[bytes]) -> None:
    (s3 / "train").mkdir()
    for number, data in enumerate(objects):
        (s3 / f"train/{number}.pbr").write_bytes(data)
    entry = {"channel": "train", "s3_uri": "s3://bucket/train/", "style": "iterable"}
    environment = load_environment(tmp_path / "root", {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
    form = "recordio-protobuf; batch=100"
    for workers in (0, 2):
        dataset = ChannelDataset("train", form, as_tensors, environment=environment)
        context = "spawn" if workers else None
        loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context)
        assert sorted(numbers(loader)) == OBJECT_BY_OBJECT


def test_batches_of_a_pipe(tmp_path: Path, objects: list[bytes]) -> None:
    environment = job(tmp_path, BATCHES, "Pipe")
    assert numbers(piped(environment, None, b"".join(objects))) == spans(*[100] * 7, 50)
    wrapped = job(tmp_path / "wrapped", BATCHES, "Pipe", "RecordIO")
    stream = io.BytesIO()
    recordio.write(stream, objects)
    assert numbers(piped(wrapped, None, stream.getvalue())) == OBJECT_BY_OBJECT


def test_several_readers_of_a_pipe_get_each_record_once(tmp_path: Path, objects: list[bytes]) -> None:
    environment = job(tmp_path, BATCHES, "Pipe")
    feeder = Feeder(tmp_path, "train", lambda _: b"".join(objects))
    try:
        dataset = ChannelDataset("train", transform=as_tensors, environment=environment)
        loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn")
        assert sorted(numbers(loader)) == spans(*[100] * 7, 50)
    finally:
        for pid in brokers(tmp_path):
            os.kill(pid, signal.SIGKILL)
        feeder.stop()


@pytest.mark.parametrize("size", ["0", "-1", "many", "1e3", ""])
def test_a_batch_is_a_number_of_records(size: str) -> None:
    with pytest.raises(ChannelError, match=r"recordio-protobuf: batch is .* write how many records"):
        format_of(f'recordio-protobuf; batch="{size}"')
