"""The memory that a stream of 10 GB takes, by every reader and format: the most above what the imports took, and if it is flat.

The stream is one file of 100 MB under a hundred names (hard links), or joined by `cat` for a Pipe: to a reader, other bytes
are no different. `tenth` in a row is the most within the first tenth of the samples: flat means that it hardly grew after that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from far_store import far_store
from local_job import mounted_job, train_folder
from rounds import Row

from sagemaker_channels import contract
from sagemaker_channels.formats import json_lines, protobuf_record, recordio, tar, tfrecord, zip_archive

SCRIPT = Path(__file__).with_name("streams.py")
ALLOWED = 300.0  # MB
MEMBERS, SIZE, OBJECT = 1000, 100_000, 1_000_000


def measure(folder: Path, gigabytes: float = 10) -> list[Row]:
    """A row for each format and way to read; `folder` takes 1 GB."""
    copies = max(10, int(gigabytes * 10))
    files = {name: _file(folder, name, write) for name, (_, _, write) in FORMATS.items()}
    rows = []
    for name, (content_type, joined, _) in FORMATS.items():
        root = folder / f"mounted-{name}"
        mounted_job(root, content_type)
        _links(files[name], train_folder(root), copies)
        rows.append(_row(f"{name}, mounted", "plain", root, copies))
        if joined:
            root = folder / f"pipe-{name}"
            mounted_job(root, content_type, "Pipe")
            rows.append(_row(f"{name}, Pipe", "plain", root, copies, files[name]))
    rows.append(_row("tar, mounted, shuffled in blocks", "shuffled", folder / "mounted-tar", copies))
    rows.append(_row("tar, mounted, ThreadLoader of 4", "threads", folder / "mounted-tar", copies))
    _links(files["tar"], folder / "s3/bucket/tar", copies)
    (folder / "memory.object").write_bytes(os.urandom(OBJECT))
    _links(folder / "memory.object", folder / "s3/bucket/objects", copies * MEMBERS * SIZE // OBJECT)
    with far_store(folder, 0.02):
        rows.append(_row("tar, connector", "plain", _connector(folder, "tar", "application/x-tar"), copies))
        ones = _connector(folder, "objects", None)
        rows.append(_row("objects of 1 MB, connector", "plain", ones, copies, each=MEMBERS * SIZE // OBJECT))
        whole = _connector(folder, "tar", None)
        two = 2 * files["tar"].stat().st_size / 1e6  # the loop's sample, and the next one
        rows.append({**_row("objects of 100 MB, connector", "plain", whole, copies, each=1), "limit": two})
    return rows


def _row(work: str, way: str, root: Path, copies: int, piped: Path | None = None, *, each: int = MEMBERS) -> Row:
    samples = copies * each  # of `each` a copy
    said = root / "said"  # by the launcher, of a channel that is read through the connector
    environ = {**os.environ, **({f"{contract.CONNECTOR_VARIABLE}0": said.read_text()} if said.exists() else {})}
    fifo = root / contract.DATA_DIR / contract.fifo_name("train", 0)
    with suppress(FileExistsError):
        if piped is not None:
            os.mkfifo(fifo)
    command = [sys.executable, str(SCRIPT), way, str(root), str(samples)]
    feeder = f"exec cat {' '.join([str(piped)] * copies)} > {fifo}"
    with nullcontext() if piped is None else subprocess.Popen(["sh", "-c", feeder]):
        found = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    count, tenth, most = int(found[0]), float(found[1]), float(found[2])
    if count < samples:
        raise RuntimeError(f"{work}: {count} samples, not {samples}")
    return {
        "work": f"memory over {copies / 10:.0f} GB: {work}",
        "ours": most,
        "peer_name": "allowed",
        "peer": ALLOWED,
        "limit": None,
        "unit": "MB",
        "ratio": ALLOWED / max(most, 0.1),
        "target": 1,
        "tenth": tenth,
    }


def _connector(folder: Path, prefix: str, content_type: str | None) -> Path:
    root = folder / f"connector-{prefix}"
    root.mkdir(exist_ok=True)
    entry = {"channel": "train", "s3_uri": f"s3://bucket/{prefix}/", "style": "iterable"}
    (root / "said").write_text(json.dumps({**entry, **({"content_type": content_type} if content_type else {})}))
    return root


def _file(folder: Path, name: str, write: Callable[[BinaryIO], Any]) -> Path:
    path = folder / f"memory.{name}"
    with path.open("wb") as stream:
        write(stream)
    return path


def _links(file: Path, folder: Path, copies: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(copies):
        with suppress(FileExistsError):
            (folder / f"{number:04d}").hardlink_to(file)


def _samples() -> Any:
    payload = os.urandom(SIZE)
    return ({"__key__": f"{number:06d}", "bin": payload} for number in range(MEMBERS))


def _payloads() -> Any:
    return (sample["bin"] for sample in _samples())


def _parquet(stream: BinaryIO) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"bin": list(_payloads())})
    parquet.write_table(table, stream, row_group_size=100, compression="none", use_dictionary=False)


# Content type, whether objects can be joined in a Pipe, and who writes one object of MEMBERS samples.
FORMATS: dict[str, tuple[str, bool, Callable[[BinaryIO], Any]]] = {
    "tar": ("application/x-tar", True, lambda stream: tar.write(stream, _samples())),
    "zip": ("application/zip", False, lambda stream: zip_archive.write(stream, _samples())),
    "RecordIO": ("application/x-recordio", True, lambda stream: recordio.write(stream, _payloads())),
    "RecordIO-protobuf": (
        "application/x-recordio-protobuf",
        True,
        lambda stream: recordio.write(
            stream, [protobuf_record.encode_record({"features": {"values": np.zeros(SIZE // 4, "f4")}})] * MEMBERS
        ),
    ),
    "TFRecord": (
        "application/x-tfrecord",
        True,
        lambda stream: tfrecord.FORMAT.write(stream, ({"data": each} for each in _payloads())),  # type: ignore[misc]
    ),
    "Parquet": ("application/x-parquet", False, _parquet),
    "lines": (
        "text/plain",
        True,
        lambda stream: json_lines.FORMAT.write(stream, ({"x": "y" * (SIZE - 9)} for _ in range(MEMBERS))),  # type: ignore[misc]
    ),
}
