"""Jobs with channels, reading one from a FIFO, and objects in a format."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterable, Mapping
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


LINES = {"TrainingInputMode": "File", "ContentType": "text/plain"}


def configured(root: Path, **channels: Mapping[str, str]) -> Environment:
    """A job of channels with these entries, and a folder for each that is mounted."""
    (root / contract.CONFIG_DIR).mkdir(parents=True, exist_ok=True)
    (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(channels))
    (root / contract.DATA_DIR).mkdir(parents=True, exist_ok=True)
    for name, entry in channels.items():
        if entry["TrainingInputMode"] != "Pipe":
            (root / contract.DATA_DIR / name).mkdir(exist_ok=True)
    return load_environment(str(root), {})  # a text is a path, too


def job(root: Path, content_type: str, mode: str, wrapper: str = "None") -> Environment:
    """A job with the channel `train`."""
    return configured(
        root, train={"TrainingInputMode": mode, "RecordWrapperType": wrapper, "ContentType": content_type}
    )


def lines_channel(root: Path, name: str, objects: int, lines: int) -> Environment:
    """A job whose channel reads this number of objects by File, each of lines `<object>-<number>`."""
    environment = configured(root, **{name: LINES})
    for shard in range(objects):
        text = "".join(f"{shard}-{number}\n" for number in range(lines))
        (environment.data_dir / name / f"{shard}.txt").write_text(text)
    return environment


def piped(environment: Environment, form: str | None, data: bytes) -> list[Sample]:
    fifo = environment.data_dir / "train_0"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=[data])
    feeder.start()
    found = list(open_channel("train", format=form, environment=environment))
    feeder.join()
    return found
