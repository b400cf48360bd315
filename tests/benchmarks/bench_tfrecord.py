"""TFRecord of 10 KB: both checksums checked, against the `tfrecord` package, which checks none."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rounds import Row, exhaust, interleaved, raw, row
from tfrecord.reader import example_loader, tfrecord_iterator
from tfrecord.writer import TFRecordWriter

from sagemaker_channels.formats import example, tfrecord

RECORDS = 20_000


def measure(records: int = RECORDS) -> list[Row]:
    """Rows for payloads and for Examples: an image with its label, floats, and the numbers of a text's tokens."""
    random = np.random.default_rng(0)
    rows = _rows(
        "image and label", records, lambda n: {"image": (random.bytes(10_000), "byte"), "label": (n % 1000, "int")}
    )
    floats = random.random(2500).astype("f4")
    rows += _rows("2,500 floats and label", records, lambda n: {"x": (floats, "float"), "label": (n % 10, "int")})
    tokens = random.integers(0, 50_000, 2500).tolist()
    return rows + _rows("2,500 integers below 50,000", records // 4, lambda _: {"x": (tokens, "int")})


def _rows(work: str, records: int, build: Callable[[int], dict[str, Any]]) -> list[Row]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "file.tfrecord"
        writer = TFRecordWriter(str(path))
        for number in range(records):
            writer.write(build(number))
        writer.close()

        def read(split: Callable[[Any], Any]) -> None:
            with path.open("rb", buffering=0) as stream:
                split(stream)

        payloads = interleaved(
            {
                "ours": lambda: read(lambda stream: exhaust(tfrecord.FORMAT.split(stream))),
                "limit": lambda: read(raw),
                "tfrecord": lambda: _nothing(exhaust(tfrecord_iterator(str(path)))),
            }
        )
        examples = interleaved(
            {
                "ours": lambda: read(lambda stream: exhaust(example.FORMAT.split(stream))),
                "limit": lambda: read(raw),
                "tfrecord": lambda: _nothing(exhaust(example_loader(str(path), None))),
            }
        )
    return [
        row(f"TFRecord of 10 KB, payloads ({work})", payloads, "tfrecord", 0.8, per=records),
        row(f"TFRecord of 10 KB, Examples ({work})", examples, "tfrecord", 1.2, per=records),
    ]


def _nothing(_: object) -> None:
    """Interleaved takes a number for a time."""
