"""A job with one channel of a content type, and reading it from a FIFO."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sample import Sample


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
