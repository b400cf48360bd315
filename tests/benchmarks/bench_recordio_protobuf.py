"""RecordIO-protobuf, dense rows of 784 floats with labels, to tensors: against the SDK's path, record by record."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from rounds import Peer, Row, interleaved, raw, row

from sagemaker_channels.formats import format_of, protobuf_record, recordio
from sagemaker_channels.formats.recordio_protobuf import as_tensors

SDK_PATH = """
import sys, time
import numpy as np
from sagemaker.amazon.common import read_recordio
from sagemaker.amazon.record_pb2 import Record
for _ in sys.stdin:
    start = time.perf_counter()
    with open(sys.argv[1], "rb") as stream:
        for data in read_recordio(stream):
            record = Record()
            record.ParseFromString(data)
            np.array(record.features["values"].float32_tensor.values, np.float32)
            np.array(record.label["values"].float32_tensor.values, np.float32)
    print("seconds", time.perf_counter() - start, flush=True)
"""


def measure(records: int = 20_000, batch: int = 256) -> list[Row]:
    """One row; empty where LAUNCHER_SDK_V2_PYTHON names no environment of the SDK's version 2."""
    python = os.environ.get("LAUNCHER_SDK_V2_PYTHON")
    if python is None:
        return []
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "file.pbr"
        with path.open("wb") as stream:
            for values, label in zip(
                random.random((records, 784)).astype("f4"), random.integers(0, 10, records), strict=True
            ):
                sample = {"features": {"values": values}, "label": {"values": np.array([label], "f4")}}
                recordio.write(stream, [protobuf_record.encode_record(sample)])

        def ours() -> None:
            with path.open("rb", buffering=0) as stream:
                for tensors in map(as_tensors, format_of(f"recordio-protobuf; batch={batch}").split(stream)):
                    tensors["features"]["values"]

        def limit() -> None:
            with path.open("rb", buffering=0) as stream:
                raw(stream)

        peer = Peer(python, SDK_PATH, str(path))
        seconds = interleaved({"ours": ours, "limit": limit, "SDK": peer})
        peer.close()
    return [row("RecordIO-protobuf, dense 784 floats, to tensors", seconds, "SDK", 30, per=records)]
