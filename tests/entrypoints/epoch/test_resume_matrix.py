"""Every input mode and format, read by any ranks, threads and workers, interrupted anywhere: each sample once per epoch.

The suite runs a few cases of each mode, always the same; RESUME_CASES and RESUME_SEED (tests/README.md) run others.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from delivered_channels import recordio_of
from launcher.local.channels.mounted import View
from launcher.local.channels.mounted import mounted as mounted_by_rclone
from launcher.s3.uri import S3Location
from pipe_feeder import feeding
from resume_matrix import EPOCHS, FORMATS, KINDS, READINGS, Job, any_layout, every, write_objects
from sagemaker_channels import contract
from sagemaker_channels.formats import format_of
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sources import mounted
from served_bucket import served_bucket

# How many cases of each the suite runs. A Pipe of several readers starts a process in each life.
MODES = {
    "File": 5,
    "FastFile": 5,
    "EFS or FSx": 5,
    "S3Connector iterable": 5,
    "S3Connector map": 5,
    "any": 5,
    "Pipe": 2,
}
CASES, FIRST = (int(os.environ.get(name, "0")) for name in ("RESUME_CASES", "RESUME_SEED"))


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A served bucket with a folder for each format."""
    root = tmp_path_factory.mktemp("matrix").resolve()
    for form in FORMATS:
        write_objects(root / "s3/bucket" / form.partition(";")[0], form)
    with pytest.MonkeyPatch.context() as patch, served_bucket(root, patch) as folder:
        yield folder


@pytest.fixture(scope="module")
def mount(bucket: Path) -> Iterator[Path]:
    """The bucket, mounted by rclone."""
    place = bucket.parents[1] / "mount"
    place.mkdir()
    with mounted_by_rclone(View(S3Location("bucket", ""), place, bucket.parents[1], dict(os.environ))):
        yield place


def container(root: Path, mode: str, form: str, folder: Path) -> Environment:
    """Make a new container, whose channel `train` has a folder's objects."""
    (root / contract.CONFIG_DIR).mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir()
    source, _, style = mode.partition(" ")
    if source == "S3Connector":
        entry = {"channel": "train", "s3_uri": f"s3://bucket/{folder.name}/", "style": style}
        return load_environment(root, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
    config = {"TrainingInputMode": source if source in ("FastFile", "Pipe") else "File"}
    if mode == "Pipe":
        config["RecordWrapperType"] = "None" if format_of(form).boundaries else "RecordIO"
    else:
        (root / contract.DATA_DIR / "train").symlink_to(folder)
    (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps({"train": config}))
    return load_environment(root, {})


@pytest.mark.parametrize("mode", MODES)
def test_job_interrupted_anywhere_reads_each_sample_once_per_epoch(
    mode: str, bucket: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the restarts have other numbers of ranks, threads or workers; with the mode `any`, lives have different ones."""
    if mode == "FastFile":
        request.getfixturevalue("fuse")
    monkeypatch.setenv(contract.WAITS_VARIABLE, "0")
    folder = request.getfixturevalue("mount") if mode == "FastFile" else bucket
    if mode == "EFS or FSx":  # Only a kernel has such a mount; what it changes is how files are read.
        monkeypatch.setattr(mounted, "is_remote", lambda path: True)
    for seed in range(FIRST, FIRST + (CASES or MODES[mode])):
        chance = random.Random(f"{mode} {seed}")
        form = FORMATS[seed % len(FORMATS)] if CASES else chance.choice(FORMATS)
        kind = chance.choice(KINDS[:1] if mode == "Pipe" else KINDS)  # its readers would wait for each other
        job = Job(form, chance.choice(READINGS), chance, monkeypatch, kind, together=mode == "Pipe")
        layout = any_layout(chance, processes=bool(CASES) and mode != "Pipe")
        lives = chance.choice([1, 2, 3])
        for life in range(lives + 1):
            if life and chance.random() < 0.5:
                layout = any_layout(chance, processes=bool(CASES) and mode != "Pipe")
            root = tmp_path / f"{seed}-{life}"
            objects = folder / form.partition(";")[0]
            source = chance.choice(["File", "S3Connector iterable"]) if mode == "any" else mode
            environment = container(root, source, form, objects)
            with ExitStack() as stack:
                if mode == "Pipe":
                    contents = [file.read_bytes() for file in sorted(objects.iterdir())]
                    stream = b"".join(contents) if format_of(form).boundaries else recordio_of(contents)
                    stack.enter_context(feeding(root))("train", lambda epoch, stream=stream: stream)
                job.live(environment, layout, last=life == lives)
        expected = Counter(itertools.product(range(EPOCHS), every(kind)))
        assert Counter(job.found) == expected, f"seed {seed}: {form}, {kind}, {job.reading}: " + "; ".join(job.story)
