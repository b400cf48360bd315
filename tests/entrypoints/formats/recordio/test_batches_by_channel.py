"""Batches of RecordIO-protobuf by every way in which a channel is read."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from faulty_s3 import environment_of
from format_channels import file_of, job, piped
from pipe_feeder import Feeder
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import format_of, recordio, recordio_protobuf
from sagemaker_channels.formats.recordio_protobuf import as_tensors
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset

BATCHES = "application/x-recordio-protobuf; batch=100"


ROWS = np.arange(3 * 250 * 4, dtype="f4").reshape(-1, 4)  # of three objects


@pytest.fixture
def objects() -> list[bytes]:
    def file(rows: Any) -> bytes:
        samples = ({"features": {"values": row}, "label": {"values": row[:1]}} for row in rows)
        return file_of(recordio_protobuf.FORMAT, samples)

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
        (environment.data_dir / f"train/{number}.pbr").write_bytes(data)
    return environment


def test_batches_of_files_resume_after_each(tmp_path: Path, objects: list[bytes]) -> None:
    environment = files(tmp_path, objects)
    assert numbers(open_channel("train", environment=environment)) == OBJECT_BY_OBJECT
    for seed in (None, 7):
        samples = open_channel("train", environment=environment, seed=seed, block=4)
        states, whole = [samples.state_dict()], []
        for found in samples:
            whole += numbers([found])
            states.append(samples.state_dict())
        assert sorted(whole) == OBJECT_BY_OBJECT
        for number, state in enumerate(states):
            again = open_channel("train", environment=environment, seed=seed, block=4)
            again.load_state_dict(json.loads(json.dumps(state)))
            assert numbers(again) == whole[number:]


def test_block_of_batches_ends_at_its_limit_of_bytes(tmp_path: Path, objects: list[bytes]) -> None:
    environment = files(tmp_path, objects)
    # 100 rows of 20 bytes each: with 3 kB a block has two batches, and these are neighbours.
    found = numbers(open_channel("train", environment=environment, seed=0, block=1000, block_bytes=3000))
    starts = [rows[0] // 250 for rows in found]
    assert starts[:3] == [starts[0]] * 3
    assert sorted(found) == OBJECT_BY_OBJECT


def test_batches_of_the_connector_have_each_record_once(s3: Path, tmp_path: Path, objects: list[bytes]) -> None:
    (s3 / "train").mkdir()
    for number, data in enumerate(objects):
        (s3 / f"train/{number}.pbr").write_bytes(data)
    environment = environment_of(tmp_path / "root", "s3://bucket/train/")
    form = "recordio-protobuf; batch=100"
    for workers in (0, 2):
        dataset = ChannelDataset("train", format=form, transform=as_tensors, environment=environment)
        loader = DataLoader(dataset, batch_size=None, num_workers=workers)
        assert sorted(numbers(loader)) == OBJECT_BY_OBJECT


def test_batches_of_a_pipe_span_its_objects_unless_wrapped(tmp_path: Path, objects: list[bytes]) -> None:
    environment = job(tmp_path, BATCHES, "Pipe")
    assert numbers(piped(environment, None, b"".join(objects))) == spans(*[100] * 7, 50)
    wrapped = job(tmp_path / "wrapped", BATCHES, "Pipe", "RecordIO")
    stream = io.BytesIO()
    recordio.write(stream, objects)
    assert numbers(piped(wrapped, None, stream.getvalue())) == OBJECT_BY_OBJECT


def test_several_readers_of_a_pipe_read_each_record_once(tmp_path: Path, objects: list[bytes]) -> None:
    environment = job(tmp_path, BATCHES, "Pipe")
    feeder = Feeder(tmp_path, "train", lambda _: b"".join(objects))
    try:
        dataset = ChannelDataset("train", transform=as_tensors, environment=environment)
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        assert sorted(numbers(loader)) == spans(*[100] * 7, 50)
    finally:
        feeder.stop()


@pytest.mark.parametrize("size", ["0", "-1", "many", "1e3", ""])
def test_batch_that_is_not_a_number_is_refused(size: str) -> None:
    with pytest.raises(ChannelError, match=r"recordio-protobuf: batch is .* write how many records"):
        format_of(f'recordio-protobuf; batch="{size}"')
