"""An augmented manifest's stream: one sample per line, as the local run and SageMaker send it."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from format_channels import file_of
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import format_of, recordio
from sagemaker_channels.formats.augmented import of_attributes
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sample import Sample
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.worker_loader import WorkerLoader

ATTRIBUTES = ("source-ref", "class", "box")
NAMES = 'augmented; attributes="source-ref, class,box"'
VARIABLES = {"LAUNCHER_ATTRIBUTE_NAMES_0": json.dumps({"train": ATTRIBUTES})}
MAGIC = recordio.MAGIC.to_bytes(4, "little")
FORM = of_attributes(ATTRIBUTES)
# The first value of every third sample has up to 48 KB, and holds the word that begins records.
SAMPLES: list[Sample] = [
    {
        "source-ref": bytes([n % 251]) * n * 10 + (MAGIC + bytes(2000)) * (n % 3) * 12,
        "class": b"%d" % n,
        "box": b"[1, %d]" % n,
    }
    for n in range(60)
]


STREAM = file_of(FORM, SAMPLES)


def job(root: Path) -> Path:
    """An /opt/ml with the Pipe `train`, wrapped as RecordIO."""
    (root / contract.CONFIG_DIR).mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir(parents=True)
    configure(root)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return job(tmp_path)


def configure(root: Path, **members: str) -> None:
    entry = {"TrainingInputMode": "Pipe", "RecordWrapperType": "RecordIO", "ContentType": "image/jpeg", **members}
    (root / contract.CONFIG_DIR / "inputdataconfig.json").write_text(json.dumps({"train": entry}))


@contextmanager
def fed(root: Path, content: bytes, epoch: int = 0) -> Iterator[None]:
    """An epoch's FIFO, fed by another process (workers forked from one that writes would hold it open)."""
    fifo, file = root / contract.DATA_DIR / contract.fifo_name("train", epoch), root / "content"
    file.write_bytes(content)
    os.mkfifo(fifo)
    feeder = subprocess.Popen(["/bin/sh", "-c", 'exec cat "$0" > "$1"', file, fifo])
    try:
        yield
        feeder.wait(PATIENCE)
    finally:
        feeder.kill()
        feeder.wait()
        fifo.unlink()


def planned(root: Path) -> Environment:
    """The environment of a job that the launcher planned."""
    return load_environment(root, VARIABLES)


def by_class(samples: list[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda sample: int(sample["class"]))


@pytest.mark.parametrize("shard", [None, Shard(1, 2)])
@pytest.mark.parametrize(
    ("environ", "format"), [(VARIABLES, None), (VARIABLES, "augmented"), (VARIABLES, NAMES), ({}, NAMES)], ids=str
)
def test_each_manifest_line_yields_one_sample(
    root: Path, environ: dict[str, str], format: str | None, shard: Shard | None
) -> None:
    with fed(root, STREAM):
        found = list(open_channel("train", 0, format=format, environment=load_environment(root, environ), shard=shard))
    assert found == (SAMPLES if shard is None else SAMPLES[1::2])


def test_other_formats_still_unwrap_records(root: Path) -> None:
    with fed(root, file_of(FORM, SAMPLES[:2])):
        found = list(open_channel("train", 0, format="objects", environment=planned(root)))
    assert found == [{"data": value} for sample in SAMPLES[:2] for value in sample.values()]


def test_unwrapped_channel_uses_its_content_type(root: Path) -> None:
    configure(root, RecordWrapperType="None", ContentType="text/plain")
    with fed(root, b"one\ntwo\n"):
        assert list(open_channel("train", environment=planned(root))) == [{"data": b"one"}, {"data": b"two"}]
    configure(root, RecordWrapperType="None")
    with pytest.raises(ChannelError, match="set record_wrapper_type: RecordIO"):
        open_channel("train", environment=planned(root))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_dataset_reads_every_epoch(root: Path, workers: int) -> None:
    dataset = ChannelDataset("train", environment=planned(root))
    loader: DataLoader[Any] = DataLoader(dataset, 4, num_workers=workers, collate_fn=list)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        with fed(root, STREAM, epoch):
            found = [sample for batch in loader for sample in batch]
        assert by_class(found) == SAMPLES


@pytest.mark.parametrize("reading", [{}, {"seed": 3, "block": 8}], ids=["in order", "shuffled"])
def test_reading_resumes_in_the_middle_of_an_epoch(tmp_path: Path, reading: dict[str, Any]) -> None:
    roots = (job(tmp_path / str(number)) for number in count())  # A job reads an epoch once.

    @contextmanager
    def opened() -> Iterator[Any]:
        root = next(roots)
        with fed(root, STREAM), closing(open_channel("train", environment=planned(root), **reading)) as samples:
            yield samples

    with opened() as samples:
        whole = list(samples)
    assert by_class(whole) == SAMPLES
    assert (whole == SAMPLES) == (not reading)
    for taken in (0, 1, 13, 59):
        with opened() as samples:
            assert [next(samples) for _ in range(taken)] == whole[:taken]
            state = json.loads(json.dumps(samples.state_dict()))
            list(samples)
        with opened() as again:
            again.load_state_dict(state)
            assert list(again) == whole[taken:]


@pytest.mark.parametrize("reading", [{}, {"seed": 3, "block": 5}], ids=["in order", "shuffled"])
def test_reading_by_several_readers_of_a_pipe_resumes(root: Path, reading: dict[str, Any]) -> None:
    def loader() -> WorkerLoader:
        dataset = ChannelDataset("train", environment=planned(root), **reading)
        return WorkerLoader(dataset, 2, num_workers=3, collate_fn=list)

    with fed(root, STREAM):
        first = iter(before := loader())
        given = [sample for _ in range(7) for sample in next(first)]
        state = before.state_dict()
        rest = [sample for batch in first for sample in batch]
    assert by_class(given + rest) == SAMPLES
    (root / contract.DATA_DIR / contract.epochs_name("train")).unlink()  # of the job that was interrupted
    with fed(root, STREAM):
        after = loader()
        after.load_state_dict(state)
        assert [sample for batch in after for sample in batch] == rest


def test_stream_that_ends_inside_a_line_is_an_error() -> None:
    samples = [{name: value[:9] for name, value in sample.items()} for sample in SAMPLES[:5]]
    data = file_of(FORM, samples)
    stream = io.BytesIO()
    recordio.write(stream, [samples[0]["source-ref"], samples[0]["class"]])
    with pytest.raises(CorruptError, match=rf"byte {len(data)}: 2 record\(s\) are left for the 3 attributes"):
        list(FORM.split(io.BytesIO(data + stream.getvalue())))
    for size in range(1, len(data)):
        try:
            found = list(FORM.split(io.BytesIO(data[:size])))
            assert found == samples[: len(found)]  # cut between two lines, which cannot be noticed
            assert data[:size] == b"".join(file_of(FORM, [sample]) for sample in found)
        except CorruptError:
            pass


def test_attribute_names_are_required_and_distinct() -> None:
    assert format_of(NAMES) == FORM
    with pytest.raises(ChannelError, match="augmented needs the names of the attributes"):
        list(format_of("augmented").split(io.BytesIO(STREAM), None))
    for text in ('augmented; attributes="a,a"', "augmented; attributes="):
        with pytest.raises(ChannelError, match="write the channel's AttributeNames, each once"):
            format_of(text)


@pytest.mark.parametrize(
    ("open_it", "message"),
    [
        (
            lambda root: open_channel("train", 0, format="augmented", environment=load_environment(root, {})),
            "needs the names",
        ),
        (
            lambda root: open_channel("train", 0, format='augmented; attributes="a,b"', environment=planned(root)),
            "attributes names a, b, but the channel sends source-ref, class, box for each line; leave out the format",
        ),
    ],
)
def test_attribute_names_that_contradict_the_channel_are_refused(
    root: Path, open_it: Callable[[Path], object], message: str
) -> None:
    with pytest.raises(ChannelError, match=message):
        open_it(root)


def test_attribute_names_are_joined_from_several_variables(root: Path) -> None:
    text = VARIABLES["LAUNCHER_ATTRIBUTE_NAMES_0"]
    pieces = {f"LAUNCHER_ATTRIBUTE_NAMES_{number}": text[4 * number :][:4] for number in range(-(-len(text) // 4))}
    assert len(pieces) > 10
    assert load_environment(root, pieces).channels["train"].attribute_names == ATTRIBUTES
    assert load_environment(root, {}).channels["train"].attribute_names == ()
    assert (
        load_environment(root, {"LAUNCHER_ATTRIBUTE_NAMES_0": '{"other": ["a"]}'}).channels["train"].attribute_names
        == ()
    )


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"train": "source-ref"}', '{"train": [1]}', '{"train": null}'])
def test_damaged_attribute_names_raise_with_their_variable(root: Path, text: str) -> None:
    with pytest.raises(ValueError, match="LAUNCHER_ATTRIBUTE_NAMES_"):
        load_environment(root, {"LAUNCHER_ATTRIBUTE_NAMES_0": text})
