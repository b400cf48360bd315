"""`launch toy-data`: shards of random PNGs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from launcher import cli
from sagemaker_channels.formats import FORMATS, SHORT_NAMES


def launch(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(["toy-data", *map(str, words)])
    return int(end.value.code or 0)


@pytest.mark.parametrize("format", [form.name for form in FORMATS if form.holds == "fields"])
def test_toy_data_has_the_shards_samples_and_pixels_asked_for(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "toy"
    assert launch(folder, "--shards", "3", "--samples", "4", "--size", "32", "--format", format, "--json") == 0
    form = SHORT_NAMES[format]
    shards = sorted(folder.iterdir())
    assert [shard.name for shard in shards] == [f"0000{number}{form.ending}" for number in range(3)]
    assert [row["bytes"] for row in json.loads(capsys.readouterr().out)["shards"]] == [
        shard.stat().st_size for shard in shards
    ]
    images = set()
    for shard in shards:
        with shard.open("rb", buffering=0) as stream:
            samples = list(form.split(stream))
        assert len(samples) == 4
        for sample in samples:
            image, label = (Image.open(BytesIO(sample[name])) for name in ("image", "label"))
            assert (image.mode, image.size, image.format) == ("RGB", (32, 32), "PNG")
            assert (label.mode, label.size, label.format) == ("L", (32, 32), "PNG")
            assert len(sample["image"]) >= 3 * 32 * 32
            images.add(image.tobytes())
    assert len(images) == 12


def test_class_folders_have_images_of_increasing_brightness(tmp_path: Path) -> None:
    words = ("--shards", "3", "--samples", "2", "--size", "8", "--format", "folders")
    assert launch(tmp_path / "toy", *words) == 0
    ranges = []
    for number, folder in enumerate(sorted((tmp_path / "toy").iterdir())):
        assert folder.name == f"class-{number}"
        assert sorted(image.name for image in folder.iterdir()) == ["00000.png", "00001.png"]
        pixels = b"".join(Image.open(image).tobytes() for image in folder.iterdir())
        ranges.append((min(pixels), max(pixels)))
    assert all(dark[1] <= light[0] for dark, light in pairwise(ranges))


def test_toy_data_is_the_same_again_and_changes_with_the_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ("--shards", "1", "--samples", "1", "--size", "8")
    made = []
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        assert launch(tmp_path / name, *tiny, "--seed", seed) == 0
        made.append((tmp_path / name / "00000.tar").read_bytes())
        assert capsys.readouterr().err == f"{tmp_path / name}: writing 256 bytes\n"
    assert made[0] == made[1] != made[2]


def test_toy_data_is_not_written_among_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/notes.txt").touch()
    assert launch(tmp_path / "toy", "--samples", "1", "--size", "2") == 3
    assert [file.name for file in (tmp_path / "toy").iterdir()] == ["notes.txt"]
    assert "toy is not empty; use another folder" in capsys.readouterr().err


def test_toy_data_that_no_disk_can_hold_is_refused_before_it_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch("new/toy", "--shards", "1000000000000") == 3
    assert "new/toy: needs 6553600.0 TB, and its disk has" in capsys.readouterr().err
    assert launch("s3://bucket/toy") == 2
    assert "'s3://bucket/toy' is not a path on this machine" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_interrupted_toy_data_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "launcher", "toy-data", "toy", "--shards", "3", "--size", "1024"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        while not any(tmp_path.rglob("*.tar.part")):
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
