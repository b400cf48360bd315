"""Files as other people's writers make them, and the samples that these people's own readers find in them."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from tfrecord.reader import example_loader, tfrecord_iterator
from tfrecord.writer import TFRecordWriter
from webdataset import ShardWriter
from webdataset.tariterators import group_by_keys, tar_file_expander

from sagemaker_channels.formats import recordio
from sagemaker_channels.sample import Sample

Made = tuple[str, bytes, list[Sample]]  # format, a file, and its samples without the object's key

CONTENT = {
    "a/1.jpg": b"\xff" * 700,
    "a/1.cls": b"3",
    "b.c/2.jpg": b"",
    "b.c/2.seg.png": bytes(512),
    "ü/" + "n" * 90 + "/" + "é" * 60 + ".txt": b"x" * 513,
}
SHORT = dict(list(CONTENT.items())[:4])
LONG = {"d/" * 60 + "3.jpg": b"long", "/".join(["e" * 100] * 3) + "/4.jpg": b"longer"}


def grouped(files: Iterable[tuple[str, bytes]]) -> list[Sample]:
    """Files as samples, by the rule that README and webdataset have."""
    samples: list[Sample] = []
    for name, data in files:
        folder, slash, base = name.rpartition("/")
        first, _, field = base.partition(".")
        if not samples or samples[-1]["__key__"] != folder + slash + first:
            samples.append({"__key__": folder + slash + first})
        samples[-1][field or "data"] = data
    return samples


def by_webdataset(path: Path) -> list[Sample]:
    with path.open("rb") as stream:
        samples = group_by_keys(tar_file_expander([{"url": path.name, "stream": stream}]))
        return [
            {n: value for n, value in sample.items() if n not in ("__url__", "__local_path__")} for sample in samples
        ]


def webdataset_shard(folder: Path, ending: str, **options: Any) -> Made:
    with ShardWriter(str(folder / f"%d.{ending}"), encoder=False, verbose=0, **options) as writer:
        for sample in grouped(CONTENT.items()):
            writer.write(sample)
        array = io.BytesIO()
        np.savez(array, x=np.arange(7))
        writer.write({"__key__": "numbers", "npz": array.getvalue()})
    path = folder / f"0.{ending}"
    return "tar", path.read_bytes(), by_webdataset(path)


def laid_out(folder: Path, content: dict[str, bytes]) -> list[str]:
    """Files on the disk; their names in order."""
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return list(content)


def gnu_tar(folder: Path, *options: str, content: dict[str, bytes] = CONTENT | LONG) -> Made:
    names = laid_out(folder / "files", content)
    data = subprocess.run(
        ["tar", *options, "-C", str(folder / "files"), "-c", *names], check=True, capture_output=True
    ).stdout
    return "tar", data, by_tarfile(data)


def by_tarfile(data: bytes) -> list[Sample]:
    with tarfile.open(fileobj=io.BytesIO(data), ignore_zeros=True) as archive:
        files = [(member.name, archive.extractfile(member)) for member in archive if member.isreg()]
        return grouped((name, stream.read()) for name, stream in files if stream)


def gnu_tar_appended(folder: Path) -> Made:
    names = laid_out(folder, CONTENT | LONG)
    for number, name in enumerate(names):
        command = ["tar", "--format=pax", "-C", str(folder), "-rf" if number else "-cf", str(folder / "x.tar"), name]
        subprocess.run(command, check=True)
    data = (folder / "x.tar").read_bytes()
    return "tar", data, by_tarfile(data)


def gnu_tar_links(folder: Path) -> Made:
    laid_out(folder, CONTENT)
    (folder / "a/2.jpg").hardlink_to(folder / "a/1.jpg")
    (folder / "a/3.jpg").symlink_to("1.jpg")
    os.mkfifo(folder / "a/4.jpg")
    command = ["tar", "--sort=name", "--xattrs", "-C", str(folder), "-c", "a", "b.c"]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    return "tar", data, by_tarfile(data)


class Unseekable(io.RawIOBase):
    """What a zip is written to with data descriptors."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.data += bytes(data)
        return len(data)


def python_zip(method: int, *, wide: bool = False, streamed: bool = False) -> Made:
    stream: Any = Unseekable() if streamed else io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in (CONTENT | LONG).items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with archive.open(info, "w", force_zip64=wide) as member:
                member.write(data)
    return "zip", stream.data if streamed else stream.getvalue(), grouped((CONTENT | LONG).items())


def info_zip(folder: Path, *options: str) -> Made:
    laid_out(folder, CONTENT | LONG)
    # Not by Python's zipfile: it neither knows Info-ZIP's names in Unicode nor takes a zip64 that was streamed.
    data = subprocess.run(["zip", "-q", *options, "-", *CONTENT, *LONG], cwd=folder, check=True, capture_output=True)
    return "zip", data.stdout, grouped((CONTENT | LONG).items())


def examples(folder: Path, form: str) -> Made:
    path = folder / "x.tfrecord"
    writer = TFRecordWriter(str(path))
    for number in range(9):
        ints = [number, -number, 300 * number, 1 << 40] * number or [0]
        writer.write(
            {"i": (ints, "int"), "f": ([0.5, -number], "float"), "b": (b"\xff" * number, "byte"), "n": (number, "int")}
        )
    writer.close()
    if form == "tfrecord":
        return form, path.read_bytes(), [{"data": bytes(record)} for record in tfrecord_iterator(str(path))]
    return form, path.read_bytes(), list(example_loader(str(path), None))


TABLE = pyarrow.table(
    {
        "id": pyarrow.array(range(50)),
        "text": pyarrow.array([None if n % 7 == 3 else "ü" * (n % 5) for n in range(50)]),
        "image": pyarrow.array([bytes([n]) * n for n in range(50)]),
        "vector": pyarrow.array([None if n % 11 == 1 else [n / 2] * (n % 4) for n in range(50)]),
        "nested": pyarrow.array([{"x": n, "y": ["a"] * (n % 3)} if n % 5 else None for n in range(50)]),
        "lists": pyarrow.array([[[n], []] if n % 2 else [] for n in range(50)]),
        "when": pyarrow.array([n * 10**6 for n in range(50)], pyarrow.timestamp("us")),
    }
)


def parquet(table: Any = TABLE, **options: Any) -> Made:
    stream = io.BytesIO()
    pyarrow.parquet.write_table(table, stream, **options)
    return "parquet", stream.getvalue(), pyarrow.parquet.read_table(io.BytesIO(stream.getvalue())).to_pylist()


def image_records() -> Made:
    """As MXNet's pack and MXIndexedRecordIO write them: source, mxnet/recordio.py."""
    records, samples = [], []
    for number in range(9):
        labels = np.arange(number, dtype="f4")
        flag, label = (number, 0.0) if number else (0, 7.0)
        image = b"\xff\xd8" + bytes([number]) * (number * 13)
        records.append(struct.pack("IfQQ", flag, label, number, 1) + labels.tobytes() + image)
        samples.append({"data": image, "label": labels if number else 7.0, "id": number, "id2": 1})
    stream = io.BytesIO()
    recordio.write(stream, records)
    return "image-recordio", stream.getvalue(), samples


ROWS = [["id", "text"], ["1", 'a "b", c'], ["2", "two\r\nlines\nand more"], ["3", "ü"], ["4", ""], ["", "x;y\tz"]]


def rows(form: str, *, start: str = "", last: bool = True, **options: Any) -> Made:
    text = io.StringIO(newline="")
    csv.writer(text, **options).writerows(ROWS)
    data = (start + (text.getvalue() if last else text.getvalue().rstrip("\r\n"))).encode()
    if "header" in form:
        return form, data, [dict(zip(ROWS[0], row, strict=True)) for row in ROWS[1:]]
    return form, data, [{"data": row} for row in ROWS]


def json_lines(start: str, end: str, *, last: bool = True) -> Made:
    values: list[Sample] = [{"a": 1, "b": "\u2028\u0085"}, {"a": [1.5, None], "b": {"c": "ü"}}, {"a": True}]
    text = start + end.join(json.dumps(value, ensure_ascii=False) for value in values) + (end if last else "")
    return "jsonl", text.encode(), values


def doubled(made: Made) -> tuple[bytes, list[Sample]]:
    _, data, samples = made
    return data * 2, samples * 2


MAKERS: dict[str, Callable[[Path], Made]] = {
    "webdataset": lambda folder: webdataset_shard(folder, "tar", user="me", group="us", mtime=1.5),
    "webdataset, now": lambda folder: webdataset_shard(folder, "tar"),
    "webdataset, gzip": lambda folder: webdataset_shard(folder, "tar.gz", compress=True),
    **{
        f"GNU tar, {name}": lambda folder, name=name: gnu_tar(folder, f"--format={name}")  # type: ignore[misc]
        for name in ("gnu", "oldgnu", "pax")
    },
    "GNU tar, ustar": lambda folder: gnu_tar(folder, "--format=ustar", content=SHORT | {"d/" * 60 + "3.jpg": b"long"}),
    "GNU tar, v7": lambda folder: gnu_tar(folder, "--format=v7", content=SHORT),
    "GNU tar, small blocks": lambda folder: gnu_tar(folder, "-b", "1"),
    "GNU tar, large blocks": lambda folder: gnu_tar(folder, "-b", "300"),
    "GNU tar, label": lambda folder: gnu_tar(folder, "--label=volume"),
    "GNU tar, pax with times": lambda folder: gnu_tar(
        folder, "--format=pax", "--pax-option=globexthdr.name=g,comment=x"
    ),
    "GNU tar, gzip": lambda folder: gnu_tar(folder, "-z"),
    "GNU tar, appended": gnu_tar_appended,
    "GNU tar, links": gnu_tar_links,
    "tarfile, two joined": lambda folder: ("tar", *doubled(gnu_tar(folder, "--format=pax"))),
    "zipfile, stored": lambda _: python_zip(zipfile.ZIP_STORED),
    "zipfile, deflated": lambda _: python_zip(zipfile.ZIP_DEFLATED),
    "zipfile, bzip2": lambda _: python_zip(zipfile.ZIP_BZIP2),
    "zipfile, zip64": lambda _: python_zip(zipfile.ZIP_DEFLATED, wide=True),
    "zipfile, descriptors": lambda _: python_zip(zipfile.ZIP_DEFLATED, streamed=True),
    "zipfile, descriptors, stored": lambda _: python_zip(zipfile.ZIP_STORED, streamed=True),
    "zip": lambda folder: info_zip(folder),
    "zip, stored, no extra fields": lambda folder: info_zip(folder, "-0", "-X"),
    "zip, streamed": lambda folder: info_zip(folder, "-fd"),
    "tfrecord": lambda folder: examples(folder, "tfrecord"),
    "tfrecord, Examples": lambda folder: examples(folder, "tfrecord-example"),
    **{
        f"pyarrow, {name}": lambda _, name=name: parquet(compression=name)  # type: ignore[misc]
        for name in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
    },
    "pyarrow, row groups": lambda _: parquet(row_group_size=3, data_page_size=64),
    "pyarrow, no dictionary": lambda _: parquet(use_dictionary=False, data_page_version="2.0", version="1.0"),
    "pyarrow, no rows": lambda _: parquet(TABLE.slice(0, 0)),
    "pyarrow, dictionary column": lambda _: parquet(pyarrow.table({"x": TABLE["text"].dictionary_encode()})),
    "MXNet, several labels": lambda _: image_records(),
    "csv": lambda _: rows("csv"),
    "csv, header, mark, no last end": lambda _: rows("csv; header=present", start="\ufeff", last=False),
    "csv, unix": lambda _: rows("csv; header=present", dialect="unix"),
    "csv, tabs": lambda _: rows("csv; header=present; delimiter=tab", dialect="excel-tab"),
    "csv, all quoted, semicolons": lambda _: rows('csv; delimiter=";"', delimiter=";", quoting=csv.QUOTE_ALL),
    "JSON lines": lambda _: json_lines("", "\n"),
    "JSON lines, mark, CRLF": lambda _: json_lines("\ufeff", "\r\n"),
    "JSON lines, blanks": lambda _: json_lines("\n\n", "\n\r\n  \n", last=False),
}
