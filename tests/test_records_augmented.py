"""An augmented manifest's stream: one sample per line, as the local run and SageMaker send it."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import pytest

from entrypoints import contract
from entrypoints.channel import open_channel
from entrypoints.environment import load_environment
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.records import format_of, recordio
from entrypoints.records.augmented import Augmented, whole_stream
from entrypoints.records.cursor import Cursor
from entrypoints.sharding import Share

NAMES = 'augmented; attributes="source-ref, class,box"'
FORM = Augmented(("source-ref", "class", "box"))
SAMPLES = [{"source-ref": bytes([n]) * n * 100, "class": b"%d" % n, "box": b"[1, %d]" % n} for n in range(5)]


def stream_of() -> bytes:
    stream = io.BytesIO()
    assert FORM.write(stream, SAMPLES) == 5
    return stream.getvalue()


def environment(tmp_path: Path, wrapper: str = "RecordIO", mode: str = "Pipe") -> Path:
    directory = tmp_path / contract.CONFIG_DIR
    directory.mkdir(parents=True)
    (tmp_path / contract.DATA_DIR).mkdir(parents=True)
    entry = {"TrainingInputMode": mode, "RecordWrapperType": wrapper, "ContentType": "application/x-recordio"}
    (directory / "inputdataconfig.json").write_text(json.dumps({"train": entry}))
    return tmp_path


@pytest.mark.parametrize("share", [None, Share(1, 2)])
def test_a_pipe_of_records_is_one_sample_per_line(tmp_path: Path, share: Share | None) -> None:
    root = environment(tmp_path)
    fifo = root / contract.DATA_DIR / "train_0"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=[stream_of()])
    feeder.start()
    job = whole_stream(load_environment(root, {}), "train")
    found = list(open_channel("train", format=NAMES, environment=job, share=share))
    feeder.join()
    assert found == (SAMPLES if share is None else SAMPLES[1::2])


def test_a_stream_that_ends_inside_of_a_line() -> None:
    data = stream_of()
    stream = io.BytesIO()
    recordio.write(stream, [SAMPLES[0]["source-ref"], SAMPLES[0]["class"]])
    with pytest.raises(CorruptError, match=rf"byte {len(data)}: 2 record\(s\) are left for the 3 attributes"):
        list(FORM.split(io.BytesIO(data + stream.getvalue())))
    for size in range(1, len(data)):
        try:
            found = list(FORM.split(io.BytesIO(data[:size])))
            assert found == SAMPLES[: len(found)]  # cut between two lines, which nothing tells
            assert data[:size] == b"".join(_encoded(sample) for sample in found)
        except CorruptError:
            pass


def _encoded(sample: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    FORM.write(stream, [sample])
    return stream.getvalue()


def test_reading_goes_on_at_every_line() -> None:
    cursor = Cursor()
    positions = [cursor.position for _ in FORM.split(io.BytesIO(stream_of()), None, cursor)]
    for number, position in enumerate(positions, 1):
        assert list(FORM.split(io.BytesIO(stream_of()), None, Cursor(position))) == SAMPLES[number:]


def test_names_are_needed_and_differ() -> None:
    assert format_of(NAMES) == FORM
    with pytest.raises(ChannelError, match="augmented needs the names of the attributes"):
        list(format_of("augmented").split(io.BytesIO(stream_of()), None))
    for text in ('augmented; attributes="a,a"', "augmented; attributes="):
        with pytest.raises(ChannelError, match="write the channel's AttributeNames, each once"):
            format_of(text)


def test_channels_that_bring_none(tmp_path: Path) -> None:
    job = load_environment(environment(tmp_path, mode="File"), {})
    with pytest.raises(ChannelError, match="'train' arrives by File; an augmented manifest needs input_mode: Pipe"):
        whole_stream(job, "train")
    with pytest.raises(ChannelError, match="'tran' is none of this job's"):
        whole_stream(job, "tran")
