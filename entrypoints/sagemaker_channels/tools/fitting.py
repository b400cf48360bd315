"""Samples as a format of shards holds them: names, labels and types of their fields."""

from __future__ import annotations

import json
from typing import Any

from sagemaker_channels.sample import DATA, KEY, Sample
from sagemaker_channels.samples.lst import Line

FORMATS = ("tar", "zip", "recordio", "image-recordio", "tfrecord", "tfrecord-example", "parquet")
LABELLED = {"recordio": "image-recordio", "tfrecord": "tfrecord-example"}  # the formats that can hold a label, too
CHOICES = tuple(name for name in FORMATS if name not in LABELLED.values())  # of people; labels choose among the others
NAMED = ("objects", "tar", "zip")  # formats of a channel whose samples have a `__key__` each
_SINGLE = ("recordio", "image-recordio", "tfrecord")  # records without names of fields


def fitted(sample: Sample, format: str, line: Line | None, key: str) -> Sample:
    """Return a sample as the format holds it, with the labels of its line.

    In an archive, object `a/1.x.png` is sample `a/1_x` with the field `png`, labels are the field `cls`, and what is not bytes
    becomes text. Elsewhere labels are `label`, a number or several. A record without names has the only field as its `data`.

    Args:
        sample: The sample.
        format: The short name.
        line: Its line in a list, if there is one.
        key: Its `__key__` in an archive.

    Raises:
        TypeError: A field cannot become text.
    """
    fields = {name: value for name, value in sample.items() if name != KEY}
    labels = () if line is None else line.labels
    if format in ("tar", "zip"):
        if set(fields) == {DATA} and key == sample.get(KEY):
            folder, slash, name = key.rpartition("/")
            stem, dot, ending = name.rpartition(".")
            key = folder + slash + (stem if dot else name).replace(".", "_")
            fields = {ending or DATA: fields[DATA]} if dot else fields
        if labels:
            fields["label"] = " ".join(f"{label:g}" for label in labels)
        return {KEY: key, **{"cls" if name == "label" else name: _text(value) for name, value in fields.items()}}
    if format in _SINGLE and len(fields) == 1:
        fields = {DATA: next(iter(fields.values()))}
    if labels:
        fields["label"] = labels[0] if len(labels) == 1 else list(labels)
    if format == "image-recordio":
        import numpy as np

        fields = {"label": 0.0, "id": 0, "id2": 0, **fields, **({} if line is None else {"id": line.index})}
        label = np.asarray(fields["label"], "<f4")
        fields["label"] = label if label.ndim else float(label)
    elif format == "tfrecord-example":
        fields = {name: _feature(value) for name, value in fields.items()}
    elif format == "parquet":
        fields = {name: _column(value) for name, value in fields.items()}
    return {KEY: sample[KEY], **fields} if KEY in sample else fields


def _feature(value: Any) -> Any:
    """Return a value as an Example's feature is read again: numbers as an array."""
    if isinstance(value, bytes):
        return value
    import numpy as np

    array = np.atleast_1d(value)
    kind = {"f": "<f4", "i": "<i8", "u": "<i8"}.get(array.dtype.kind)
    return array.astype(kind) if kind else value


def _column(value: Any) -> Any:
    """Return a value as a column of Parquet is read again: a list of numbers as an array."""
    if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
        return value
    import numpy as np

    return np.asarray(value, "<f8" if float in map(type, value) else "<i8")


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    value = value.tolist() if hasattr(value, "tolist") else value
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogateescape")
