"""zip, Parquet, JSON lines and CSV rows by every way in which a channel is read; one clear error for any other."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from faulty_s3 import environment_of
from format_channels import job, piped
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import recordio
from sagemaker_channels.formats.protobuf_record import Blob
from sagemaker_channels.formats.shards import write_shards
from sagemaker_channels.sample import Sample

KINDS = {
    "zip": ("application/zip", None),
    "parquet": ("application/x-parquet", None),
    "jsonl": ("application/jsonlines", "jsonl"),
    "csv": ("text/csv", "csv; header=present"),
}


every_kind = pytest.mark.parametrize("kind", list(KINDS))


def samples_of(kind: str) -> list[Sample]:
    texts = [f"{number:03d} " * 1000 for number in range(50)]
    if kind == "zip":
        return [{"__key__": text[:3], "txt": text.encode(), "n": text[:3].encode()} for text in texts]
    return [{"__key__": text[:3], "text": text} for text in texts]


@every_kind
def test_files_yield_all_samples_and_a_cut_one_is_an_error(kind: str, tmp_path: Path) -> None:
    environment = job(tmp_path, KINDS[kind][0], "File")
    shards = write_shards(samples_of(kind), tmp_path / contract.DATA_DIR / "train", kind, 30_000)
    assert len(shards) > 3
    assert list(open_channel("train", format=KINDS[kind][1], environment=environment)) == samples_of(kind)
    # A CSV that is cut between quotes looks whole.
    shards[2].write_bytes(shards[2].read_bytes()[:-9] + (b'\n"' if kind == "csv" else b""))
    with pytest.raises(CorruptError, match=r"channel 'train': object '00002\.\w+', byte \d+"):
        list(open_channel("train", format=KINDS[kind][1], environment=environment))


def test_missing_column_names_channel_object_and_columns(tmp_path: Path) -> None:
    environment = job(tmp_path, "application/x-parquet", "File")
    write_shards(samples_of("parquet"), tmp_path / contract.DATA_DIR / "train", "parquet")
    message = r"^channel 'train': object '00000.parquet', there is no column 'nope'; the file has __key__, text$"
    with pytest.raises(ChannelError, match=message):
        list(open_channel("train", format="parquet; columns=nope", environment=environment))


@pytest.mark.parametrize("kind", list(KINDS))
def test_state_names_the_format_as_a_user_writes_it(kind: str, tmp_path: Path) -> None:
    environment = job(tmp_path, KINDS[kind][0], "File")
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
def test_gzipped_files_are_read_and_resumed(form: str, tmp_path: Path) -> None:
    samples, objects = gzipped(form, tmp_path)
    environment = job(tmp_path, form, "File")
    for number, data in enumerate(objects):
        (environment.data_dir / f"train/{number}.gz").write_bytes(data)
    assert without_key(open_channel("train", format=GZIPPED[form], environment=environment)) == samples
    for seed in (None, 3):
        opened = open_channel("train", format=GZIPPED[form], environment=environment, seed=seed, block=4)
        before = [next(opened) for _ in range(9)]
        again = open_channel("train", format=GZIPPED[form], environment=environment, seed=seed, block=4)
        again.load_state_dict(json.loads(json.dumps(opened.state_dict())))
        rest = list(opened)
        assert list(again) == rest
        assert len(before) + len(rest) == len(samples)
    (environment.data_dir / "train/2.gz").write_bytes(objects[2][:-1])
    with pytest.raises(
        CorruptError, match=r"channel 'train': object '2\.gz', byte \d+: the gzip stream is damaged or cut"
    ):
        list(open_channel("train", format=GZIPPED[form], environment=environment))


@every_gzipped
def test_gzipped_objects_of_the_connector_are_read(form: str, s3: Path, tmp_path: Path) -> None:
    samples, objects = gzipped(form, tmp_path)
    (s3 / "train").mkdir()
    for number, data in enumerate(objects):
        (s3 / f"train/{number}.gz").write_bytes(data)
    environment = environment_of(tmp_path / "root", "s3://bucket/train/")
    assert without_key(open_channel("train", format=GZIPPED[form], environment=environment)) == samples


@every_gzipped
@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
def test_gzipped_objects_of_a_pipe_are_read(form: str, wrapper: str, tmp_path: Path) -> None:
    samples, objects = gzipped(form, tmp_path)
    environment = job(tmp_path / "root", form, "Pipe", wrapper)
    data = io.BytesIO(b"".join(objects))
    if wrapper == "RecordIO":
        recordio.write(data, objects)
    assert piped(environment, GZIPPED[form], data.getvalue()) == samples


@every_kind
def test_connector_yields_all_samples(kind: str, s3: Path, tmp_path: Path) -> None:
    write_shards(samples_of(kind), s3 / "train", kind, 30_000)
    environment = environment_of(tmp_path / "root", "s3://bucket/train/", KINDS[kind][0])
    assert list(open_channel("train", format=KINDS[kind][1], environment=environment)) == samples_of(kind)


@every_kind
def test_pipe_yields_all_samples_or_refuses_the_format(kind: str, tmp_path: Path) -> None:
    shards = write_shards(samples_of(kind), tmp_path / "shards", kind, 30_000)
    environment = job(tmp_path / "root", KINDS[kind][0], "Pipe")
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
def test_wrapping_pipe_yields_all_samples(kind: str, tmp_path: Path) -> None:
    shards = write_shards(samples_of(kind), tmp_path / "shards", kind, 30_000)
    stream = io.BytesIO()
    recordio.write(stream, [shard.read_bytes() for shard in shards])
    environment = job(tmp_path / "root", KINDS[kind][0], "Pipe", "RecordIO")
    assert piped(environment, KINDS[kind][1], stream.getvalue()) == samples_of(kind)


def test_damage_in_a_wrapped_object_names_both_offsets(tmp_path: Path) -> None:
    shards = write_shards(samples_of("zip"), tmp_path / "shards", "zip", 30_000)
    first, second = shards[0].read_bytes(), bytearray(shards[1].read_bytes())
    second[100] ^= 1
    stream = io.BytesIO()
    recordio.write(stream, [first, bytes(second)])
    environment = job(tmp_path / "root", "application/zip", "Pipe", "RecordIO")
    place = 8 + len(first) + -len(first) % 4
    with pytest.raises(
        CorruptError,
        match=rf"^channel 'train': object at byte {place} of the Pipe, byte 0: member .*: Bad CRC-32",
    ):
        piped(environment, None, stream.getvalue())
