"""A job with one channel of a content type, reading it from a FIFO, and objects in a format."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.formats.format import Format
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sample import Sample


def file_of(form: Format, samples: Iterable[Sample]) -> bytes:
    """Return the samples as a file in a format that has a writer."""
    stream = io.BytesIO()
    assert form.write is not None, form.name
    form.write(stream, samples)
    return stream.getvalue()


def job(root: Path, content_type: str, mode: str, wrapper: str = "None") -> Environment:
    directory = root / contract.CONFIG_DIR
    directory.mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir(parents=True, exist_ok=True)
    entry = {"TrainingInputMode": mode, "RecordWrapperType": wrapper, "ContentType": content_type}
    (directory / "inputdataconfig.json").write_text(json.dumps({"train": entry}))
    return load_environment(root, {})


def lines_channel(root: Path, name: str, objects: int, lines: int) -> Environment:
    """A job whose channel reads this number of objects by File, each of lines `<object>-<number>`."""
    folder = root / contract.DATA_DIR / name
    folder.mkdir(parents=True)
    for shard in range(objects):
        (folder / f"{shard}.txt").write_text("".join(f"{shard}-{number}\n" for number in range(lines)))
    (root / contract.CONFIG_DIR).mkdir()
    entry = {"TrainingInputMode": "File", "ContentType": "text/plain"}
    (root / contract.CONFIG_DIR / "inputdataconfig.json").write_text(json.dumps({name: entry}))
    return load_environment(str(root), {})  # a text is a path, too


def piped(environment: Environment, form: str | None, data: bytes) -> list[Sample]:
    fifo = environment.data_dir / "train_0"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=[data])
    feeder.start()
    found = list(open_channel("train", format=form, environment=environment))
    feeder.join()
    return found
