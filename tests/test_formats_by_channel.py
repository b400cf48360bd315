"""zip, Parquet, JSON lines and CSV rows by every way of arriving that can bring them, and one clear error where none can."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoints import contract
from entrypoints.channel import open_channel
from entrypoints.environment import Environment, load_environment
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.records import recordio
from entrypoints.records.shards import write_shards
from entrypoints.sample import Sample
from launcher.local.s3_server import serve

KINDS = {
    "zip": ("application/zip", None),
    "parquet": ("application/x-parquet", None),
    "jsonl": ("application/jsonlines", "jsonl"),
    "csv": ("text/csv", "csv; header=present"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def samples_of(kind: str) -> list[Sample]:
    texts = [f"{number:03d} " * 1000 for number in range(50)]
    if kind == "zip":
        return [{"__key__": text[:3], "txt": text.encode(), "n": text[:3].encode()} for text in texts]
    return [{"__key__": text[:3], "text": text} for text in texts]


@pytest.fixture(autouse=True)
def one_process_per_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def job(root: Path, kind: str, mode: str, wrapper: str = "None") -> Environment:
    directory = root / contract.CONFIG_DIR
    directory.mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir(parents=True)
    entry = {"TrainingInputMode": mode, "RecordWrapperType": wrapper, "ContentType": KINDS[kind][0]}
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
        with pytest.raises(ChannelError, match=r"channel 'train': .* boundaries in a Pipe; set record_wrapper_type"):
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


def piped(environment: Environment, form: str | None, data: bytes) -> list[Sample]:
    fifo = environment.data_dir / "train_0"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=[data])
    feeder.start()
    found = list(open_channel("train", format=form, environment=environment))
    feeder.join()
    return found
