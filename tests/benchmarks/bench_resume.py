"""Going on at sample 1,000,000: opening, loading the state and giving the next sample, against reading that far.

The samples are small (100 bytes) and lie in one object, so that all of the way there is inside of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from local_job import mounted_job, train_folder
from rounds import Row, interleaved, row

from sagemaker_channels import open_channel
from sagemaker_channels.formats import recordio, tar, tfrecord
from sagemaker_channels.job.environment import Environment

FAR, MORE = 1_000_000, 1000


def measure(folder: Path) -> list[Row]:
    """A row for each format that can be sought, and one for a shuffled epoch; `folder` takes 1.5 GB."""
    rows = []
    for name, (content_type, write) in FORMATS.items():
        job = mounted_job(folder / name.split()[0], content_type)
        with (train_folder(folder / name.split()[0]) / "all").open("wb") as stream:
            write(stream)
        rows.append(_row(name, job, {}))
        if name == "RecordIO":
            rows.append(_row("RecordIO, shuffled in blocks", job, {"seed": 7}))
    return rows


def _row(name: str, job: Environment, reading: dict[str, Any]) -> Row:
    states: dict[str, Any] = {}

    def far() -> float:
        start = time.perf_counter()
        samples = open_channel("train", environment=job, **reading)
        for _ in islice(samples, FAR):
            pass
        seconds = time.perf_counter() - start
        states["state"], states["next"] = samples.state_dict(), next(samples)
        samples.close()
        return seconds

    def resumed() -> float:
        start = time.perf_counter()
        samples = open_channel("train", environment=job, **reading)
        samples.load_state_dict(states["state"])
        sample = next(samples)
        seconds = time.perf_counter() - start
        samples.close()
        if sample != states["next"]:
            raise RuntimeError(f"{name} went on with another sample")
        return seconds

    return row(
        f"resume at sample 1,000,000, {name}",
        interleaved({"reading that far": far, "ours": resumed}),
        "reading that far",
        100,
    )


def _payloads() -> Iterable[bytes]:
    return (b"%0100d" % number for number in range(FAR + MORE))


def _tar(stream: BinaryIO) -> None:
    tar.write(stream, ({"__key__": f"{n:07d}", "txt": data} for n, data in enumerate(_payloads())))


def _lines(stream: BinaryIO) -> None:
    stream.writelines(payload + b"\n" for payload in _payloads())


FORMATS: dict[str, tuple[str, Callable[[BinaryIO], Any]]] = {
    "tar": ("application/x-tar", _tar),
    "RecordIO": ("application/x-recordio", lambda stream: recordio.write(stream, _payloads())),
    "TFRecord": (
        "application/x-tfrecord",
        lambda stream: tfrecord.FORMAT.write(stream, ({"data": each} for each in _payloads())),  # type: ignore[misc]
    ),
    "lines": ("text/plain", _lines),
}
