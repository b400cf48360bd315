"""Files as other people's writers make them: read by every way of arriving and from every position, they are what the writer's
own reader gives; cut or damaged, they are an error that says where and never a shorter epoch.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format_channels import configured
from peer_files import MAKERS, Made, gnu_tar
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import format_of
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.sample import Sample

every_file = pytest.mark.parametrize("name", MAKERS)


@pytest.fixture
def made(name: str, tmp_path: Path) -> Made:
    if name.startswith("zip") and "zipfile" not in name and shutil.which("zip") is None:
        pytest.skip("no zip here")
    (tmp_path / "made").mkdir()
    return MAKERS[name](tmp_path / "made")


def plain(sample: Sample) -> Any:
    """Something to compare with; without the key that the object gives it."""
    return {name: _plain(value) for name, value in sample.items() if (name, value) != ("__key__", "x")}


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def alike(found: Iterable[Sample], wanted: Iterable[Sample]) -> bool:
    return [plain(sample) for sample in found] == [plain(sample) for sample in wanted]


def opened(root: Path, form: str, mode: str, data: bytes) -> Iterator[Sample]:
    environment = configured(root, train={"TrainingInputMode": mode})
    if mode == "File":
        (environment.data_dir / "train/x").write_bytes(data)
    else:
        fifo = environment.data_dir / "train_0"
        os.mkfifo(fifo)
        threading.Thread(target=fifo.write_bytes, args=[data], daemon=True).start()
    return iter(open_channel("train", format=form, environment=environment))


@every_file
def test_file_of_another_writer_is_read_in_every_mode_and_from_any_position(made: Made, tmp_path: Path) -> None:
    form, data, wanted = made
    assert alike(opened(tmp_path / "file", form, "File", data), wanted)
    reader = format_of(form)
    if reader.boundaries:
        assert alike(opened(tmp_path / "pipe", form, "Pipe", data), wanted)
    cursor = Cursor()
    positions = [cursor.position for _ in reader.split(io.BytesIO(data), "x", cursor)]
    for number, position in enumerate(positions):
        assert alike(reader.split(io.BytesIO(data), "x", Cursor(position)), wanted[number + 1 :])


RECORDS = ("tfrecord", "tfrecord-example", "image-recordio")  # formats whose records say where they end; text does not
ended_file = pytest.mark.parametrize("name", [name for name in MAKERS if not name.startswith(("csv", "JSON"))])


@ended_file
def test_cut_file_of_another_writer_loses_no_samples_silently(name: str, made: Made) -> None:
    form, data, wanted = made
    reader = format_of(form)
    cursor = Cursor()
    between = {0} | {cursor.position for _ in reader.split(io.BytesIO(data), "x", cursor)} if form in RECORDS else {0}
    step = 1 if len(data) < 4000 else 37
    for cut in range(len(data) - 1, 0, -step):
        if cut in between:
            continue
        found: list[Sample] = []
        try:
            found.extend(reader.split(io.BytesIO(data[:cut]), "x"))
        except CorruptError as error:
            assert "object 'x', byte " in str(error)
            assert alike(found, wanted[: len(found)])
            continue
        # What is left out at the end says nothing: padding, the second half of an end marker.
        if name != "tarfile, two joined":
            assert alike(found, wanted), cut


@ended_file
def test_flipped_bit_loses_no_samples_silently(made: Made) -> None:
    form, data, wanted = made
    reader = format_of(form)
    step = max(1, len(data) // 211)
    for place in range(0, len(data), step):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        try:
            found = list(reader.split(io.BytesIO(bytes(damaged)), "x"))
        except CorruptError as error:
            assert "object 'x', byte " in str(error)
        else:
            assert len(found) == len(wanted), place


def test_sparse_files_are_refused_by_name(tmp_path: Path) -> None:
    with (tmp_path / "hole.bin").open("wb") as stream:
        stream.truncate(1 << 20)
    for form in ("gnu", "pax"):
        command = ["tar", f"--format={form}", "-S", "-C", str(tmp_path), "-c", "hole.bin"]
        data = subprocess.run(command, check=True, capture_output=True).stdout
        with pytest.raises(CorruptError, match=r"object 'x', byte \d+: a sparse file"):
            list(format_of("tar").split(io.BytesIO(data), "x"))


def test_gzip_members_of_different_levels_are_read(tmp_path: Path) -> None:
    _, data, wanted = gnu_tar(tmp_path)
    pieces = [gzip.compress(data[start : start + 3000], start % 9) for start in range(0, len(data), 3000)]
    assert alike(format_of("tar").split(io.BytesIO(b"".join(pieces)), "x"), wanted)
