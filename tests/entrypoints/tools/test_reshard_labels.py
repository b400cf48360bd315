"""Resharding with labels: the lines of `.lst` lists become fields of their images' samples."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import reshard
from resharded import COUNT, channels, options, samples
from sagemaker_channels import contract


@pytest.fixture
def labels(bucket: Path) -> Path:
    """The folder of the channel `labels`."""
    root = Path(os.environ[contract.BASE_DIR_VARIABLE])
    folder = root / contract.DATA_DIR / "labels"
    folder.mkdir()
    channels(root, "data", "labels")
    return folder


def joined(format: str, more: str, bucket: Path, labels: Path) -> list[list[float]]:
    """Reshard with a list of one label, and `more`, for each object; return the labels that the samples have."""
    (labels / "a.lst").write_text("".join(f"{n}\t{n % 7}{more}\t{n:04d}.jpg\n" for n in range(COUNT)))
    reshard.main(options(format))
    written = {"recordio": "image-recordio", "tfrecord": "tfrecord-example"}.get(format, format)
    found = [sample["cls" if format == "tar" else "label"] for sample in samples(bucket / "out", written)]
    texts = [label.split() if format == "tar" else label for label in found]
    return [np.atleast_1d(each).astype(float).tolist() for each in texts]


@pytest.mark.parametrize("format", ["tar", "recordio", "tfrecord", "parquet"])
def test_labels_of_lists_are_joined_to_their_objects(format: str, bucket: Path, labels: Path) -> None:
    assert joined(format, "", bucket, labels) == [[number % 7] for number in range(COUNT)]
    (labels / "a.lst").write_text("0\t1\t0000.jpg\n")
    with pytest.raises(SystemExit, match=r"reshard: .*0001\.jpg' has no line in the list"):
        reshard.main(["--output", "s3://bucket/other"])


@pytest.mark.parametrize("format", ["tar", "recordio", "tfrecord", "parquet"])
def test_several_labels_of_a_line_become_a_list(format: str, bucket: Path, labels: Path) -> None:
    assert joined(format, "\t0.5", bucket, labels) == [[number % 7, 0.5] for number in range(COUNT)]


def test_changed_labels_are_refused_and_a_further_list_is_accepted(bucket: Path, labels: Path) -> None:
    """Shards with the earlier labels were reported as verified."""
    lines = "".join(f"{n}\t{n % 7}\t{n:04d}.jpg\n" for n in range(COUNT))
    (labels / "a.lst").write_text(lines)
    reshard.main(options())
    (labels / "a.lst").write_text(lines.replace("\t3\t", "\t4\t"))
    with pytest.raises(
        SystemExit, match=r"has shards of a run with labels a\.lst \w+, not \w+; continue with the same"
    ):
        reshard.main(options())
    (labels / "a.lst").write_text(lines)
    for name, path in (("b.lst", "9998.jpg"), ("c.lst", "9999.jpg")):
        (labels.with_name("data") / path).write_bytes(b"last")
        (labels / name).write_text(f"7\t8\t{path}\n")
        reshard.main(options())
        assert samples(bucket / "out", "tar")[-1]["cls"] == b"8"
    (labels / "b.lst").write_text("7\t9\t9998.jpg\n")
    with pytest.raises(SystemExit, match=r"labels b\.lst"):
        reshard.main(options())


def test_image_in_two_lists_is_refused(bucket: Path, labels: Path) -> None:
    (labels / "a.lst").write_text("".join(f"{n}\t1\t{n:04d}.jpg\n" for n in range(COUNT)))
    (labels / "b.lst").write_text("0\t2\t0003.jpg\n")
    with pytest.raises(SystemExit, match=r"reshard: .*/b\.lst: '0003\.jpg' is in another list, too; remove one of its"):
        reshard.main(options())
    assert not bucket.exists()
