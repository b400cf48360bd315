"""A job with one channel of a content type, and reading it from a FIFO."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from entrypoints import contract
from entrypoints.job.environment import Environment, load_environment
from entrypoints.sample import Sample
from entrypoints.samples.channel import open_channel


def job(root: Path, content_type: str, mode: str, wrapper: str = "None") -> Environment:
    directory = root / contract.CONFIG_DIR
    directory.mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir(parents=True)
    entry = {"TrainingInputMode": mode, "RecordWrapperType": wrapper, "ContentType": content_type}
    (directory / "inputdataconfig.json").write_text(json.dumps({"train": entry}))
    return load_environment(root, {})


def piped(environment: Environment, form: str | None, data: bytes) -> list[Sample]:
    fifo = environment.data_dir / "train_0"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=[data])
    feeder.start()
    found = list(open_channel("train", format=form, environment=environment))
    feeder.join()
    return found
