"""The README's chart: how many times as fast as other packages we read, a bar for each, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rounds import Row

# The work and the peer of a row, and the bar's label; a dozen, with the worst and the best of each package.
BARS = {
    ("connector, 100 KB objects, 20 ms latency", "S3IterableDataset"): "S3, 100 KB objects, vs s3torchconnector",
    ("map style, DataLoader(2 workers, batch 64)", "S3MapDataset"): "S3, random access, vs s3torchconnector",
    ("connector, 64 MiB objects, no latency", "S3IterableDataset"): "S3, 64 MiB objects, vs s3torchconnector",
    ("100 MB tar shards in S3, 20 ms latency", "webdataset"): "S3, tar shards, vs webdataset",
    ("webdataset's own shards, 10 KB members, FIFO", "webdataset"): "Pipe, tar of 10 KB files, vs webdataset",
    ("mounted tar, DataLoader, 2 workers", "webdataset"): "tar, DataLoader, vs webdataset",
    ("mounted tar, DataLoader, 2 workers", "mosaicml-streaming"): "tar, DataLoader, vs mosaicml-streaming",
    ("mounted tar, DataLoader, 2 workers", "litdata"): "tar, DataLoader, vs litdata",
    ("RecordIO-protobuf, dense 784 floats, to tensors", "SDK"): "RecordIO-protobuf, vs SageMaker SDK",
    ("RecordIO of 1 KB, FIFO", "SDK"): "RecordIO, 1 KB records, vs SageMaker SDK",
    ("TFRecord of 10 KB, Examples (2,500 floats and label)", "tfrecord"): "TFRecord, floats, vs tfrecord",
    ("TFRecord of 10 KB, Examples (2,500 integers below 50,000)", "tfrecord"): "TFRecord, integers, vs tfrecord",
}
LABEL_CHARACTERS = 40  # the most that the labels' column holds
_WIDTH, _LABELS, _BARS, _ROW, _TOP = 830, 300, 460, 26, 44
_MARKS = (1, 2, 5, 10, 20, 50)
_SMALLEST, _LARGEST = 0.5, 60
_FASTER, _SLOWER, _INK, _GRID = "#2f7d5b", "#c8803c", "#24292f", "#d0d7de"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write an .svg with the bars of the rows that were measured."""
    ratios = {(row["work"], row["peer_name"]): row["ratio"] for row in rows}
    bars = [(label, ratios[row]) for row, label in BARS.items() if row in ratios]
    height = _TOP + _ROW * len(bars) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="Verdana, DejaVu Sans, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(
            _LABELS, 22, "Reading speed, as a multiple of another package's", 'font-weight="bold" text-anchor="start"'
        ),
    ]
    for mark in _MARKS:
        x = _place(mark)
        parts.append(f'<path d="M{x} {_TOP - 8}V{height - 26}" stroke="{_INK if mark == 1 else _GRID}"/>')
        parts.append(_text(x, height - 10, "as fast" if mark == 1 else f"{mark}x", 'text-anchor="middle"'))
    for number, (label, ratio) in enumerate(bars):
        y = _TOP + _ROW * number
        left, right = sorted((_place(1), _place(ratio)))
        colour = _FASTER if ratio >= 1 else _SLOWER
        parts.append(f'<rect x="{left}" y="{y}" width="{right - left:.1f}" height="18" fill="{colour}"/>')
        parts.append(_text(_LABELS, y + 14, label, 'text-anchor="end"'))
        parts.append(_text(right + 6, y + 14, f"{ratio:.2g}x", 'text-anchor="start"'))
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _place(ratio: float) -> float:
    shard = math.log(ratio / _SMALLEST) / math.log(_LARGEST / _SMALLEST)
    return round(_LABELS + 10 + _BARS * min(max(shard, 0), 1), 1)


def _text(x: float, y: float, text: str, attributes: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{_INK}" {attributes}>{escape(text)}</text>'
